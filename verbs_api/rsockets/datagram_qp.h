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

// Thread: the lock of its socket is held. Functions return 0 or an errno value.
class DatagramQp {
 public:
  // The most bytes of a message, header included. Receives of rdma-core have
  // this size.
  static constexpr uint32_t kSlot = 2048;

  // `local`: the address, and the source port of its datagrams.
  static int Create(const DatagramAddress& local, const Settings& settings,
                    std::unique_ptr<DatagramQp>* out);
  ~DatagramQp();

  const DatagramAddress& local() const { return local_; }
  uint32_t qpn() const { return id_->qp->qp_num; }
  int completion_fd() const { return channel_->fd; }

  // Creates the address handle of an address. The caller destroys it. Null,
  // with errno, on failure.
  ibv_ah* CreatePath(const DatagramAddress& to);
  // The most bytes of data in a message, without the header.
  uint32_t max_data() const { return max_message_ - header_.length; }

  bool CanSend() const { return !free_slots_.empty(); }
  bool all_sent() const { return free_slots_.size() == sends_; }
  // The caller has checked that `data` fits.
  int Send(IovCursor data, ibv_ah* path, uint32_t qpn);

  // Polls completions. Each received message is a slot and its length.
  struct Received {
    uint32_t slot;
    uint32_t length;
  };
  bool Poll(std::vector<Received>* received);
  const uint8_t* Message(uint32_t slot) const;
  // Whether the message was sent by the host `address`, according to its GRH.
  bool CameFrom(uint32_t slot, const DatagramAddress& address) const;
  // Posts the slot for receiving again.
  int PostReceive(uint32_t slot);

  void Arm();
  // Takes completion notifications. Returns true if there were any.
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
  std::vector<uint32_t> free_slots_;  // in the send memory
  bool armed_ = false;
  unsigned unacknowledged_ = 0;
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_DATAGRAM_QP_H_
