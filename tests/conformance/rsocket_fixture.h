// rsockets on the loopback device.
#ifndef TESTS_CONFORMANCE_RSOCKET_FIXTURE_H_
#define TESTS_CONFORMANCE_RSOCKET_FIXTURE_H_

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/rsocket.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "gtest/gtest.h"

namespace conformance {

inline constexpr size_t kMuch = 3 << 20;  // bytes; more than all buffers

struct LoopbackAddress {
  explicit LoopbackAddress(int family, uint16_t port = 0) {
    if (family == AF_INET) {
      auto& in = reinterpret_cast<sockaddr_in&>(storage);
      in.sin_family = AF_INET;
      in.sin_port = htons(port);
      in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      length = sizeof(in);
    } else {
      auto& in = reinterpret_cast<sockaddr_in6&>(storage);
      in.sin6_family = AF_INET6;
      in.sin6_port = htons(port);
      in.sin6_addr = in6addr_loopback;
      length = sizeof(in);
    }
  }
  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&storage);
  }

  sockaddr_storage storage = {};
  socklen_t length;
};

inline uint16_t PortOf(int rsocket) {
  sockaddr_in6 in = {};  // the port of IPv4 is at the same offset
  socklen_t length = sizeof(in);
  EXPECT_EQ(rgetsockname(rsocket, reinterpret_cast<sockaddr*>(&in), &length),
            0);
  return ntohs(in.sin6_port);
}

inline void SetNonblocking(int rsocket, bool on) {
  ASSERT_EQ(rfcntl(rsocket, F_SETFL, on ? O_NONBLOCK : 0), 0);
}

// The events of `rsocket` within `timeout` (ms).
inline short Events(int rsocket, short events, int timeout = 0) {
  pollfd fd = {.fd = rsocket, .events = events, .revents = 0};
  const int n = rpoll(&fd, 1, timeout);
  EXPECT_EQ(n, fd.revents != 0 ? 1 : 0);
  return fd.revents;
}

inline constexpr int kSoon = 20000;  // ms; time limit for an event

// Bytes that depend on their position.
inline std::string Pattern(size_t length, unsigned seed = 1) {
  std::string bytes(length, '\0');
  for (char& byte : bytes) {
    seed = seed * 1103515245 + 12345;
    byte = static_cast<char>(seed >> 16);
  }
  return bytes;
}

inline void SendAll(int rsocket, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        rsend(rsocket, bytes.data() + done, bytes.size() - done, 0);
    ASSERT_GT(n, 0) << std::strerror(errno);
    done += static_cast<size_t>(n);
  }
}

// Receives `length` bytes, or those before the end of the stream.
inline std::string Receive(int rsocket, size_t length) {
  std::string bytes(length, '\0');
  size_t done = 0;
  while (done < length) {
    const ssize_t n = rrecv(rsocket, bytes.data() + done, length - done, 0);
    EXPECT_GE(n, 0) << std::strerror(errno);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

class RsocketTest : public testing::Test {
 protected:
  void TearDown() override {
    for (int* const fd : {&client_, &server_, &listener_}) {
      if (*fd < 0) continue;
      EXPECT_EQ(rclose(*fd), 0);
    }
  }

  void Listen(int family = AF_INET) {
    family_ = family;
    listener_ = rsocket(family, SOCK_STREAM, 0);
    ASSERT_GE(listener_, 0) << std::strerror(errno);
    const LoopbackAddress address(family);
    ASSERT_EQ(rbind(listener_, address.get(), address.length), 0)
        << std::strerror(errno);
    ASSERT_EQ(rlisten(listener_, 10), 0) << std::strerror(errno);
    port_ = PortOf(listener_);
    ASSERT_NE(port_, 0);
  }
  void MakeClient() {
    client_ = rsocket(family_, SOCK_STREAM, 0);
    ASSERT_GE(client_, 0) << std::strerror(errno);
  }
  // Both ends are in this thread, so one of them does not block.
  void Connect() {
    if (listener_ < 0) Listen();
    if (client_ < 0) MakeClient();
    SetNonblocking(client_, true);
    const LoopbackAddress address(family_, port_);
    ASSERT_EQ(rconnect(client_, address.get(), address.length), -1);
    ASSERT_EQ(errno, EINPROGRESS);
    // The request is sent when the client makes progress.
    while (Events(listener_, POLLIN, 1) == 0) Events(client_, POLLOUT);
    server_ = raccept(listener_, nullptr, nullptr);
    ASSERT_GE(server_, 0) << std::strerror(errno);
    ASSERT_EQ(Events(client_, POLLOUT, kSoon), POLLOUT);
    int error = -1;
    socklen_t length = sizeof(error);
    ASSERT_EQ(rgetsockopt(client_, SOL_SOCKET, SO_ERROR, &error, &length), 0);
    ASSERT_EQ(error, 0);
    // As with TCP, the result is returned once.
    ASSERT_EQ(rconnect(client_, address.get(), address.length), 0)
        << std::strerror(errno);
    SetNonblocking(client_, false);
  }

  int family_ = AF_INET;
  uint16_t port_ = 0;
  int listener_ = -1;
  int client_ = -1;
  int server_ = -1;
};

}  // namespace conformance

#endif  // TESTS_CONFORMANCE_RSOCKET_FIXTURE_H_
