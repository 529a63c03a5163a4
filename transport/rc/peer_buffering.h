// Whether the peer buffers packets beyond a gap, as a peer like ours does, or
// drops them (go-back-N), as most hardware does.
//
// RoCE has no selective acknowledgement: a NAK names one gap and says nothing
// about what is beyond it. Later acknowledgements show it. Without this every
// loss would cost a window of retransmissions between two of ours, or, with a
// peer that drops, a timeout for each packet beyond the gap.
//
// - Until it is known, a retransmission after a NAK stops after kTrialPackets
//   and waits for an answer: if all were retransmitted at once, no answer could
//   tell (RequesterLossTest.AReplayTriesWhatThePeerBuffers).
// - Proof of buffering: an acknowledgement of a packet that was not
//   retransmitted since the NAK.
// - That proof is false if packets are reordered: a peer that drops also
//   acknowledges a late packet that arrives in order. When a probe disproves it
//   (OnGapFilledAlone), only an acknowledgement of everything sent by the time
//   of the NAK counts from then on
//   (RequesterNakTest.LatePacketsLookBufferedOnce).
// - Two losses in a row look like dropping. So a peer that seems to drop is
//   tried again after kNaksUntilTrial NAKs
//   (RequesterLossTest.APeerThatDropsIsTriedAgainAfterEightNaks).
#ifndef TRANSPORT_RC_PEER_BUFFERING_H_
#define TRANSPORT_RC_PEER_BUFFERING_H_

#include <algorithm>
#include <cstdint>

#include "transport/rc/send_sequence.h"

namespace transport {

// In sequence numbers of the requester.
class PeerBuffering {
 public:
  // Packets of a retransmission after a NAK, before an answer has to show what
  // the peer buffers.
  static constexpr uint64_t kTrialPackets = 16;
  static constexpr int kNaksUntilTrial = 8;

  // --- Getters.
  bool buffers() const { return verdict_ == Verdict::kBuffers; }
  // A retransmission that has reached `nxt` waits for an answer.
  bool WaitsForAnswer(uint64_t una, uint64_t nxt) const {
    return verdict_ == Verdict::kUnknown && nak_seq_ == una &&
           nxt >= una + kTrialPackets;
  }

  // --- Inputs.
  // After a NAK of `una` everything up to `max` is about to be retransmitted.
  void OnNak(uint64_t una, uint64_t max) {
    if (verdict_ == Verdict::kDrops && ++naks_ % kNaksUntilTrial == 0) {
      verdict_ = Verdict::kUnknown;
    }
    if (nak_seq_ == kNoSequence || una > nak_seq_) {
      nak_seq_ = una;
      nak_max_ = max;
      resent_to_ = una;
    }
  }
  // Everything before `to` has been sent, or retransmitted.
  void OnSent(uint64_t to) { resent_to_ = std::max(resent_to_, to); }
  // The peer acknowledges everything before `until`.
  void OnAcknowledged(uint64_t until) {
    if (nak_seq_ == kNoSequence) return;
    if (until > nak_seq_ + 1 && until > resent_to_ && until <= nak_max_ &&
        (!disproved_ || until == nak_max_)) {
      verdict_ = Verdict::kBuffers;
      disproved_ = false;
    } else if (verdict_ == Verdict::kUnknown && until > nak_seq_ &&
               resent_to_ < nak_max_) {
      verdict_ = Verdict::kDrops;
    }
  }
  // Only the gap was retransmitted, and the peer is silent about what follows
  // it: it has dropped that.
  void OnGapFilledAlone() {
    verdict_ = Verdict::kDrops;
    disproved_ = true;
  }
  // After a silence it may be a different peer.
  void OnTimeout() { verdict_ = Verdict::kUnknown; }

  // Bytes beyond una that do not count as in flight: the peer buffers them.
  uint32_t buffered_bytes = 0;

 private:
  enum class Verdict : uint8_t { kUnknown, kBuffers, kDrops };

  Verdict verdict_ = Verdict::kUnknown;
  bool disproved_ = false;          // it seemed to buffer, and had dropped
  uint8_t naks_ = 0;                // since the verdict became kDrops
  uint64_t nak_seq_ = kNoSequence;  // the furthest NAK
  uint64_t nak_max_ = 0;            // SendSequence::max then
  uint64_t resent_to_ = 0;          // furthest since
};

}  // namespace transport

#endif  // TRANSPORT_RC_PEER_BUFFERING_H_
