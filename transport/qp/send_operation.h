// The properties of each send opcode for a requester, one row of a table each
// (IBA vol. 1, 9.4; annex A19 for ATOMIC WRITE and FLUSH).
#ifndef TRANSPORT_QP_SEND_OPERATION_H_
#define TRANSPORT_QP_SEND_OPERATION_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/base/counters.h"
#include "transport/base/types.h"
#include "wire/opcode.h"

namespace transport {

// Bytes of an atomic operand and result.
inline constexpr uint32_t kAtomicSize = 8;

enum class SendKind : uint8_t {
  kUnsupported,
  kMessage,  // SEND or RDMA WRITE: segmented, acknowledged
  kRead,     // answered by one packet per PSN
  kAtomic,   // one packet, one response packet
  kFlush,    // like kAtomic, without a local buffer
  kLocal,    // no packet: executed when it is the oldest
};

struct SendOperation {
  SendKind kind = SendKind::kUnsupported;
  WcOpcode wc_opcode = WcOpcode::kSend;
  wire::Operation first{};
  wire::Operation middle{};
  wire::Operation last{};
  wire::Operation only{};
  CountedAs counted_as = CountedAs::kOther;
  bool sends_payload = false;  // from local buffers or inline
  // At the responder: consumes credits, may be solicited.
  bool takes_receive = false;
  bool has_inline_layout = false;  // kLocal: of a memory key
  bool has_immediate = false;
  SendOpcode opcode{};          // of the row, without AsRawWqe
  uint32_t response_bytes = 0;  // kAtomic: bytes of the result

  // Counts toward max_rd_atomic until answered.
  bool takes_rd_atomic() const {
    return kind >= SendKind::kRead && kind <= SendKind::kFlush;
  }
};

namespace internal {
inline constexpr size_t kSendOpcodes = 16;  // and as many of raw WQEs
extern const std::array<SendOperation, 2 * kSendOpcodes> kSendOperations;
extern const SendOperation kUnknownOperation;
}  // namespace internal

// Accepts any value, also without enumerator.
inline const SendOperation& GetSendOperation(SendOpcode opcode) {
  const auto i = static_cast<size_t>(opcode);
  return i < internal::kSendOperations.size() ? internal::kSendOperations[i]
                                              : internal::kUnknownOperation;
}
// What a canceled request becomes: a NOP that completes as the original would
// have.
const SendOperation& CanceledOperation(const SendOperation& operation);

}  // namespace transport

#endif  // TRANSPORT_QP_SEND_OPERATION_H_
