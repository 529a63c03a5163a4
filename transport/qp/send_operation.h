// What each send opcode means to a requester: one
// row of one table (IBA vol. 1, 9.4; annex A19 for ATOMIC WRITE and
// FLUSH).
#ifndef TRANSPORT_QP_SEND_OPERATION_H_
#define TRANSPORT_QP_SEND_OPERATION_H_

#include <cstdint>

#include "transport/base/counters.h"
#include "transport/base/types.h"
#include "wire/opcode.h"

namespace transport {

// Bytes of an atomic's operand and result.
inline constexpr uint32_t kAtomicSize = 8;

enum class SendKind : uint8_t {
  kUnsupported,
  kMessage,  // SEND or RDMA WRITE: segmented, acknowledged
  kRead,     // answered by as many packets as it has PSNs
  kAtomic,   // one packet, answered by one
  kFlush,    // the same, without a local buffer
  kLocal,    // no packet
};

struct SendOperation {
  SendKind kind = SendKind::kUnsupported;
  WcOpcode wc_opcode = WcOpcode::kSend;
  wire::Operation first{};
  wire::Operation middle{};
  wire::Operation last{};
  wire::Operation only{};
  CountedAs counted_as = CountedAs::kOther;
  bool sends_payload = false;   // from the local buffers (may be inline)
  bool takes_receive = false;   // at the responder: credits, solicited events
  uint32_t response_bytes = 0;  // kAtomic: what comes back to the buffers

  // Is one of the max_rd_atomic that may be outstanding until it is answered.
  bool takes_rd_atomic() const {
    return kind >= SendKind::kRead && kind <= SendKind::kFlush;
  }
};

// Any value, also one that no enumerator has.
const SendOperation& GetSendOperation(SendOpcode opcode);

}  // namespace transport

#endif  // TRANSPORT_QP_SEND_OPERATION_H_
