// Sends packets with forged senders to the loopback interface.
#ifndef TESTS_ATTACKS_FORGER_H_
#define TESTS_ATTACKS_FORGER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "wire/address.h"
#include "wire/packet.h"

namespace attacks {

using Bytes = std::vector<uint8_t>;

// An ordinary user's socket, bound to a local address and a port that the
// kernel chooses.
class UserSocket {
 public:
  explicit UserSocket(const wire::IpAddress& address);
  ~UserSocket();
  UserSocket(const UserSocket&) = delete;
  UserSocket& operator=(const UserSocket&) = delete;

  bool ok() const { return fd_ >= 0; }
  const wire::IpAddress& address() const { return address_; }
  uint16_t port() const { return port_; }
  // Sends to port 4791. Returns whether it was sent.
  bool Send(const wire::IpAddress& to, std::span<const uint8_t> bytes);
  // Returns the bytes received since the last call.
  uint64_t Take();

 private:
  int fd_ = -1;
  wire::IpAddress address_;
  uint16_t port_ = 0;
};

// A superuser's socket, which sends from any source (IP_HDRINCL).
class RawSocket {
 public:
  explicit RawSocket(bool ipv6);
  ~RawSocket();
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;

  bool ok() const { return fd_ >= 0; }
  bool Send(const wire::IpAddress& from, uint16_t port,
            const wire::IpAddress& to, std::span<const uint8_t> bytes,
            uint16_t ip_id = 0);

 private:
  const bool ipv6_;
  int fd_ = -1;
};

// Captures all packets to an address on the loopback interface.
class PacketsTo {
 public:
  explicit PacketsTo(const wire::IpAddress& address);
  ~PacketsTo();
  PacketsTo(const PacketsTo&) = delete;
  PacketsTo& operator=(const PacketsTo&) = delete;

  bool ok() const { return fd_ >= 0; }
  // Returns the bytes captured since the last call.
  uint64_t Take();

 private:
  int fd_ = -1;
};

// A packet to port 4791 that was received on the loopback interface.
struct Captured {
  Bytes bytes;  // UDP payload
  uint16_t source_port = 0;
  uint16_t ip_id = 0;
};
// Waits for at least `count` packets, counting each of a burst. Returns fewer
// after 20 s.
std::vector<Captured> Capture(bool ipv6, size_t count);

// Builds a packet from `from` and `port` to `to`, with a correct ICRC.
Bytes BuildPacket(const wire::Headers& headers, size_t payload_bytes,
                  const wire::IpAddress& from, uint16_t port,
                  const wire::IpAddress& to);

// Adds an IPv6 address to the loopback interface. Returns whether it exists.
bool AddLoopbackAddress(const wire::IpAddress& address);

}  // namespace attacks

#endif  // TESTS_ATTACKS_FORGER_H_
