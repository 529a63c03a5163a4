// A queue pair of a datagram socket: one for each local address that it uses.
#ifndef VERBS_API_RSOCKETS_DATAGRAM_QP_H_
#define VERBS_API_RSOCKETS_DATAGRAM_QP_H_

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "verbs_api/rsockets/datagram_protocol.h"
#include "verbs_api/rsockets/endpoint.h"
#include "verbs_api/rsockets/iov_cursor.h"
#include "verbs_api/rsockets/settings.h"

namespace rsockets {

// Thread: with the lock of its socket. Functions return 0 or an errno value.
class DatagramQp {
 public:
  // Bytes of a message at most, its header included: rdma-core's receives have
  // so many.
  static constexpr uint32_t kSlot = 2048;

  // `local`: the address, and the port that its datagrams come from.
  static int Create(const DatagramAddress& local, const Settings& settings,
                    std::unique_ptr<DatagramQp>* out);
  ~DatagramQp();

  const DatagramAddress& local() const { return local_; }
  uint32_t qpn() const { return id_->qp->qp_num; }
  int completion_fd() const { return channel_->fd; }

  // The way to an address. The caller destroys it. Null, with errno.
  ibv_ah* CreatePath(const DatagramAddress& to);
  // What fits a message beside its header.
  uint32_t max_data() const { return max_message_ - header_.length; }

  bool CanSend() const { return !free_slots_.empty(); }
  bool all_sent() const { return free_slots_.size() == sends_; }
  // `data` fits.
  int Send(IovCursor data, ibv_ah* path, uint32_t qpn);

  // Takes completions. Received: slot and bytes of each message.
  struct Received {
    uint32_t slot;
    uint32_t length;
  };
  bool Poll(std::vector<Received>* received);
  const uint8_t* Message(uint32_t slot) const;
  // Whether the message came from the host `address`, by its GRH.
  bool CameFrom(uint32_t slot, const DatagramAddress& address) const;
  // The slot may receive again.
  int PostReceive(uint32_t slot);

  void Arm();
  // Takes the notifications of completions. True if there were any.
  bool Drain();

 private:
  DatagramQp(const DatagramAddress& local, const Settings& settings);
  int Open();
  int FindGid();

  const DatagramAddress local_;
  const HeaderBytes header_;
  const uint32_t receives_;
  const uint32_t sends_;
  rdma_cm_id* id_ = nullptr;
  rdma_event_channel* events_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  uint8_t gid_index_ = 0;
  uint32_t max_message_ = 0;  // bytes
  RegisteredMemory receive_memory_;
  RegisteredMemory send_memory_;
  std::vector<uint32_t> free_slots_;  // of the send memory
  bool armed_ = false;
  unsigned unacknowledged_ = 0;
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_DATAGRAM_QP_H_
