// Shared parts of the reference programs: addresses, sockets, network
// namespaces, memory, the clock, and the output of figures.
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

// Prints one line about errno and ends the program.
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

// Parses IPv4 or IPv6; the kernel will choose the port.
Address Parse(const std::string& text);

// During its life, this thread and everything that it opens or forks is in the
// network namespace `name` (ip-netns(8)). "": the current one.
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
// A UDP socket bound to `text` at a port that the kernel chooses, in the
// network namespace `netns`. Like the device's sockets: without fragmentation,
// with large buffers if allowed, and with UDP_GRO if `gro`.
UdpSocket OpenUdp(const std::string& text, const std::string& netns, bool gro);

// Writes UDP_SEGMENT of `bytes` to the control buffer of `message`.
void WriteSegmentSize(size_t bytes, msghdr* message);

// fork(2); the child is killed when its parent ends.
pid_t ForkChild();

// Zeroed resident pages that children share.
uint8_t* SharedMemory(size_t bytes);

// `half`: halves of round trips in us, in any order. Returns {"min", "p50",
// "p99", "percentiles": [[percent, us], ...]}.
nlohmann::json Percentiles(std::vector<double> half);

}  // namespace reference

#endif  // TESTS_BENCH_REFERENCE_H_
