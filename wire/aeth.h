// What the AETH's syndrome says (InfiniBand specification 9.7.5.2), and the
// coded times and counts of the reliable transport.

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

// The credit code that means "no limit"; what responders with an SRQ send.
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
// For kNak. Codes above kInvalidRd are reserved and have no enumerator.
constexpr NakCode NakCodeOf(uint8_t syndrome) {
  return static_cast<NakCode>(syndrome & 0x1f);
}

// Kinds and NAK codes that the specification keeps for later: whoever receives
// one drops the packet. Credit and timer codes all have a meaning.
constexpr bool IsReserved(uint8_t syndrome) {
  const AethKind kind = AethKindOf(syndrome);
  return kind == AethKind::kReserved ||
         (kind == AethKind::kNak && NakCodeOf(syndrome) > NakCode::kInvalidRd);
}

// How long an RNR NAK asks to wait, in ns: 10 us to 655.36 ms. Only
// the low five bits of `code` count.
int64_t RnrTimerNanos(uint8_t code);

// How many requests a credit code grants, 0 to 32768. For
// kCreditNone: UINT32_MAX, more than any count of outstanding requests.
uint32_t CreditCount(uint8_t code);

// The local ACK timeout of ibv_modify_qp(3), in ns: 4.096 us x 2^timeout, the
// least that a requester waits (transport::kAckPatience). 0 means to wait for
// ever and gives 0. Only the low five bits count.
constexpr int64_t AckTimeoutNanos(uint8_t timeout) {
  return (timeout & 0x1f) == 0 ? 0 : int64_t{4096} << (timeout & 0x1f);
}

}  // namespace wire

#endif  // WIRE_AETH_H_
