// librspreload.so under a program that uses TCP. The test is such a program; it
// executes itself with the library preloaded (rsocket_preload_start.cc).
#ifndef TESTS_CONFORMANCE_RSOCKET_PRELOAD_FIXTURE_H_
#define TESTS_CONFORMANCE_RSOCKET_PRELOAD_FIXTURE_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace conformance {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// The sanitizers' runtimes must be loaded first.
inline constexpr bool kPreloads = false;
#else
inline constexpr bool kPreloads = true;
#endif

inline constexpr int kSoon = 20000;        // ms; time limit for an event
inline constexpr uint16_t kTcpPort = 853;  // ports up to 1,024 stay TCP

class PreloadTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!kPreloads) GTEST_SKIP() << "the library is not there";
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    ASSERT_GE(epoll_, 0);
  }
  void TearDown() override {
    for (const int fd : {client_, server_, listener_, epoll_}) {
      if (fd < 0) continue;
      EXPECT_EQ(close(fd), 0);
    }
  }

  static int Socket(int flags = 0) {
    const int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
    EXPECT_GE(fd, 0) << std::strerror(errno);
    return fd;
  }
  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in in = {};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return in;
  }
  static int Bind(int fd, uint16_t port) {
    const sockaddr_in in = Loopback(port);
    return bind(fd, reinterpret_cast<const sockaddr*>(&in), sizeof(in));
  }
  static int ConnectTo(int fd, uint16_t port) {
    const sockaddr_in in = Loopback(port);
    return connect(fd, reinterpret_cast<const sockaddr*>(&in), sizeof(in));
  }
  static bool IsRsocket(int fd) {
    int value;
    socklen_t length = sizeof(value);
    return getsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &value, &length) == 0;
  }

  void Listen(int flags = 0) {
    listener_ = Socket(flags);
    ASSERT_EQ(Bind(listener_, 0), 0) << std::strerror(errno);
    ASSERT_EQ(listen(listener_, 10), 0) << std::strerror(errno);
    sockaddr_in in = {};
    socklen_t length = sizeof(in);
    ASSERT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&in), &length),
              0);
    port_ = ntohs(in.sin_port);
  }
  void Connect() {
    if (listener_ < 0) Listen();
    client_ = Socket();
    std::thread connects([&] {
      EXPECT_EQ(ConnectTo(client_, port_), 0) << std::strerror(errno);
    });
    server_ = accept(listener_, nullptr, nullptr);
    EXPECT_GE(server_, 0) << std::strerror(errno);
    connects.join();
    ASSERT_TRUE(IsRsocket(client_));
    ASSERT_TRUE(IsRsocket(server_));
  }
  static void Send(int fd, const std::string& bytes) {
    ASSERT_EQ(send(fd, bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()))
        << std::strerror(errno);
  }
  // Receives `length` bytes, or those before the end of the stream.
  static std::string Receive(int fd, size_t length) {
    std::string bytes(length, '\0');
    const ssize_t n = recv(fd, bytes.data(), length, MSG_WAITALL);
    EXPECT_GE(n, 0) << std::strerror(errno);
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    return bytes;
  }
  static short Poll(int fd, short events, int timeout = kSoon) {
    pollfd one = {.fd = fd, .events = events, .revents = 0};
    EXPECT_GE(poll(&one, 1, timeout), 0);
    return one.revents;
  }

  // --- Functions for epoll_.
  int Control(int operation, int fd, uint32_t events) {
    epoll_event event = {.events = events, .data = {.fd = fd}};
    return epoll_ctl(epoll_, operation, fd, &event);
  }
  void Add(int fd, uint32_t events) {
    ASSERT_EQ(Control(EPOLL_CTL_ADD, fd, events), 0) << std::strerror(errno);
  }
  std::vector<epoll_event> Wait(int timeout = kSoon, int most = 10) {
    std::vector<epoll_event> events(static_cast<size_t>(most));
    const int n = epoll_wait(epoll_, events.data(), most, timeout);
    EXPECT_GE(n, 0) << std::strerror(errno);
    events.resize(static_cast<size_t>(std::max(n, 0)));
    return events;
  }
  // Whether another instance reports an event of `fd`.
  static bool WaitAt(int epoll, int fd) {
    epoll_event event;
    const int n = epoll_wait(epoll, &event, 1, kSoon);
    EXPECT_GE(n, 0) << std::strerror(errno);
    return n == 1 && event.data.fd == fd;
  }
  // Waits until each of `fds` has had one of `events`.
  void ExpectAll(std::vector<int> fds, uint32_t events) {
    while (!fds.empty()) {
      const std::vector<epoll_event> got = Wait();
      ASSERT_FALSE(got.empty()) << "no event of descriptor " << fds.front();
      for (const epoll_event& event : got) {
        if ((event.events & events) != 0) std::erase(fds, event.data.fd);
      }
    }
  }

  uint16_t port_ = 0;
  int epoll_ = -1;
  int listener_ = -1;
  int client_ = -1;
  int server_ = -1;
};

}  // namespace conformance

#endif  // TESTS_CONFORMANCE_RSOCKET_PRELOAD_FIXTURE_H_
