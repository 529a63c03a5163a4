// A raw packet queue pair: sends and receives whole Ethernet frames, as in
// ibv_post_send(3) and ibv_create_flow(3). A FlowTable selects the frames that
// it receives; frames that it sends go to a FrameSink at once.
//
// A send completes when its frame was copied. A frame that is too long or too
// short for the interface completes with kLocalLengthError and the send queue
// enters SQE. A receive that is too short for a frame completes with
// kLocalLengthError, but the queue pair continues, since anyone may send.
//
// With an RxHash it only receives, into work queues, in any state.
#ifndef TRANSPORT_RAW_RAW_PACKET_QUEUE_PAIR_H_
#define TRANSPORT_RAW_RAW_PACKET_QUEUE_PAIR_H_

#include <cstdint>
#include <memory>

#include "transport/base/frames.h"
#include "transport/qp/queue_pair.h"
#include "transport/qp/tso_headers.h"
#include "transport/raw/rx_hash.h"

namespace transport {

// Raw packet parameters besides QpConfig. Borrowed; outlives the queue pair.
struct RawPacketConfig {
  FrameSink* frames = nullptr;      // for sending
  const RxHash* rx_hash = nullptr;  // null: uses its own receives
};

class RawPacketQueuePair final : public QueuePair, public FrameDestination {
 public:
  // `max_tso_header`: bytes; 0: no segmentation.
  RawPacketQueuePair(Endpoint& endpoint, const QpConfig& config,
                     const RawPacketConfig& raw, uint32_t max_tso_header);
  ~RawPacketQueuePair() override;

  // Sends what was posted, as one batch. Call after posting.
  void Flush(Time now);

  // --- FrameDestination.
  void OnFrame(const ReceivedFrame& received, uint32_t tag, Time now) override;
  size_t FrameRoom() const override;

 private:
  // Retry interval while the device is full.
  static constexpr Time kRetry = 50 * kMicrosecond;

  bool TakesFrames() const;

  // --- QueuePair.
  void StartSending(Time now) override;
  void Drain(Time now) override;
  void Resume(Time now) override;
  bool Drained() const override { return draining_ && segment_ == 0; }
  void OnError() override { StopSending(); }
  void OnReset() override { StopSending(); }
  int CheckServiceFields(const SendRequest& request) const override;
  void StoreServiceFields(const SendRequest& request) override;
  void OnPosted(Time now) override { SendQueued(now); }
  void OnServiceTimer(Time now) override;
  Interests TakeServiceInterests(Time now) override;

  void StopSending();
  // Sends until the device is full.
  void SendQueued(Time now);
  // Result of the oldest work request.
  enum class Outcome : uint8_t { kDone, kBlocked, kFailed };
  Outcome SendNext(Time now);
  Outcome SendSegments(Time now);
  size_t MaxFrame(const wire::EthernetFrame& frame) const;
  Outcome FailSend(WcResult result, Time now);
  // Copies `bytes` of the request's data from `offset` on.
  MemoryStatus CopyData(uint64_t index, uint64_t offset, uint8_t* to,
                        size_t bytes);

  const RawPacketConfig raw_;
  FrameSink& frames_;
  TsoHeaders headers_;
  bool sending_ = false;   // from RTS until SQE, ERR or RESET
  bool draining_ = false;  // SQD
  bool blocked_ = false;
  uint32_t segment_ = 0;  // segments sent of the oldest work request
};

}  // namespace transport

#endif  // TRANSPORT_RAW_RAW_PACKET_QUEUE_PAIR_H_
