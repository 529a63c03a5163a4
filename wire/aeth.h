// The AETH syndrome (InfiniBand specification 9.7.5.2), and the encoded timers
// and credit counts of the reliable transport.

#ifndef WIRE_AETH_H_
#define WIRE_AETH_H_

#include <cstdint>

namespace wire {

// Bits 6..5 of the syndrome; bit 7 is reserved and ignored.
enum class AethKind : uint8_t {
  kAck = 0,
  kRnrNak = 1,
  kReserved = 2,
  kNak = 3,
};

// Bits 4..0 of a NAK's syndrome.
enum class NakCode : uint8_t {
  kPsnSequence = 0,
  kInvalidRequest = 1,
  kRemoteAccess = 2,
  kRemoteOperational = 3,
  kInvalidRd = 4,
};

// Credit code "no limit", sent by responders with an SRQ.
inline constexpr uint8_t kCreditNone = 0x1f;

constexpr uint8_t MakeAckSyndrome(uint8_t credit_code) {
  return credit_code & 0x1f;
}
constexpr uint8_t MakeRnrSyndrome(uint8_t timer) {
  return static_cast<uint8_t>(0x20 | (timer & 0x1f));
}
constexpr uint8_t MakeNakSyndrome(NakCode code) {
  return static_cast<uint8_t>(0x60 | (static_cast<uint8_t>(code) & 0x1f));
}

constexpr AethKind AethKindOf(uint8_t syndrome) {
  return static_cast<AethKind>(syndrome >> 5 & 3);
}
// The low five bits: credit code, RNR timer code or NAK code, by kind.
constexpr uint8_t AethValueOf(uint8_t syndrome) { return syndrome & 0x1f; }
// Requires kind kNak. Codes above kInvalidRd are reserved and have no
// enumerator.
constexpr NakCode NakCodeOf(uint8_t syndrome) {
  return static_cast<NakCode>(syndrome & 0x1f);
}

// Reserved kinds and NAK codes: the receiver drops the packet. No credit or
// timer code is reserved.
constexpr bool IsReserved(uint8_t syndrome) {
  const AethKind kind = AethKindOf(syndrome);
  return kind == AethKind::kReserved ||
         (kind == AethKind::kNak && NakCodeOf(syndrome) > NakCode::kInvalidRd);
}

// RNR NAK timer in ns, 10 us to 655.36 ms. Uses the low five bits of `code`.
int64_t RnrTimerNanos(uint8_t code);

// Number of requests that a credit code grants, 0 to 32768. UINT32_MAX for
// kCreditNone: more than any count of outstanding requests.
uint32_t CreditCount(uint8_t code);

// The local ACK timeout of ibv_modify_qp(3) in ns: 4.096 us x 2^timeout. A
// requester waits at least this long (transport::kAckTimeoutFactor). 0 means no
// timeout and gives 0. Uses the low five bits.
constexpr int64_t AckTimeoutNanos(uint8_t timeout) {
  return (timeout & 0x1f) == 0 ? 0 : int64_t{4096} << (timeout & 0x1f);
}

}  // namespace wire

#endif  // WIRE_AETH_H_
