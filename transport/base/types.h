// Basic types of the whole transport layer.
//
// Enumerations that the verbs ABI also defines (states, opcodes, status, access
// bits, attribute masks) have the same values, so the layer above translates
// them by a cast that a static_assert guards.
#ifndef TRANSPORT_BASE_TYPES_H_
#define TRANSPORT_BASE_TYPES_H_

#include <cstdint>
#include <limits>
#include <span>

#include "wire/address.h"
#include "wire/headers.h"

namespace transport {

// Nanoseconds on a monotonic clock of the caller's choice. The transport never
// reads a clock: calls that need the time take it as an argument.
using Time = int64_t;
inline constexpr Time kNever = std::numeric_limits<Time>::max();
inline constexpr Time kMicrosecond = 1000;
inline constexpr Time kMillisecond = 1000 * kMicrosecond;
inline constexpr Time kSecond = 1000 * kMillisecond;

// Identity of a protection domain, unique within one device context.
using PdId = uint32_t;

// Their properties are in transport/qp/qp_type.h.
enum class QpType : uint8_t {
  kRc = 2,
  kUc = 3,
  kUd = 4,
  kRawPacket = 8,
  kXrcInitiator = 9,
  kXrcTarget = 10,
  // Dynamically connected: initiator (DCI) and target (DCT). Not IBV_QPT_*.
  kDci = 11,
  kDct = 12,
};

// IBA vol. 1, 10.3.1: the queue pair state machine.
enum class QpState : uint8_t {
  kReset = 0,
  kInit = 1,
  kRtr = 2,
  kRts = 3,
  kSqd = 4,  // send queue drained
  kSqe = 5,  // send queue error
  kErr = 6,
};

// Access rights of memory and of queue pairs (IBV_ACCESS_*).
enum Access : uint32_t {
  kAccessLocalRead = 0,  // always granted
  kAccessLocalWrite = 1u << 0,
  kAccessRemoteWrite = 1u << 1,
  kAccessRemoteRead = 1u << 2,
  kAccessRemoteAtomic = 1u << 3,
  kAccessMwBind = 1u << 4,
  kAccessZeroBased = 1u << 5,
  kAccessOnDemand = 1u << 6,
  kAccessHugeTlb = 1u << 7,
  kAccessFlushGlobal = 1u << 8,
  kAccessFlushPersistent = 1u << 9,
};

// Operation of a send work request (IBV_WR_*).
enum class SendOpcode : uint8_t {
  kRdmaWrite = 0,
  kRdmaWriteWithImm = 1,
  kSend = 2,
  kSendWithImm = 3,
  kRdmaRead = 4,
  kCompareSwap = 5,
  kFetchAdd = 6,
  kLocalInvalidate = 7,
  kBindMw = 8,
  kSendWithInvalidate = 9,
  kTso = 10,
  kConfigureMkey = 11,  // IBV_WR_DRIVER1
  // mlx5dv_wr_post(3); not IBV_WR_*.
  kMemcpy = 12,
  kNop = 13,
  kFlush = 14,
  kAtomicWrite = 15,
};

// `opcode`, posted as a raw WQE (mlx5dv_wr_raw_wqe): the same, but its
// completion says WcOpcode::kRawWqe.
constexpr SendOpcode AsRawWqe(SendOpcode opcode) {
  return static_cast<SendOpcode>(static_cast<uint8_t>(opcode) | 16);
}

// IBV_SEND_*
enum SendFlag : uint32_t {
  kSendFence = 1u << 0,
  kSendSignaled = 1u << 1,
  kSendSolicited = 1u << 2,
  kSendInline = 1u << 3,
  kSendIpChecksum = 1u << 4,
};

// IBV_WC_*: completion status of a work request (IBA vol. 1, 11.6.2).
enum class WcStatus : uint8_t {
  kSuccess = 0,
  kLocalLengthError = 1,
  kLocalQpOperationError = 2,
  kLocalEecOperationError = 3,
  kLocalProtectionError = 4,
  kFlushed = 5,
  kMwBindError = 6,
  kBadResponse = 7,
  kLocalAccessError = 8,
  kRemoteInvalidRequest = 9,
  kRemoteAccessError = 10,
  kRemoteOperationalError = 11,
  kRetryExceeded = 12,
  kRnrRetryExceeded = 13,
  kRemoteAborted = 16,
  kFatal = 19,
  kResponseTimeout = 20,
  kGeneral = 21,
};

// IBV_WC_SEND and so on: the operation that completed.
enum class WcOpcode : uint8_t {
  kSend = 0,
  kRdmaWrite = 1,
  kRdmaRead = 2,
  kCompareSwap = 3,
  kFetchAdd = 4,
  kBindMw = 5,
  kLocalInvalidate = 6,
  kTso = 7,
  kFlush = 8,
  kAtomicWrite = 9,
  kReceive = 128,
  kReceiveRdmaWithImm = 129,
  kConfigureMkey = 135,  // IBV_WC_DRIVER1, MLX5DV_WC_UMR
  kRawWqe = 136,         // IBV_WC_DRIVER2, MLX5DV_WC_RAW_WQE
  kMemcpy = 137,         // IBV_WC_DRIVER3, MLX5DV_WC_MEMCPY
};

// Header type of a received UD packet, reported as the completion's service
// level, which RoCE does not use (annex A17.4.5.1). Values are those of mlx5,
// which programs such as UCX rely on: bit 3 is UDP, bits 0 to 2 are the network
// layer header.
enum class RoceHeader : uint8_t { kIpv6 = 0x9, kIpv4 = 0xa };

// IBV_WC_* flags.
enum WcFlag : uint32_t {
  kWcGrh = 1u << 0,
  kWcWithImm = 1u << 1,
  kWcIpChecksumOk = 1u << 2,
  kWcWithInvalidate = 1u << 3,
};

// A local buffer of a work request (struct ibv_sge): `length` bytes at virtual
// address `addr` within the region that `lkey` names.
struct Sge {
  uint64_t addr = 0;
  uint32_t length = 0;
  uint32_t lkey = 0;
};
constexpr uint64_t TotalLength(std::span<const Sge> sges) {  // bytes
  uint64_t length = 0;
  for (const Sge& sge : sges) length += sge.length;
  return length;
}

// Translated address of a peer (NAT): its packets come from there, and packets
// to it go there. Port 0: not translated; packets come from the peer's own
// address and go to its port 4791.
struct Via {
  wire::IpAddress address;
  uint16_t port = 0;

  bool operator==(const Via&) const = default;
};

// The peer's address: the transport's view of an address handle. `gid_index`,
// `service_level` and `dlid` are only stored for ibv_query_qp.
struct AddressVector {
  wire::IpAddress source;
  wire::IpAddress destination;
  // UDP source port on the wire, chosen by the layer above.
  uint16_t source_port = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = wire::kDefaultHopLimit;
  uint32_t flow_label = 0;
  uint8_t gid_index = 0;
  uint8_t service_level = 0;
  uint16_t dlid = 0;

  // The hop limit of its packets.
  uint8_t hop_limit_on_wire() const {
    return hop_limit != 0 ? hop_limit : wire::kDefaultHopLimit;
  }

  bool operator==(const AddressVector&) const = default;
};

}  // namespace transport

#endif  // TRANSPORT_BASE_TYPES_H_
