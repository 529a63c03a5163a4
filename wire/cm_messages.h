// CM messages as plain structures (InfiniBand specification 12.6; service ID
// resolution 12.11). Every value can be emitted: bits that exceed a field's
// wire width are dropped. cm.h reads and writes them.
//
// Private data has a fixed length for each message; the wire does not say how
// much of it is used. Times of 5 bits are exponents: see CmTimeNanos.

#ifndef WIRE_CM_MESSAGES_H_
#define WIRE_CM_MESSAGES_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/address.h"

namespace wire {

enum class CmAttribute : uint16_t {
  kReq = 0x10,
  kMra = 0x11,
  kRej = 0x12,
  kRep = 0x13,
  kRtu = 0x14,
  kDreq = 0x15,
  kDrep = 0x16,
  kSidrReq = 0x17,
  kSidrRep = 0x18,
  kLap = 0x19,
  kApr = 0x1a,
};

// 4.096 us times 2 to the power of a 5-bit field (12.7.27 and others).
constexpr int64_t CmTimeNanos(uint8_t exponent) {
  return int64_t{4096} << (exponent & 31);
}

// The transport service type of REQ (12.7.18).
enum class CmService : uint8_t { kRc = 0, kUc = 1, kRd = 2, kExtended = 3 };

// The message that an MRA or REJ responds to (12.7.30, 12.7.33). kOther is LAP
// in an MRA and "no message" in a REJ.
enum class CmAnswered : uint8_t { kReq = 0, kRep = 1, kOther = 2 };

// REJ reasons (12.6.7.2) that are sent or told apart here. CmRejectReasonName
// names all. A trailing comment names the content of the additional
// information.
enum class CmRejectReason : uint16_t {
  kNoQp = 1,
  kNoResources = 3,
  kTimeout = 4,  // CA GUID of the sender
  kUnsupportedRequest = 5,
  kInvalidCommId = 6,
  kInvalidServiceId = 8,
  kInvalidServiceType = 9,
  kStaleConnection = 10,
  kConsumer = 28,
  kDuplicateLocalCommId = 30,
};

// Status of a SIDR_REP (12.11.2).
enum class CmSidrStatus : uint8_t {
  kOk = 0,
  kInvalidServiceId = 1,
  kRejected = 2,
  kNoQp = 3,
};

// Status of an APR (12.8.2).
enum class CmAprStatus : uint8_t {
  kLoaded = 0,
  kInvalidCommId = 1,
  kUnsupported = 2,
};

inline constexpr size_t kCmAdditionalInfoSize = 72;
using CmAdditionalInfo = std::array<uint8_t, kCmAdditionalInfoSize>;

// Primary or alternate path of a REQ, as seen by its sender (12.7.11 to
// 12.7.25).
struct CmPath {
  uint16_t local_lid = 0;
  uint16_t remote_lid = 0;
  IpAddress local_gid;
  IpAddress remote_gid;
  uint32_t flow_label = 0;  // 20 bits
  uint8_t packet_rate = 0;  // 6 bits
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  uint8_t sl = 0;  // 4 bits
  bool subnet_local = false;
  uint8_t local_ack_timeout = 0;  // 5 bits

  bool operator==(const CmPath&) const = default;
};

// The only extended transport of CmService::kExtended.
inline constexpr uint8_t kCmExtendedXrc = 1;

// Request for communication (12.6.5). `vendor_id` (24 bits) and the header's
// attribute modifier belong to enhanced connection establishment.
struct CmReq {
  static constexpr CmAttribute kAttribute = CmAttribute::kReq;
  uint32_t local_comm_id = 0;
  uint32_t vendor_id = 0;  // 24 bits
  uint64_t service_id = 0;
  uint64_t local_ca_guid = 0;
  uint32_t local_qkey = 0;
  uint32_t local_qpn = 0;  // 24 bits
  uint8_t responder_resources = 0;
  uint32_t local_eecn = 0;  // 24 bits
  uint8_t initiator_depth = 0;
  uint32_t remote_eecn = 0;                // 24 bits
  uint8_t remote_cm_response_timeout = 0;  // 5 bits
  CmService service = CmService::kRc;      // 2 bits
  bool end_to_end_flow_control = false;
  uint32_t starting_psn = 0;              // 24 bits
  uint8_t local_cm_response_timeout = 0;  // 5 bits
  uint8_t retry_count = 0;                // 3 bits
  uint16_t pkey = 0;
  uint8_t path_mtu = 0;  // 4 bits, as in ibv_mtu
  bool rdc_exists = false;
  uint8_t rnr_retry_count = 0;  // 3 bits
  uint8_t max_cm_retries = 0;   // 4 bits
  bool srq = false;
  uint8_t extended_transport = 0;  // 3 bits: kCmExtendedXrc
  CmPath primary;
  CmPath alternate;
  std::array<uint8_t, 92> private_data{};

  bool operator==(const CmReq&) const = default;
};

// Message receipt acknowledgement (12.6.6): the reply will be delayed.
struct CmMra {
  static constexpr CmAttribute kAttribute = CmAttribute::kMra;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  CmAnswered answered = CmAnswered::kReq;  // 2 bits
  uint8_t service_timeout = 0;             // 5 bits
  std::array<uint8_t, 222> private_data{};

  bool operator==(const CmMra&) const = default;
};

// Reject (12.6.7).
struct CmRej {
  static constexpr CmAttribute kAttribute = CmAttribute::kRej;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  CmAnswered answered = CmAnswered::kReq;  // 2 bits
  uint8_t info_length = 0;                 // 7 bits, bytes of additional_info
  CmRejectReason reason = CmRejectReason::kConsumer;
  CmAdditionalInfo additional_info{};
  std::array<uint8_t, 148> private_data{};

  bool operator==(const CmRej&) const = default;
};

// Reply to request for communication (12.6.8).
struct CmRep {
  static constexpr CmAttribute kAttribute = CmAttribute::kRep;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  uint32_t local_qkey = 0;
  uint32_t local_qpn = 0;     // 24 bits
  uint32_t local_eecn = 0;    // 24 bits; XRC: number of the target queue pair
  uint32_t starting_psn = 0;  // 24 bits
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t target_ack_delay = 0;   // 5 bits
  uint8_t failover_accepted = 0;  // 2 bits
  bool end_to_end_flow_control = false;
  uint8_t rnr_retry_count = 0;  // 3 bits
  bool srq = false;
  uint64_t local_ca_guid = 0;
  uint32_t vendor_id = 0;  // 24 bits, see CmReq
  std::array<uint8_t, 196> private_data{};

  bool operator==(const CmRep&) const = default;
};

// Ready to use (12.6.9).
struct CmRtu {
  static constexpr CmAttribute kAttribute = CmAttribute::kRtu;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  std::array<uint8_t, 224> private_data{};

  bool operator==(const CmRtu&) const = default;
};

// Request for communication release (12.6.10).
struct CmDreq {
  static constexpr CmAttribute kAttribute = CmAttribute::kDreq;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  uint32_t remote_qpn = 0;  // 24 bits; the receiver's queue pair
  std::array<uint8_t, 220> private_data{};

  bool operator==(const CmDreq&) const = default;
};

// Reply to request for communication release (12.6.11).
struct CmDrep {
  static constexpr CmAttribute kAttribute = CmAttribute::kDrep;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  std::array<uint8_t, 224> private_data{};

  bool operator==(const CmDrep&) const = default;
};

// Alternate path response (12.8.2). We refuse every LAP, so only its
// communication IDs are read and there is no structure for it.
struct CmApr {
  static constexpr CmAttribute kAttribute = CmAttribute::kApr;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  uint8_t info_length = 0;
  CmAprStatus status = CmAprStatus::kLoaded;
  CmAdditionalInfo additional_info{};
  std::array<uint8_t, 148> private_data{};

  bool operator==(const CmApr&) const = default;
};

// Service ID resolution request (12.11.1).
struct CmSidrReq {
  static constexpr CmAttribute kAttribute = CmAttribute::kSidrReq;
  uint32_t request_id = 0;
  uint16_t pkey = 0;
  uint64_t service_id = 0;
  std::array<uint8_t, 216> private_data{};

  bool operator==(const CmSidrReq&) const = default;
};

// Service ID resolution response (12.11.2).
struct CmSidrRep {
  static constexpr CmAttribute kAttribute = CmAttribute::kSidrRep;
  uint32_t request_id = 0;
  CmSidrStatus status = CmSidrStatus::kOk;
  uint8_t info_length = 0;
  uint32_t qpn = 0;  // 24 bits
  uint64_t service_id = 0;
  uint32_t qkey = 0;
  uint32_t vendor_id = 0;  // 24 bits, see CmReq
  CmAdditionalInfo additional_info{};
  std::array<uint8_t, 136> private_data{};

  bool operator==(const CmSidrRep&) const = default;
};

}  // namespace wire

#endif  // WIRE_CM_MESSAGES_H_
