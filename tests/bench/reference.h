// What the reference programs share: addresses, sockets, network namespaces,
// memory, the clock, and figures on their way out.
#ifndef TESTS_BENCH_REFERENCE_H_
#define TESTS_BENCH_REFERENCE_H_

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace reference {

// Seconds on the monotonic clock.
double Now();

// Ends the program with one line about errno.
[[noreturn]] void Die(const char* what);

union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

struct Address {
  SocketAddress at{};
  socklen_t length = 0;

  bool is_v6() const { return at.any.sa_family == AF_INET6; }
};

// `text` as IPv4 or IPv6, with a port that the kernel will choose.
Address Parse(const std::string& text);

// While it lives, this thread, and what it opens and forks, is in the network
// namespace `name` (of ip-netns(8)). "" = where it is.
class InNamespace {
 public:
  explicit InNamespace(const std::string& name);
  ~InNamespace();
  InNamespace(const InNamespace&) = delete;
  InNamespace& operator=(const InNamespace&) = delete;

 private:
  int home_ = -1;
};

struct UdpSocket {
  int fd = -1;
  Address address;
};
// A UDP socket at `text`, at a port that the kernel chooses, in the network
// namespace `netns`: as the device's, unfragmented, with large buffers if
// allowed, and with UDP_GRO if `gro`.
UdpSocket OpenUdp(const std::string& text, const std::string& netns, bool gro);

// UDP_SEGMENT of `bytes`, into the room that `message` has for control
// messages.
void WriteSegmentSize(size_t bytes, msghdr* message);

// fork(2); the child does not outlive its parent.
pid_t ForkChild();

// Zeroed pages that are there, and that children share.
uint8_t* SharedMemory(size_t bytes);

// `half`: halves of round trips in us, in any order. {"min", "p50", "p99",
// "percentiles": [[percent, us], ...]}.
nlohmann::json Percentiles(std::vector<double> half);

}  // namespace reference

#endif  // TESTS_BENCH_REFERENCE_H_
