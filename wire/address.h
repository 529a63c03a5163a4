// A RoCEv2 port's address: IPv6, or IPv4 mapped into IPv6 (::ffff:a.b.c.d). The
// 16 bytes are also the port's GID (A17).

#ifndef WIRE_ADDRESS_H_
#define WIRE_ADDRESS_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace wire {

struct IpAddress {
  std::array<uint8_t, 16> bytes{};

  // From an IPv4 address in network byte order (in_addr::s_addr).
  static IpAddress FromV4(uint32_t address_be);
  // From the 16 bytes of a GID or in6_addr.
  static IpAddress FromGid(const uint8_t gid[16]);
  // From "192.0.2.1", "::1" or "::ffff:192.0.2.1". No scope ("%eth0").
  static std::optional<IpAddress> Parse(const std::string& text);

  // An IPv4-mapped address: packets have IPv4 headers.
  bool is_v4() const {
    static constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0,    0,
                                            0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(bytes.data(), kPrefix, sizeof(kPrefix)) == 0;
  }
  // The IPv4 address in network byte order. Requires is_v4().
  uint32_t v4_be() const {
    uint32_t v;
    std::memcpy(&v, bytes.data() + 12, sizeof(v));
    return v;
  }
  bool is_multicast() const {
    return is_v4() ? (bytes[12] & 0xf0) == 0xe0 : bytes[0] == 0xff;
  }
  bool is_unspecified() const {
    return *this == IpAddress{} || (is_v4() && v4_be() == 0);
  }

  // "192.0.2.1" or "2001:db8::1".
  std::string ToString() const;

  auto operator<=>(const IpAddress&) const = default;
  // Used for every packet: compares two words instead of calling memcmp.
  bool operator==(const IpAddress& other) const {
    uint64_t a[2];
    uint64_t b[2];
    std::memcpy(a, bytes.data(), sizeof(a));
    std::memcpy(b, other.bytes.data(), sizeof(b));
    return ((a[0] ^ b[0]) | (a[1] ^ b[1])) == 0;
  }

  template <typename H>
  friend H AbslHashValue(H h, const IpAddress& a) {
    return H::combine_contiguous(std::move(h), a.bytes.data(), a.bytes.size());
  }
};

}  // namespace wire

// Differs from process to process, so that peers cannot choose addresses that
// collide.
template <>
struct std::hash<wire::IpAddress> {
  size_t operator()(const wire::IpAddress& address) const;
};

#endif  // WIRE_ADDRESS_H_
