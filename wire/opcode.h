// BTH opcodes, and one table of their properties (InfiniBand specification 9.2
// and 9.3, annexes A14 XRC, A17 RoCEv2 and A19 memory placement extensions; DC
// follows captures, see dc.h).

#ifndef WIRE_OPCODE_H_
#define WIRE_OPCODE_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace wire {

// Bits 7..5 of an opcode. 6 and 7 are manufacturer-specific; no opcode of
// theirs is known.
enum class Transport : uint8_t {
  kRc = 0,  // reliable connection
  kUc = 1,  // unreliable connection
  // Dynamically connected (ConnectX cards). The specification has reliable
  // datagrams here, which are not part of RoCEv2.
  kDc = 2,
  kUd = 3,    // unreliable datagram
  kCnp = 4,   // congestion notification (A17)
  kXrc = 5,   // extended reliable connection
  kNone = 7,  // no packet has it
};

// Bits 4..0 of an opcode.
enum class Operation : uint8_t {
  kSendFirst = 0x00,
  kSendMiddle = 0x01,
  kSendLast = 0x02,
  kSendLastImm = 0x03,
  kSendOnly = 0x04,
  kSendOnlyImm = 0x05,
  kWriteFirst = 0x06,
  kWriteMiddle = 0x07,
  kWriteLast = 0x08,
  kWriteLastImm = 0x09,
  kWriteOnly = 0x0a,
  kWriteOnlyImm = 0x0b,
  kReadRequest = 0x0c,
  kReadResponseFirst = 0x0d,
  kReadResponseMiddle = 0x0e,
  kReadResponseLast = 0x0f,
  kReadResponseOnly = 0x10,
  kAcknowledge = 0x11,
  kAtomicAcknowledge = 0x12,
  kCompareSwap = 0x13,
  kFetchAdd = 0x14,
  kReserved15 = 0x15,  // in DC: kConnect
  kConnect = 0x15,
  kSendLastInvalidate = 0x16,
  kSendOnlyInvalidate = 0x17,
  kReserved18 = 0x18,
  kReserved19 = 0x19,
  kReserved1a = 0x1a,
  kReserved1b = 0x1b,
  kFlush = 0x1c,
  kAtomicWrite = 0x1d,
  kReserved1e = 0x1e,
  kReserved1f = 0x1f,
};

// AckReq, and the last of the seven reserved bits beside it, which are sent as
// 0 and ignored on receipt (9.2). Our UC packets set both to request a report.
// AckReq alone does not: rxe of older kernels sets it in every UC message.
inline constexpr uint8_t kAckReqBit = 0x80;
inline constexpr uint8_t kUcReportRequest = kAckReqBit | 0x01;

// The one congestion notification opcode: transport kCnp, operation 1.
inline constexpr uint8_t kOpcodeCnp = 0x81;

constexpr uint8_t MakeOpcode(Transport transport, Operation operation) {
  return static_cast<uint8_t>(static_cast<unsigned>(transport) << 5 |
                              static_cast<unsigned>(operation));
}

// Defined for known opcodes; others may give a value without enumerator.
constexpr Transport TransportOf(uint8_t opcode) {
  return static_cast<Transport>(opcode >> 5);
}
constexpr Operation OperationOf(uint8_t opcode) {
  return static_cast<Operation>(opcode & 0x1f);
}

// The extended headers as a bit set. On the wire they follow BTH in the order
// of the bits, lowest first.
enum ExtendedHeader : uint16_t {
  kDcEth = 1 << 0,
  kDccEth = 1 << 1,
  kXrcEth = 1 << 2,
  kDeth = 1 << 3,
  kFeth = 1 << 4,
  kReth = 1 << 5,
  kAtomicEth = 1 << 6,
  kAeth = 1 << 7,
  kAtomicAckEth = 1 << 8,
  kImmDt = 1 << 9,
  kIeth = 1 << 10,
};

// Sizes in bytes.
inline constexpr size_t kBthSize = 12;
inline constexpr size_t kBthDestQpnOffset = 5;
inline constexpr size_t kBthAckReqOffset = 8;
inline constexpr size_t kBthPsnOffset = 9;  // the last field of BTH
inline constexpr size_t kIcrcSize = 4;
inline constexpr size_t kDcEthSize = 20;
inline constexpr size_t kDccEthSize = 16;
inline constexpr size_t kXrcEthSize = 4;
inline constexpr size_t kDethSize = 8;
inline constexpr size_t kFethSize = 4;
inline constexpr size_t kRethSize = 16;
inline constexpr size_t kAtomicEthSize = 28;
inline constexpr size_t kAethSize = 4;
inline constexpr size_t kAtomicAckEthSize = 8;
inline constexpr size_t kImmDtSize = 4;
inline constexpr size_t kIethSize = 4;
// An ACK or NAK packet; it has no payload.
inline constexpr size_t kAcknowledgeSize = kBthSize + kAethSize + kIcrcSize;
// Bytes behind the AETH of the answer to a connect (DC).
inline constexpr size_t kDcAnswerSize = 8;
// The longest of all: BTH, DCETH, AtomicETH.
inline constexpr size_t kMaxHeaderSize = kBthSize + kDcEthSize + kAtomicEthSize;
// Bytes of zeros after the BTH of a CNP.
inline constexpr size_t kCnpPayloadSize = 16;

// Properties of an opcode. For an unknown opcode all are zero or false, and
// `name` is "UNKNOWN".
struct OpcodeInfo {
  // The specification's name with the transport as prefix, for instance
  // "RC_RDMA_WRITE_FIRST".
  const char* name = "UNKNOWN";
  bool known = false;
  // Reserved opcode of RC or XRC. Not `known`, but the responder must NAK it,
  // so it parses as a request of which only BTH is understood.
  bool reserved = false;
  // The extended headers after BTH: a set of ExtendedHeader bits.
  uint16_t extended = 0;
  // Bytes from the start of BTH to the start of the payload.
  uint8_t header_length = 0;
  // Position in the message. A message of one packet both starts and ends.
  bool starts_message = false;
  bool ends_message = false;
  // Requests consume the requester's PSNs; responses repeat PSNs of requests. A
  // CNP is neither.
  bool is_request = false;
  bool is_response = false;
  // May have bytes between headers and ICRC. Otherwise a well-formed packet has
  // none.
  bool carries_payload = false;
  // First or middle: payload must be exactly one path MTU.
  bool full_mtu_payload = false;
  // Offset of each header, in bytes from BTH; 0 if absent.
  uint8_t dceth_offset = 0;
  uint8_t dcceth_offset = 0;
  uint8_t xrceth_offset = 0;
  uint8_t deth_offset = 0;
  uint8_t feth_offset = 0;
  uint8_t reth_offset = 0;
  uint8_t atomiceth_offset = 0;
  uint8_t aeth_offset = 0;
  uint8_t atomicacketh_offset = 0;
  uint8_t immdt_offset = 0;
  uint8_t ieth_offset = 0;

  constexpr bool Has(ExtendedHeader header) const {
    return (extended & header) != 0;
  }
};

namespace internal {
extern const std::array<OpcodeInfo, 256> kOpcodeTable;
extern const OpcodeInfo kDcAnswer;
}  // namespace internal

inline const OpcodeInfo& GetOpcodeInfo(uint8_t opcode) {
  return internal::kOpcodeTable[opcode];
}

// Of the answer to a connect (DC): its opcode is that of an ACKNOWLEDGE, and
// kDcAnswerSize bytes behind AETH are headers as well.
inline const OpcodeInfo& GetDcAnswerInfo() { return internal::kDcAnswer; }

}  // namespace wire

#endif  // WIRE_OPCODE_H_
