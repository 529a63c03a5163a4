// End-to-end flow control of a requester (IBA vol. 1, 9.7.7.2): how many
// messages that consume a receive the peer permits, as its ACKs say. A peer
// like ours sets no limit, and sends RNR NAKs instead.
#ifndef TRANSPORT_RC_MESSAGE_CREDITS_H_
#define TRANSPORT_RC_MESSAGE_CREDITS_H_

#include <cstdint>

#include "wire/aeth.h"
#include "wire/psn.h"

namespace transport {

// Messages are numbered from 1 (SSN), modulo 2^24.
class MessageCredits {
 public:
  bool limited() const { return limited_; }
  // Whether the credits include message `number`.
  bool Include(uint32_t number) const {
    return !limited_ || wire::PsnDiff(number, limit_) <= 0;
  }
  uint32_t NextNumber() const { return begun_ + 1; }
  // A message is begun, or a READ or an atomic is sent: its number.
  uint32_t Count() {
    begun_ = (begun_ + 1) & wire::kPsnMask;
    return begun_;
  }
  // A response with sequence number `seq`. One with a lower number than the
  // last is older, and is ignored (RequesterAckTest.CreditsOfAnOlderAckAreOld).
  void OnAeth(uint64_t seq, const wire::Aeth& aeth) {
    if (wire::AethKindOf(aeth.syndrome) != wire::AethKind::kAck) return;
    if (seq < seq_) return;
    seq_ = seq;
    const uint8_t code = wire::AethValueOf(aeth.syndrome);
    limited_ = code != wire::kCreditNone;
    limit_ =
        limited_ ? (aeth.msn + wire::CreditCount(code)) & wire::kPsnMask : 0;
  }

 private:
  uint64_t seq_ = 0;  // of the response that set the limit
  // The last message that may be sent.
  uint32_t limit_ : 24 = 0;
  uint32_t limited_ : 1 = false;
  uint32_t begun_ = 0;  // the last message's number
};

}  // namespace transport

#endif  // TRANSPORT_RC_MESSAGE_CREDITS_H_
