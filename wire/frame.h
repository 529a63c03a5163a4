// Parses and builds frames around RoCEv2 packets for captures: link layer, IP
// and UDP headers. Not on the hot path, where the kernel handles these headers.

#ifndef WIRE_FRAME_H_
#define WIRE_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "wire/address.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace wire {

// The link-layer header types (tcpdump.org/linktypes.html) that DecodeFrame
// knows, numbered as pcap_datalink(3PCAP) returns them.
enum class LinkType : int {
  kNull = 0,  // BSD loopback
  kEthernet = 1,
  kRaw = 12,  // IPv4 or IPv6 without a link-layer header
  kRawOpenBsd = 14,
  kRawInFiles = 101,
  kLoop = 108,  // OpenBSD loopback
  kLinuxSll = 113,
  kIpv4 = 228,
  kIpv6 = 229,
  kLinuxSll2 = 276,
};
bool IsKnownLinkType(int link_type);

// What a frame is.
enum class FrameKind : uint8_t {
  kUdp,        // over IPv4 or IPv6, not a fragment
  kRoceV1,     // Ethertype 0x8915
  kFragment,   // of an IP datagram
  kTruncated,  // too short to tell, or UDP header incomplete
  kMalformed,  // contradictory lengths
  kOther,
};

// The headers of a frame as a plain structure.
struct FrameHeaders {
  // Ethernet frames only; locally administered addresses by default.
  std::array<uint8_t, 6> src_mac = {2, 0, 0, 0, 0, 1};
  std::array<uint8_t, 6> dst_mac = {2, 0, 0, 0, 0, 2};
  // The innermost VLAN identifier, 12 bits, if the frame is tagged.
  std::optional<uint16_t> vlan;
  IpAddress src;
  IpAddress dst;
  uint16_t src_port = 0;
  uint16_t dst_port = kRoceUdpPort;
  uint8_t tos = 0;          // or traffic class
  uint8_t ttl = 64;         // or hop limit
  uint16_t ip_id = 0;       // IPv4 only
  bool df = true;           // IPv4 only
  uint32_t flow_label = 0;  // IPv6 only, 20 bits
  // As found in the frame. RoCE devices send 0, "not computed".
  uint16_t udp_checksum = 0;

  bool is_rocev2() const { return dst_port == kRoceUdpPort; }
  IcrcFlow icrc_flow() const { return IcrcFlow(src, dst, src_port, dst_port); }
};

// A parsed frame. `udp_payload` points into the frame.
struct Frame {
  FrameHeaders headers;
  // The captured part of the UDP payload, without link-layer padding.
  std::span<const uint8_t> udp_payload;
  // Its size according to the UDP header.
  size_t udp_payload_size = 0;

  bool is_truncated() const { return udp_payload.size() < udp_payload_size; }
};

// Parses `captured`. `*out` is defined for FrameKind::kUdp only.
FrameKind DecodeFrame(int link_type, std::span<const uint8_t> captured,
                      Frame* out);

// The Ethernet frame with these headers around `udp_payload` (at most 65,507
// bytes), with lengths and the IPv4 header checksum filled in.
std::vector<uint8_t> BuildFrame(const FrameHeaders& headers,
                                std::span<const uint8_t> udp_payload);

// Writes the IP and UDP headers, without link layer, and returns their size in
// bytes. `out` holds kMaxIpUdpSize. Addresses of different families give IPv6.
inline constexpr size_t kMaxIpUdpSize = 48;
size_t EmitIpUdp(const FrameHeaders& headers, size_t udp_payload_size,
                 uint8_t* out);

// The UDP checksum of such a datagram, never 0 (RFC 768).
uint16_t UdpChecksum(const FrameHeaders& headers,
                     std::span<const uint8_t> udp_payload);

// The header of kLinuxSll, kCookedSize bytes. It says whether this host sent
// the packet; its link-layer address is empty.
inline constexpr size_t kCookedSize = 16;
void EmitCooked(bool sent, bool v4, uint8_t* out);

// Builds a whole packet, BTH to ICRC: sets the pad count for `payload`, pads
// with zeros, adds the ICRC. Allocates: for tests and tools.
std::vector<uint8_t> BuildPacket(Headers headers,
                                 std::span<const uint8_t> payload,
                                 const IcrcFlow& flow, uint16_t ip_id,
                                 bool df = true);
// The same for the bytes of headers, whose pad count is right.
std::vector<uint8_t> BuildPacket(std::span<const uint8_t> headers,
                                 std::span<const uint8_t> payload,
                                 const IcrcFlow& flow, uint16_t ip_id,
                                 bool df = true);

// Finds the packet size in a frame of several packets. A capture on loopback or
// with segmentation offload shows everything sent by one UDP_SEGMENT call as
// one frame: packets of one size, the last may be shorter, IDs counting up from
// the frame's. Returns the size at which the first packet's ICRC is right (all
// of `udp_payload` if it is one packet), nothing if there is none. Tries every
// size: some 50 us.
std::optional<size_t> FindSegmentSize(const IcrcFlow& flow,
                                      std::span<const uint8_t> udp_payload,
                                      uint16_t ip_id, bool df = true);

}  // namespace wire

#endif  // WIRE_FRAME_H_
