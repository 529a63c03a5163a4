// What a send operation does to its peer, for plans and checks.
#ifndef TRANSPORT_SIM_OPERATIONS_H_
#define TRANSPORT_SIM_OPERATIONS_H_

#include "transport/base/types.h"
#include "transport/base/work.h"

namespace sim {

constexpr bool Writes(transport::SendOpcode opcode) {
  using transport::SendOpcode;
  return opcode == SendOpcode::kRdmaWrite ||
         opcode == SendOpcode::kRdmaWriteWithImm;
}
constexpr bool HasImm(transport::SendOpcode opcode) {
  using transport::SendOpcode;
  return opcode == SendOpcode::kSendWithImm ||
         opcode == SendOpcode::kRdmaWriteWithImm;
}
constexpr bool IsAtomic(transport::SendOpcode opcode) {
  using transport::SendOpcode;
  return opcode == SendOpcode::kCompareSwap || opcode == SendOpcode::kFetchAdd;
}
// SENDs: the data goes to a receive.
constexpr bool IsSend(transport::SendOpcode opcode) {
  using transport::SendOpcode;
  return opcode == SendOpcode::kSend || opcode == SendOpcode::kSendWithImm ||
         opcode == SendOpcode::kSendWithInvalidate ||
         opcode == SendOpcode::kTso;
}
constexpr bool TakesReceive(transport::SendOpcode opcode) {
  return IsSend(opcode) || opcode == transport::SendOpcode::kRdmaWriteWithImm;
}

// Opcode of the sender's completion (ibv_poll_cq(3)).
constexpr transport::WcOpcode SendCompletion(transport::SendOpcode opcode) {
  using transport::SendOpcode;
  using transport::WcOpcode;
  switch (opcode) {
    case SendOpcode::kRdmaWrite:
    case SendOpcode::kRdmaWriteWithImm:
      return WcOpcode::kRdmaWrite;
    case SendOpcode::kRdmaRead:
      return WcOpcode::kRdmaRead;
    case SendOpcode::kCompareSwap:
      return WcOpcode::kCompareSwap;
    case SendOpcode::kFetchAdd:
      return WcOpcode::kFetchAdd;
    case SendOpcode::kBindMw:
      return WcOpcode::kBindMw;
    case SendOpcode::kAtomicWrite:
      return WcOpcode::kAtomicWrite;
    case SendOpcode::kFlush:
      return WcOpcode::kFlush;
    case SendOpcode::kLocalInvalidate:
      return WcOpcode::kLocalInvalidate;
    case SendOpcode::kTso:
      return WcOpcode::kTso;
    default:
      return WcOpcode::kSend;
  }
}
// Opcode of the receiver's completion.
constexpr transport::WcOpcode ReceiveCompletion(transport::SendOpcode opcode) {
  return Writes(opcode) ? transport::WcOpcode::kReceiveRdmaWithImm
                        : transport::WcOpcode::kReceive;
}

}  // namespace sim

#endif  // TRANSPORT_SIM_OPERATIONS_H_
