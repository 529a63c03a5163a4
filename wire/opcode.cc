#include "wire/opcode.h"

#include <initializer_list>

namespace wire {
namespace {

// Properties of an operation that do not depend on the transport.
struct OperationSpec {
  Operation operation;
  const char* name;
  uint16_t extended;
  uint8_t flags;
};

// Position in the message. No position flag: a MIDDLE packet.
constexpr uint8_t kFirst = 1 << 0;
constexpr uint8_t kLast = 1 << 1;
constexpr uint8_t kOnly = kFirst | kLast;
constexpr uint8_t kRequest = 1 << 2;
constexpr uint8_t kResponse = 1 << 3;
constexpr uint8_t kPayload = 1 << 4;
constexpr uint8_t kFullMtu = 1 << 5;
constexpr uint8_t kReserved = 1 << 6;
constexpr uint8_t kData = kRequest | kPayload;
constexpr uint8_t kReadData = kResponse | kPayload;
constexpr uint8_t kUnknown = kData | kOnly | kReserved;

constexpr OperationSpec kOperations[] = {
    {Operation::kSendFirst, "SEND_FIRST", 0, kData | kFirst | kFullMtu},
    {Operation::kSendMiddle, "SEND_MIDDLE", 0, kData | kFullMtu},
    {Operation::kSendLast, "SEND_LAST", 0, kData | kLast},
    {Operation::kSendLastImm, "SEND_LAST_WITH_IMMEDIATE", kImmDt,
     kData | kLast},
    {Operation::kSendOnly, "SEND_ONLY", 0, kData | kOnly},
    {Operation::kSendOnlyImm, "SEND_ONLY_WITH_IMMEDIATE", kImmDt,
     kData | kOnly},
    {Operation::kWriteFirst, "RDMA_WRITE_FIRST", kReth,
     kData | kFirst | kFullMtu},
    {Operation::kWriteMiddle, "RDMA_WRITE_MIDDLE", 0, kData | kFullMtu},
    {Operation::kWriteLast, "RDMA_WRITE_LAST", 0, kData | kLast},
    {Operation::kWriteLastImm, "RDMA_WRITE_LAST_WITH_IMMEDIATE", kImmDt,
     kData | kLast},
    {Operation::kWriteOnly, "RDMA_WRITE_ONLY", kReth, kData | kOnly},
    {Operation::kWriteOnlyImm, "RDMA_WRITE_ONLY_WITH_IMMEDIATE", kReth | kImmDt,
     kData | kOnly},
    {Operation::kReadRequest, "RDMA_READ_REQUEST", kReth, kRequest | kOnly},
    {Operation::kReadResponseFirst, "RDMA_READ_RESPONSE_FIRST", kAeth,
     kReadData | kFirst | kFullMtu},
    {Operation::kReadResponseMiddle, "RDMA_READ_RESPONSE_MIDDLE", 0,
     kReadData | kFullMtu},
    {Operation::kReadResponseLast, "RDMA_READ_RESPONSE_LAST", kAeth,
     kReadData | kLast},
    {Operation::kReadResponseOnly, "RDMA_READ_RESPONSE_ONLY", kAeth,
     kReadData | kOnly},
    {Operation::kAcknowledge, "ACKNOWLEDGE", kAeth, kResponse | kOnly},
    {Operation::kAtomicAcknowledge, "ATOMIC_ACKNOWLEDGE", kAeth | kAtomicAckEth,
     kResponse | kOnly},
    {Operation::kCompareSwap, "COMPARE_SWAP", kAtomicEth, kRequest | kOnly},
    {Operation::kFetchAdd, "FETCH_ADD", kAtomicEth, kRequest | kOnly},
    {Operation::kSendLastInvalidate, "SEND_LAST_WITH_INVALIDATE", kIeth,
     kData | kLast},
    {Operation::kSendOnlyInvalidate, "SEND_ONLY_WITH_INVALIDATE", kIeth,
     kData | kOnly},
    {Operation::kFlush, "FLUSH", kFeth | kReth, kRequest | kOnly},
    {Operation::kAtomicWrite, "ATOMIC_WRITE", kReth, kData | kOnly},
    {Operation::kReserved15, "RESERVED_15", 0, kUnknown},
    {Operation::kReserved18, "RESERVED_18", 0, kUnknown},
    {Operation::kReserved19, "RESERVED_19", 0, kUnknown},
    {Operation::kReserved1a, "RESERVED_1A", 0, kUnknown},
    {Operation::kReserved1b, "RESERVED_1B", 0, kUnknown},
    {Operation::kReserved1e, "RESERVED_1E", 0, kUnknown},
    {Operation::kReserved1f, "RESERVED_1F", 0, kUnknown},
};

constexpr bool Supports(Transport transport, Operation operation) {
  switch (transport) {
    case Transport::kRc:
    case Transport::kXrc:
      return true;
    case Transport::kUc:
      // SEND with invalidate over UC: not in the specification, but in the
      // verbs manual page. ACKNOWLEDGE over UC: our extension
      // (kUcReportRequest).
      return operation <= Operation::kWriteOnlyImm ||
             operation == Operation::kAcknowledge ||
             operation == Operation::kSendLastInvalidate ||
             operation == Operation::kSendOnlyInvalidate;
    case Transport::kUd:
      return operation == Operation::kSendOnly ||
             operation == Operation::kSendOnlyImm;
    case Transport::kDc:  // and kConnect
      return operation <= Operation::kFetchAdd ||
             operation == Operation::kSendLastInvalidate ||
             operation == Operation::kSendOnlyInvalidate;
    case Transport::kCnp:
    case Transport::kNone:
      return false;
  }
  return false;
}

using NameBuffer = std::array<char, 48>;

struct Tables {
  std::array<NameBuffer, 256> names{};
  std::array<OpcodeInfo, 256> infos{};
};

constexpr NameBuffer Join(const char* prefix, const char* name) {
  NameBuffer buffer{};
  size_t at = 0;
  for (const char* part : {prefix, "_", name}) {
    while (*part != '\0') buffer[at++] = *part++;
  }
  return buffer;
}

// Assigns each header's offset, in wire order.
constexpr void LayOut(OpcodeInfo* info) {
  struct Part {
    ExtendedHeader header;
    uint8_t OpcodeInfo::*offset;
    size_t size;
  };
  constexpr Part kWireOrder[] = {
      {kDcEth, &OpcodeInfo::dceth_offset, kDcEthSize},
      {kDccEth, &OpcodeInfo::dcceth_offset, kDccEthSize},
      {kXrcEth, &OpcodeInfo::xrceth_offset, kXrcEthSize},
      {kDeth, &OpcodeInfo::deth_offset, kDethSize},
      {kFeth, &OpcodeInfo::feth_offset, kFethSize},
      {kReth, &OpcodeInfo::reth_offset, kRethSize},
      {kAtomicEth, &OpcodeInfo::atomiceth_offset, kAtomicEthSize},
      {kAeth, &OpcodeInfo::aeth_offset, kAethSize},
      {kAtomicAckEth, &OpcodeInfo::atomicacketh_offset, kAtomicAckEthSize},
      {kImmDt, &OpcodeInfo::immdt_offset, kImmDtSize},
      {kIeth, &OpcodeInfo::ieth_offset, kIethSize},
  };
  size_t at = kBthSize;
  for (const Part& part : kWireOrder) {
    if (!info->Has(part.header)) continue;
    info->*part.offset = static_cast<uint8_t>(at);
    at += part.size;
  }
  info->header_length = static_cast<uint8_t>(at);
}

constexpr OpcodeInfo MakeInfo(Transport transport, const OperationSpec& spec) {
  OpcodeInfo info;
  info.reserved = (spec.flags & kReserved) != 0;
  info.known = !info.reserved;
  info.extended = spec.extended;
  if (transport == Transport::kUd) info.extended |= kDeth;
  if (transport == Transport::kDc) info.extended |= kDcEth;
  if (transport == Transport::kXrc && (spec.flags & kRequest) != 0 &&
      !info.reserved) {
    info.extended |= kXrcEth;
  }
  info.starts_message = (spec.flags & kFirst) != 0;
  info.ends_message = (spec.flags & kLast) != 0;
  info.is_request = (spec.flags & kRequest) != 0;
  info.is_response = (spec.flags & kResponse) != 0;
  info.carries_payload = (spec.flags & kPayload) != 0;
  info.full_mtu_payload = (spec.flags & kFullMtu) != 0;
  LayOut(&info);
  return info;
}

constexpr OperationSpec kDcConnect = {Operation::kConnect, "CONNECT", kDccEth,
                                      kRequest | kOnly};

constexpr Tables MakeTables() {
  struct Family {
    Transport transport;
    const char* name;
  };
  constexpr Family kFamilies[] = {
      {Transport::kRc, "RC"}, {Transport::kUc, "UC"},   {Transport::kDc, "DC"},
      {Transport::kUd, "UD"}, {Transport::kXrc, "XRC"},
  };
  Tables tables;
  for (const Family& family : kFamilies) {
    for (const OperationSpec& spec : kOperations) {
      if (!Supports(family.transport, spec.operation)) continue;
      const uint8_t opcode = MakeOpcode(family.transport, spec.operation);
      tables.names[opcode] = Join(family.name, spec.name);
      tables.infos[opcode] = MakeInfo(family.transport, spec);
    }
  }
  constexpr uint8_t kConnect = MakeOpcode(Transport::kDc, Operation::kConnect);
  tables.names[kConnect] = Join("DC", kDcConnect.name);
  tables.infos[kConnect] = MakeInfo(Transport::kDc, kDcConnect);
  OpcodeInfo& cnp = tables.infos[kOpcodeCnp];
  cnp.name = "CNP";
  cnp.known = true;
  cnp.starts_message = true;
  cnp.ends_message = true;
  cnp.carries_payload = true;
  LayOut(&cnp);
  return tables;
}

constexpr Tables kTables = MakeTables();

constexpr std::array<OpcodeInfo, 256> NamedInfos() {
  std::array<OpcodeInfo, 256> infos = kTables.infos;
  for (size_t i = 0; i < infos.size(); ++i) {
    if (kTables.names[i][0] != '\0') infos[i].name = kTables.names[i].data();
  }
  return infos;
}

constexpr OpcodeInfo MakeDcAnswer() {
  OpcodeInfo info =
      kTables.infos[MakeOpcode(Transport::kDc, Operation::kAcknowledge)];
  info.name = "DC_CONNECT_ANSWER";
  info.header_length += kDcAnswerSize;
  return info;
}

}  // namespace

namespace internal {
constinit const std::array<OpcodeInfo, 256> kOpcodeTable = NamedInfos();
constinit const OpcodeInfo kDcAnswer = MakeDcAnswer();
}  // namespace internal

}  // namespace wire
