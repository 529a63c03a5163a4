#include "transport/qp/send_operation.h"

#include <array>

namespace transport {
namespace {

using wire::Operation;

constexpr CountedAs Counted(WcOpcode wc) {
  switch (wc) {
    case WcOpcode::kSend:
    case WcOpcode::kTso:
      return CountedAs::kSend;
    case WcOpcode::kRdmaWrite:
      return CountedAs::kWrite;
    case WcOpcode::kRdmaRead:
      return CountedAs::kRead;
    case WcOpcode::kCompareSwap:
    case WcOpcode::kFetchAdd:
    case WcOpcode::kAtomicWrite:
      return CountedAs::kAtomic;
    default:
      return CountedAs::kOther;
  }
}

constexpr SendOperation Message(WcOpcode wc, Operation first, Operation middle,
                                Operation last, Operation only,
                                bool takes_receive) {
  return {.kind = SendKind::kMessage,
          .wc_opcode = wc,
          .first = first,
          .middle = middle,
          .last = last,
          .only = only,
          .counted_as = Counted(wc),
          .sends_payload = true,
          .takes_receive = takes_receive};
}

constexpr SendOperation Single(SendKind kind, WcOpcode wc, Operation only,
                               bool sends_payload, uint32_t response_bytes) {
  return {.kind = kind,
          .wc_opcode = wc,
          .first = only,
          .middle = only,
          .last = only,
          .only = only,
          .counted_as = Counted(wc),
          .sends_payload = sends_payload,
          .response_bytes = response_bytes};
}

constexpr auto kOpcodes = internal::kSendOpcodes;

constexpr std::array<SendOperation, 2 * kOpcodes> MakeTable() {
  std::array<SendOperation, 2 * kOpcodes> table{};
  auto row = [&table](SendOpcode opcode) -> SendOperation& {
    return table[static_cast<size_t>(opcode)];
  };
  row(SendOpcode::kSend) =
      Message(WcOpcode::kSend, Operation::kSendFirst, Operation::kSendMiddle,
              Operation::kSendLast, Operation::kSendOnly, true);
  row(SendOpcode::kSendWithImm) =
      Message(WcOpcode::kSend, Operation::kSendFirst, Operation::kSendMiddle,
              Operation::kSendLastImm, Operation::kSendOnlyImm, true);
  row(SendOpcode::kSendWithInvalidate) = Message(
      WcOpcode::kSend, Operation::kSendFirst, Operation::kSendMiddle,
      Operation::kSendLastInvalidate, Operation::kSendOnlyInvalidate, true);
  row(SendOpcode::kRdmaWrite) = Message(
      WcOpcode::kRdmaWrite, Operation::kWriteFirst, Operation::kWriteMiddle,
      Operation::kWriteLast, Operation::kWriteOnly, false);
  row(SendOpcode::kRdmaWriteWithImm) = Message(
      WcOpcode::kRdmaWrite, Operation::kWriteFirst, Operation::kWriteMiddle,
      Operation::kWriteLastImm, Operation::kWriteOnlyImm, true);
  row(SendOpcode::kRdmaRead) = Single(SendKind::kRead, WcOpcode::kRdmaRead,
                                      Operation::kReadRequest, false, 0);
  row(SendOpcode::kCompareSwap) =
      Single(SendKind::kAtomic, WcOpcode::kCompareSwap, Operation::kCompareSwap,
             false, 8);
  row(SendOpcode::kFetchAdd) = Single(SendKind::kAtomic, WcOpcode::kFetchAdd,
                                      Operation::kFetchAdd, false, 8);
  row(SendOpcode::kAtomicWrite) =
      Single(SendKind::kAtomic, WcOpcode::kAtomicWrite, Operation::kAtomicWrite,
             true, 0);
  row(SendOpcode::kLocalInvalidate) = {.kind = SendKind::kLocal,
                                       .wc_opcode = WcOpcode::kLocalInvalidate};
  // Each segment is a message of its own.
  row(SendOpcode::kTso) =
      Message(WcOpcode::kTso, Operation::kSendOnly, Operation::kSendOnly,
              Operation::kSendOnly, Operation::kSendOnly, true);
  row(SendOpcode::kFlush) =
      Single(SendKind::kFlush, WcOpcode::kFlush, Operation::kFlush, false, 0);
  row(SendOpcode::kBindMw) = {.kind = SendKind::kLocal,
                              .wc_opcode = WcOpcode::kBindMw};
  row(SendOpcode::kConfigureMkey) = {.kind = SendKind::kLocal,
                                     .wc_opcode = WcOpcode::kConfigureMkey,
                                     .has_inline_layout = true};
  row(SendOpcode::kMemcpy) = {.kind = SendKind::kLocal,
                              .wc_opcode = WcOpcode::kMemcpy};
  row(SendOpcode::kNop) = {.kind = SendKind::kLocal,
                           .wc_opcode = WcOpcode::kRawWqe};
  row(SendOpcode::kSendWithImm).has_immediate = true;
  row(SendOpcode::kRdmaWriteWithImm).has_immediate = true;
  for (size_t i = 0; i < kOpcodes; ++i) {
    table[i].opcode = static_cast<SendOpcode>(i);
    table[kOpcodes + i] = table[i];
    table[kOpcodes + i].wc_opcode = WcOpcode::kRawWqe;
  }
  return table;
}

constexpr auto kCanceled = [] {
  auto table = MakeTable();
  for (SendOperation& row : table) {
    row = {.kind = SendKind::kLocal,
           .wc_opcode = row.wc_opcode,
           .opcode = SendOpcode::kNop};
  }
  return table;
}();

}  // namespace

constexpr std::array<SendOperation, 2 * kOpcodes> internal::kSendOperations =
    MakeTable();
constexpr SendOperation internal::kUnknownOperation;

const SendOperation& CanceledOperation(const SendOperation& operation) {
  return kCanceled[static_cast<size_t>(&operation -
                                       internal::kSendOperations.data())];
}

}  // namespace transport
