// RDMA CM addressing of IP endpoints in CM messages (annex A11, RDMA IP CM
// service): service IDs made of port space and port, and the header with IP
// addresses at the start of the private data of REQ and SIDR_REQ.

#ifndef WIRE_RDMA_CM_H_
#define WIRE_RDMA_CM_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/address.h"

namespace wire {

// The byte above the port in a service ID: an IP protocol number for TCP and
// UDP, the low byte of rdma_port_space for the others.
enum class RdmaPortSpace : uint8_t {
  kTcp = 0x06,
  kUdp = 0x11,
};

// 0x0000000001pppppp: the port space, then the port (A11.2).
constexpr uint64_t RdmaServiceId(uint8_t port_space, uint16_t port) {
  return uint64_t{1} << 24 | uint64_t{port_space} << 16 | port;
}
constexpr uint64_t RdmaServiceId(RdmaPortSpace port_space, uint16_t port) {
  return RdmaServiceId(static_cast<uint8_t>(port_space), port);
}

struct RdmaService {
  uint8_t port_space = 0;
  uint16_t port = 0;

  bool operator==(const RdmaService&) const = default;
};
// Absent if the service ID does not belong to the RDMA IP CM service.
constexpr std::optional<RdmaService> ParseRdmaServiceId(uint64_t service_id) {
  if (service_id >> 24 != 1) return std::nullopt;
  return RdmaService{.port_space = static_cast<uint8_t>(service_id >> 16),
                     .port = static_cast<uint16_t>(service_id)};
}

// The Q_Key of queue pairs in port space UDP (RDMA_UDP_QKEY).
inline constexpr uint32_t kRdmaUdpQkey = 0x01234567;

inline constexpr size_t kRdmaCmHeaderSize = 36;

// The header of the private data (A11.3). An IPv4 address is in the last four
// of 16 bytes, after zeros.
struct RdmaCmHeader {
  uint8_t major_version = 0;  // 4 bits
  uint8_t minor_version = 0;  // 4 bits
  uint8_t ip_version = 4;     // 4 bits: 4 or 6
  uint16_t source_port = 0;
  // Mapped into IPv6 when `ip_version` is 4.
  IpAddress source;
  IpAddress destination;

  bool operator==(const RdmaCmHeader&) const = default;
};

// Reads the start of the private data. Absent if it is too short, or if the
// major version or IP version is unknown.
std::optional<RdmaCmHeader> ParseRdmaCmHeader(
    std::span<const uint8_t> private_data);

// Writes kRdmaCmHeaderSize bytes.
void EmitRdmaCmHeader(const RdmaCmHeader& header, uint8_t* out);

}  // namespace wire

#endif  // WIRE_RDMA_CM_H_
