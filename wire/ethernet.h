// Ethernet frames with IP, TCP and UDP headers, as raw packet queue pairs send
// and receive them: parsing, checksums (RFC 1071), TCP and UDP segmentation.
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

// Where the headers of a frame are. Offsets are in bytes from the frame's start
// and undefined for a layer that is kOther. Every header that is set is
// complete.
struct EthernetFrame {
  std::span<const uint8_t> bytes;
  uint16_t ether_type = 0;  // after VLAN tags
  bool has_vlan = false;
  uint16_t vlan_tag = 0;  // the outermost: priority, CFI, identifier
  Layer3 layer3 = Layer3::kOther;
  Layer4 layer4 = Layer4::kOther;
  uint8_t protocol = 0;      // of the IP header, after IPv6 extension headers
  bool is_fragment = false;  // IP fragment: no layer 4
  size_t ip = 0;             // offset of the IP header
  size_t transport = 0;      // of the TCP or UDP header
  size_t end = 0;            // end of the IP datagram; padding follows

  // Includes broadcast.
  bool is_multicast() const { return (bytes[0] & 1) != 0; }
  const uint8_t* ip_header() const { return bytes.data() + ip; }
  const uint8_t* transport_header() const { return bytes.data() + transport; }
};

// Parses `bytes` as far as possible. False: shorter than an Ethernet header.
bool ParseEthernet(std::span<const uint8_t> bytes, EthernetFrame* out);
// Parses the IP datagram at `offset` of `bytes`. `ether_type` gives the IP
// version. False: not a parsable IP datagram.
bool ParseIp(std::span<const uint8_t> bytes, size_t offset, uint16_t ether_type,
             EthernetFrame* out);

// True if the IPv4 header checksum is good and, for a complete TCP or UDP
// datagram, that checksum too (a UDP checksum of 0 is good over IPv4). False
// for frames that are not IPv4.
bool Ipv4ChecksumsAreGood(const EthernetFrame& frame);

// Computes all checksums of `frame`: IPv4 header, TCP, UDP (over IPv6 too).
// `bytes` is `frame.bytes`, writable.
void FillChecksums(const EthernetFrame& frame, uint8_t* bytes);

// True if `header`, parsed as `frame`, ends exactly with a TCP header. Segments
// can be made of a payload that follows it.
bool IsTcpHeader(const EthernetFrame& frame, std::span<const uint8_t> header);
// Turns `bytes` (a copy of `frame`'s header and one segment's payload) into a
// TCP segment: sets IP length, IPv4 identification, sequence number, flags and
// checksums. `offset`: position of this payload in the whole payload, bytes.
void FinishTcpSegment(const EthernetFrame& frame, std::span<uint8_t> bytes,
                      uint32_t offset, uint16_t index, bool is_last);
// The same for UDP: each segment is a datagram.
void FinishUdpSegment(const EthernetFrame& frame, std::span<uint8_t> bytes,
                      uint16_t index);

}  // namespace wire

#endif  // WIRE_ETHERNET_H_
