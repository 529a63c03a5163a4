// Ethernet frames with IP, TCP and UDP headers, as raw packet queue pairs send
// and receive them: taken apart, checksums (RFC 1071), segmentation of TCP.
#ifndef WIRE_ETHERNET_H_
#define WIRE_ETHERNET_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace wire {

inline constexpr size_t kEthernetHeaderSize = 14;
inline constexpr size_t kVlanTagSize = 4;

enum class Layer3 : uint8_t { kOther, kIpv4, kIpv6 };
enum class Layer4 : uint8_t { kOther, kTcp, kUdp };

// Where the headers of a frame are. Offsets are in bytes from its beginning;
// those of layers that are kOther mean nothing. Every header that is named is
// wholly there.
struct EthernetFrame {
  std::span<const uint8_t> bytes;
  uint16_t ether_type = 0;  // behind VLAN tags
  bool has_vlan = false;
  uint16_t vlan_tag = 0;  // the outermost: priority, CFI, identifier
  Layer3 layer3 = Layer3::kOther;
  Layer4 layer4 = Layer4::kOther;
  uint8_t protocol = 0;  // the IP header's, behind extension headers of IPv6
  bool is_fragment = false;  // of IPv4 or IPv6: without layer 4
  size_t ip = 0;             // offset of the IP header
  size_t transport = 0;      // of the TCP or UDP header
  size_t end = 0;            // of the IP datagram: padding follows

  bool is_multicast() const { return (bytes[0] & 1) != 0; }  // or broadcast
  const uint8_t* ip_header() const { return bytes.data() + ip; }
  const uint8_t* transport_header() const { return bytes.data() + transport; }
};

// Takes `bytes` apart as far as it can. False: shorter than an Ethernet header.
bool ParseEthernet(std::span<const uint8_t> bytes, EthernetFrame* out);
// The same for an IP datagram at `offset` of `bytes`, whatever is before it.
// `ether_type` says which IP. False: not one that can be told.
bool ParseIp(std::span<const uint8_t> bytes, size_t offset, uint16_t ether_type,
             EthernetFrame* out);

// Whether the IPv4 header's checksum is right and, if TCP or UDP follows whole,
// that one, too (a UDP checksum of 0 over IPv4 is). False for what is not IPv4.
bool Ipv4ChecksumsAreGood(const EthernetFrame& frame);

// Computes those that `frame` has: of the IPv4 header, of TCP, of UDP (over
// IPv6 as well). `bytes` is `frame.bytes`, writable.
void FillChecksums(const EthernetFrame& frame, uint8_t* bytes);

// Whether segments can be made of what follows `header`, which is `frame`'s
// alone: TCP at its end.
bool IsTcpHeader(const EthernetFrame& frame, std::span<const uint8_t> header);
// Makes `bytes`, a copy of the header that `frame` begins with and then a
// segment's payload, that segment: the IP length, the IPv4 identification,
// sequence number, flags and checksums. `offset`: of the payload in the whole,
// bytes.
void FinishTcpSegment(const EthernetFrame& frame, std::span<uint8_t> bytes,
                      uint32_t offset, uint16_t index, bool is_last);
// The same of UDP, whose segments are datagrams.
void FinishUdpSegment(const EthernetFrame& frame, std::span<uint8_t> bytes,
                      uint16_t index);

}  // namespace wire

#endif  // WIRE_ETHERNET_H_
