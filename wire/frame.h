// Frames around RoCEv2 packets, as captures hold them: link layer, IP and UDP
// headers taken apart and put together. Nothing here is on the hot path, where
// the kernel deals with these headers.

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
// knows; the numbers are those that pcap_datalink(3PCAP) gives.
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
  kTruncated,  // captured too short to tell, or without a whole UDP header
  kMalformed,  // lengths that contradict each other
  kOther,
};

// The headers of a frame as a plain structure.
struct FrameHeaders {
  // Only of Ethernet frames; locally administered addresses by default.
  std::array<uint8_t, 6> src_mac = {2, 0, 0, 0, 0, 1};
  std::array<uint8_t, 6> dst_mac = {2, 0, 0, 0, 0, 2};
  // The innermost VLAN identifier, 12 bits, of a tagged frame.
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
  // As it stands in the frame. RoCE devices send 0, "not computed".
  uint16_t udp_checksum = 0;

  bool is_rocev2() const { return dst_port == kRoceUdpPort; }
  IcrcFlow icrc_flow() const { return IcrcFlow(src, dst, src_port, dst_port); }
};

// A frame taken apart. `udp_payload` points into the frame.
struct Frame {
  FrameHeaders headers;
  // What was captured of the UDP payload; link-layer padding is left out.
  std::span<const uint8_t> udp_payload;
  // Its size according to the UDP header.
  size_t udp_payload_size = 0;

  bool is_truncated() const { return udp_payload.size() < udp_payload_size; }
};

// Takes `captured` apart. `*out` is meaningful for FrameKind::kUdp only.
FrameKind DecodeFrame(int link_type, std::span<const uint8_t> captured,
                      Frame* out);

// The Ethernet frame with these headers around `udp_payload` (at most 65,507
// bytes), with lengths and the IPv4 header checksum filled in.
std::vector<uint8_t> BuildFrame(const FrameHeaders& headers,
                                std::span<const uint8_t> udp_payload);

// The IP and UDP headers of a frame, without what the link layer puts before
// them. Returns how many bytes it has written to `out`, which has room for
// kMaxIpUdpSize. The addresses are of one family, else they are taken as IPv6.
inline constexpr size_t kMaxIpUdpSize = 48;
size_t EmitIpUdp(const FrameHeaders& headers, size_t udp_payload_size,
                 uint8_t* out);

// What the UDP checksum of such a datagram is, never 0 (RFC 768).
uint16_t UdpChecksum(const FrameHeaders& headers,
                     std::span<const uint8_t> udp_payload);

// The header of kLinuxSll, kCookedSize bytes: says whether this host has sent
// the packet, and pretends no addresses of the link layer.
inline constexpr size_t kCookedSize = 16;
void EmitCooked(bool sent, bool v4, uint8_t* out);

// A whole packet, BTH to ICRC: emits `headers` with its pad count set for
// `payload`, pads with zeros, adds the ICRC. For tests and tools: allocates.
std::vector<uint8_t> BuildPacket(Headers headers,
                                 std::span<const uint8_t> payload,
                                 const IcrcFlow& flow, uint16_t ip_id,
                                 bool df = true);

// A capture on loopback or on an interface with segmentation offload shows what
// was sent with UDP_SEGMENT in one frame: several packets of one size, the last
// maybe shorter, with IDs that count up from the frame's. Returns that size,
// found by the ICRC of the first packet; the size of all of it if it is one
// packet; nothing if neither is right. Tries every size: some 50 us.
std::optional<size_t> FindSegmentSize(const IcrcFlow& flow,
                                      std::span<const uint8_t> udp_payload,
                                      uint16_t ip_id, bool df = true);

}  // namespace wire

#endif  // WIRE_FRAME_H_
