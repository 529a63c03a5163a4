// The queue pair of a stream and its buffers: the protocol's use of verbs.
#ifndef VERBS_API_RSOCKETS_ENDPOINT_H_
#define VERBS_API_RSOCKETS_ENDPOINT_H_

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "verbs_api/rsockets/iov_cursor.h"
#include "verbs_api/rsockets/protocol.h"
#include "verbs_api/rsockets/receive_window.h"
#include "verbs_api/rsockets/send_window.h"
#include "verbs_api/rsockets/settings.h"

namespace rsockets {

// Memory with a memory region over it.
class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  // Zeroed and aligned to a cache line. Returns 0 or an errno value.
  int Allocate(ibv_pd* pd, size_t size, int access);
  uint8_t* data() const { return data_; }
  uint64_t address() const { return reinterpret_cast<uintptr_t>(data_); }
  uint32_t lkey() const { return mr_->lkey; }
  uint32_t rkey() const { return mr_->rkey; }

 private:
  uint8_t* data_ = nullptr;
  ibv_mr* mr_ = nullptr;
};

// Thread: the lock of its stream is held. Functions return 0 or an errno value.
class Endpoint {
 public:
  // Creates a queue pair on the id, which is bound to a device. Reduces
  // `settings` to the limits of the device.
  static int Create(rdma_cm_id* id, Settings* settings,
                    std::unique_ptr<Endpoint>* out);
  ~Endpoint();

  int completion_fd() const { return channel_->fd; }
  ConnectionData Describe() const;
  void Begin(const ConnectionData& peer);

  // --- Completions.
  // Polls completions. Processes data and credits itself, and appends other
  // messages in order of arrival. Returns true if there were any.
  bool Poll(std::vector<Message>* messages);
  // Makes completion_fd() readable at the next completion.
  void Arm();
  // Takes the notifications, so that completion_fd() is no longer readable.
  // Returns true if there were any.
  bool Drain();
  // The status of the first failed send, or IBV_WC_SUCCESS.
  ibv_wc_status failure() const { return failure_; }
  // Whether the peer has violated the protocol.
  bool violated() const { return violated_; }
  // Whether any message has arrived from the peer.
  bool heard_from_peer() const { return heard_; }

  // --- Sending.
  uint32_t SendRoom();
  // Sends the next `length` (<= SendRoom()) bytes.
  int SendData(IovCursor& data, uint32_t length);
  bool CanSendControl() const { return send_.CanSendControl(); }
  int SendControl(Control control);
  int SendKeepalive();
  // Sends credits for consumed data, if they are due and can be sent now.
  int SendCredits();
  bool all_sent() const { return send_.all_sent(); }

  // --- Receiving.
  ReceiveWindow& received() { return receive_; }
  const uint8_t* receive_buffer() const { return receive_memory_.data(); }

  // --- I/O mappings.
  uint32_t peer_iomap_entries() const { return peer_iomap_entries_; }
  bool CanWriteIomap() const { return send_.CanWriteIomap(); }
  int WriteIomap(uint32_t index, const Iomap& iomap);
  // The peer's mapping at `offset`; null if there is none.
  const Iomap* FindIomap(uint64_t offset) const;
  uint32_t DirectRoom() const { return send_.DirectRoom(); }
  // Writes the next `length` (<= DirectRoom()) bytes to `to`.
  int WriteDirect(IovCursor& data, uint32_t length, const Buffer& to);

 private:
  Endpoint(rdma_cm_id* id, const Settings& settings);
  int CreateQueues(Settings* settings);
  int AllocateMemory(const Settings& settings);
  int PostReceives(uint32_t count);
  void OnReceived(uint32_t immediate, std::vector<Message>* messages);
  void OnSent(const ibv_wc& wc);
  // Copies `length` bytes into the send ring and posts the request.
  int PostBytes(IovCursor& data, uint32_t length, ibv_send_wr* wr);
  int Post(ibv_send_wr* wr);
  const Iomap* iomaps() const;

  rdma_cm_id* const id_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  bool armed_ = false;
  unsigned unacknowledged_ = 0;  // notifications
  uint32_t inline_data_ = 0;     // bytes

  RegisteredMemory send_memory_;
  RegisteredMemory receive_memory_;
  RegisteredMemory targets_memory_;  // the target list, then the mappings
  SendWindow send_;
  ReceiveWindow receive_;
  std::unique_ptr<TargetList> targets_;
  const uint16_t credits_;
  const uint32_t iomap_entries_;

  Buffer peer_targets_;  // `length` counts entries
  uint32_t peer_entry_ = 1;
  uint32_t peer_iomap_entries_ = 0;
  bool swap_ = false;  // the peer has another byte order

  ibv_wc_status failure_ = IBV_WC_SUCCESS;
  bool violated_ = false;
  bool heard_ = false;
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_ENDPOINT_H_
