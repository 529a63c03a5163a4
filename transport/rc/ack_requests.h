// Which packets of a requester ask for an ACK (AckReq in BTH; IBA vol. 1,
// 9.7.3.1). If too few ask, the window stays full while the peer has nothing to
// answer; each packet that asks costs the peer an ACK.
//
// - The last packet that can be sent asks: the next one may come much later.
// - At least one in a quarter of the window asks
//   (RequesterAckTest.AsksForAnAckEveryQuarterOfTheWindow).
// - Of messages of one packet, one in kMaxMessages asks. A longer message need
//   not ask if kManyQueued messages follow it in the same turn: its completion
//   can come with the next one's
//   (RequesterAckTest.LongMessagesAskForAnAckWhereFewFollow).
#ifndef TRANSPORT_RC_ACK_REQUESTS_H_
#define TRANSPORT_RC_ACK_REQUESTS_H_

#include <cstdint>

#include "transport/congestion/path.h"

namespace transport {

class AckRequests {
 public:
  static constexpr uint32_t kMaxMessages = 16;
  static constexpr uint64_t kManyQueued = 8;

  // --- Getters.
  // The next packet asks, whatever follows.
  bool forced() const { return forced_; }
  bool any_unasked() const { return packets_ > 0; }
  // After this many bytes without AckReq, the next packet asks.
  static uint64_t MaxBytes(const Path& path) { return path.window() / 4; }
  bool BytesAskNow(const Path& path) const { return bytes_ >= MaxBytes(path); }
  // How many packets of `mtu` bytes may be sent until one asks.
  uint64_t PacketsUntilAsked(const Path& path, uint32_t mtu) const {
    const uint64_t max = MaxBytes(path);
    return max > bytes_ ? (max - bytes_ + mtu - 1) / mtu : 1;
  }
  // Whether the last packet of a message of `packets` asks. `queued`: work
  // requests from this one to the end of the queue.
  bool LastOfMessageAsks(uint32_t packets, uint64_t queued) const {
    return packets == 1 ? packets_ >= kMaxMessages : queued <= kManyQueued;
  }
  // Whether it certainly asks, whatever follows: the message is at the end of
  // the send queue, or close to it.
  static bool LastOfMessageAsksForSure(uint32_t packets, uint64_t queued) {
    return queued <= (packets > 1 ? kManyQueued : 1);
  }

  // --- Inputs.
  void OnSent(uint32_t packets, uint64_t bytes) {
    packets_ += packets;
    bytes_ += bytes;
  }
  void OnAsked() { *this = {}; }
  // Everything is retransmitted: the first packet asks.
  void OnRewind() {
    *this = {};
    forced_ = true;
  }

 private:
  uint64_t bytes_ = 0;    // since the last that asked
  uint32_t packets_ = 0;  // the same, in packets
  bool forced_ = false;
};

}  // namespace transport

#endif  // TRANSPORT_RC_ACK_REQUESTS_H_
