#include "verbs_api/rsockets/datagram_protocol.h"

#include <algorithm>
#include <cstring>

#include "wire/bytes.h"

namespace rsockets {
namespace {

constexpr uint32_t kTag = 0x55555555;
constexpr size_t kUdpFixed = 12;    // before the address
constexpr size_t kSourceFixed = 4;  // before address or flow information
constexpr size_t kFlowInfo = 4;
constexpr uint8_t kIpv4 = 4;
constexpr uint8_t kIpv6 = 6;

size_t AddressSize(uint8_t version) { return version == kIpv4 ? 4 : 16; }
uint8_t VersionOf(const DatagramAddress& address) {
  return address.family == AF_INET ? kIpv4 : kIpv6;
}

}  // namespace

DatagramAddress DatagramAddress::Of(const sockaddr* address) {
  DatagramAddress out;
  out.family = address->sa_family;
  if (address->sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, address, sizeof(in));
    out.port = ntohs(in.sin_port);
    std::memcpy(out.bytes.data(), &in.sin_addr, 4);
  } else if (address->sa_family == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, address, sizeof(in));
    out.port = ntohs(in.sin6_port);
    out.flow_info = in.sin6_flowinfo;
    std::memcpy(out.bytes.data(), &in.sin6_addr, 16);
    // For other addresses the kernel ignores the scope.
    if (out.is_link_local()) out.scope_id = in.sin6_scope_id;
  }
  return out;
}

socklen_t DatagramAddress::Fill(sockaddr_storage* out) const {
  std::memset(out, 0, sizeof(*out));
  if (family == AF_INET) {
    auto& in = *reinterpret_cast<sockaddr_in*>(out);
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, bytes.data(), 4);
    return sizeof(in);
  }
  auto& in = *reinterpret_cast<sockaddr_in6*>(out);
  in.sin6_family = AF_INET6;
  in.sin6_port = htons(port);
  in.sin6_flowinfo = flow_info;
  in.sin6_scope_id = scope_id;
  std::memcpy(&in.sin6_addr, bytes.data(), 16);
  return sizeof(in);
}

std::array<uint8_t, 16> DatagramAddress::Gid() const {
  if (family == AF_INET6) return bytes;
  std::array<uint8_t, 16> gid = {};
  gid[10] = gid[11] = 0xff;
  std::copy_n(bytes.begin(), 4, gid.begin() + 12);
  return gid;
}

bool DatagramAddress::is_wildcard() const {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](uint8_t byte) { return byte == 0; });
}

bool DatagramAddress::is_link_local() const {
  if (family != AF_INET6) return false;
  return (bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80) ||
         (bytes[0] == 0xff && (bytes[1] & 0x0f) <= 2);  // multicast
}

HeaderBytes Encode(const UdpHeader& header) {
  HeaderBytes out = {};
  const uint8_t version = VersionOf(header.address);
  out.length = kUdpFixed + AddressSize(version);
  wire::StoreBe32(&out.bytes[0], kTag);
  out.bytes[4] = version;
  out.bytes[5] = static_cast<uint8_t>(header.op);
  out.bytes[6] = static_cast<uint8_t>(out.length);
  wire::StoreBe32(&out.bytes[8], header.qpn & 0xffffff);
  std::memcpy(&out.bytes[kUdpFixed], header.address.bytes.data(),
              AddressSize(version));
  // As in rdma-core: the union of addresses starts at byte 12, so an IPv6
  // header is 28 bytes long.
  return out;
}

std::optional<UdpHeader> ParseUdpHeader(std::span<const uint8_t> packet,
                                        size_t* length) {
  if (packet.size() < kUdpFixed || wire::LoadBe32(&packet[0]) != kTag) {
    return std::nullopt;
  }
  const uint8_t version = packet[4];
  if (version != kIpv4 && version != kIpv6) return std::nullopt;
  *length = kUdpFixed + AddressSize(version);
  if (packet[6] != *length || packet.size() < *length) return std::nullopt;
  UdpHeader header = {};
  header.op = static_cast<UdpOp>(packet[5]);
  if (header.op != UdpOp::kData && header.op != UdpOp::kControl) {
    return std::nullopt;
  }
  header.qpn = wire::LoadBe32(&packet[8]) & 0xffffff;
  header.address.family = version == kIpv4 ? AF_INET : AF_INET6;
  std::memcpy(header.address.bytes.data(), &packet[kUdpFixed],
              AddressSize(version));
  return header;
}

HeaderBytes EncodeSource(const DatagramAddress& source) {
  HeaderBytes out = {};
  const uint8_t version = VersionOf(source);
  const size_t before = kSourceFixed + (version == kIpv6 ? kFlowInfo : 0);
  out.length = before + AddressSize(version);
  out.bytes[0] = version;
  out.bytes[1] = static_cast<uint8_t>(out.length);
  wire::StoreBe16(&out.bytes[2], source.port);
  if (version == kIpv6) {
    std::memcpy(&out.bytes[kSourceFixed], &source.flow_info, kFlowInfo);
  }
  std::memcpy(&out.bytes[before], source.bytes.data(), AddressSize(version));
  return out;
}

std::optional<DatagramAddress> ParseSource(std::span<const uint8_t> packet,
                                           size_t* length) {
  if (packet.size() < kSourceFixed) return std::nullopt;
  const uint8_t version = packet[0];
  if (version != kIpv4 && version != kIpv6) return std::nullopt;
  const size_t before = kSourceFixed + (version == kIpv6 ? kFlowInfo : 0);
  *length = before + AddressSize(version);
  if (packet[1] != *length || packet.size() < *length) return std::nullopt;
  DatagramAddress source;
  source.family = version == kIpv4 ? AF_INET : AF_INET6;
  source.port = wire::LoadBe16(&packet[2]);
  if (version == kIpv6) {
    std::memcpy(&source.flow_info, &packet[kSourceFixed], kFlowInfo);
  }
  std::memcpy(source.bytes.data(), &packet[before], AddressSize(version));
  return source;
}

}  // namespace rsockets
