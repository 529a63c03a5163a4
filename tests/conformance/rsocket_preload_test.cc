// librspreload.so: addresses, connections before accept, descriptors, errors,
// signals, threads and sendfile(2).
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "rxe_user/testing/net_namespace.h"
#include "tests/conformance/rsocket_preload_fixture.h"

namespace conformance {
namespace {

// A bound address is kept.
TEST_F(PreloadTest, SocketsThatBecomeTcpKeepTheirAddress) {
  constexpr char kAddress[] = "192.0.2.77";
  constexpr uint16_t kPort = 20123;
  listener_ = Socket();
  if (!rxe_user::SetLoopbackAddress(kAddress, true) ||
      Bind(listener_, kTcpPort) != 0) {
    GTEST_SKIP() << "not allowed to";
  }
  ASSERT_EQ(listen(listener_, 2), 0);
  const auto connect_from = [&](const char* address, uint16_t port) {
    const int fd = Socket();
    sockaddr_in in = Loopback(port);
    EXPECT_EQ(inet_pton(AF_INET, address, &in.sin_addr), 1);
    EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&in), sizeof(in)), 0)
        << std::strerror(errno);
    EXPECT_EQ(ConnectTo(fd, kTcpPort), 0) << std::strerror(errno);
    EXPECT_FALSE(IsRsocket(fd));
    socklen_t length = sizeof(in);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&in), &length), 0);
    char text[INET_ADDRSTRLEN];
    EXPECT_STREQ(inet_ntop(AF_INET, &in.sin_addr, text, sizeof(text)), address);
    if (port != 0) {
      EXPECT_EQ(ntohs(in.sin_port), port);
    }
    EXPECT_EQ(close(fd), 0);
  };
  connect_from("127.0.0.1", kPort);
  // Until the device has the address.
  for (bool is_rsocket = false; !is_rsocket;) {
    client_ = Socket();
    sockaddr_in in = Loopback(0);
    inet_pton(AF_INET, kAddress, &in.sin_addr);
    ASSERT_EQ(bind(client_, reinterpret_cast<const sockaddr*>(&in), sizeof(in)),
              0);
    is_rsocket = IsRsocket(client_);
    ASSERT_EQ(close(std::exchange(client_, -1)), 0);
  }
  connect_from(kAddress, 0);
  EXPECT_TRUE(rxe_user::SetLoopbackAddress(kAddress, false));
}

// --- Connections before accept.

// Most tests of network code are such programs.
TEST_F(PreloadTest, BothEndsInOneThread) {
  Listen();
  client_ = Socket();
  ASSERT_EQ(ConnectTo(client_, port_), 0) << std::strerror(errno);
  Send(client_, "early");
  server_ = accept(listener_, nullptr, nullptr);
  ASSERT_GE(server_, 0) << std::strerror(errno);
  ASSERT_TRUE(IsRsocket(server_));
  EXPECT_EQ(Receive(server_, 5), "early");
  Send(server_, "late");
  ASSERT_EQ(close(std::exchange(server_, -1)), 0);
  EXPECT_EQ(Receive(client_, 10), "late");
}

TEST_F(PreloadTest, WithoutADescriptorAConnectionWaitsOn) {
  Listen();
  client_ = Socket();
  ASSERT_EQ(ConnectTo(client_, port_), 0) << std::strerror(errno);
  Send(client_, "a");
  ASSERT_NE(Poll(listener_, POLLIN), 0);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_EQ(accept(listener_, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EMFILE);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  server_ = accept(listener_, nullptr, nullptr);
  ASSERT_GE(server_, 0) << std::strerror(errno);
  EXPECT_EQ(Receive(server_, 1), "a");
}

// --- Descriptors.

TEST_F(PreloadTest, RangesAreClosed) {
  for (const bool from : {false, true}) {
    Connect();
    const int high = fcntl(server_, F_DUPFD_CLOEXEC, from ? 900 : 400);
    ASSERT_GE(high, 400);
    ASSERT_EQ(close(std::exchange(server_, -1)), 0);
    if (from) {
      closefrom(high);
    } else {
      const auto number = static_cast<unsigned>(high);
      ASSERT_EQ(close_range(number, number + 10, CLOSE_RANGE_CLOEXEC), 0);
      EXPECT_TRUE(IsRsocket(high));
      ASSERT_EQ(close_range(number, number + 10, 0), 0);
    }
    EXPECT_FALSE(IsRsocket(high));
    EXPECT_EQ(Poll(client_, POLLRDHUP) & POLLRDHUP, POLLRDHUP);
    ASSERT_EQ(close(std::exchange(client_, -1)), 0);
  }
}

// --- SIGPIPE.

// Calls that send on `fd` fail as on TCP: EPIPE, and a signal for the thread
// unless MSG_NOSIGNAL is set.
void ExpectBrokenPipe(int fd) {
  sigset_t pipe, before;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &pipe, &before), 0);
  const timespec at_once = {};
  char byte = 'x';
  const iovec iov = {&byte, 1};
  const msghdr message = {.msg_name = nullptr,
                          .msg_namelen = 0,
                          .msg_iov = const_cast<iovec*>(&iov),
                          .msg_iovlen = 1,
                          .msg_control = nullptr,
                          .msg_controllen = 0,
                          .msg_flags = 0};
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  const auto expect = [&](const char* call, ssize_t result, bool signal) {
    SCOPED_TRACE(call);
    EXPECT_EQ(result, -1);
    EXPECT_EQ(errno, EPIPE) << std::strerror(errno);
    EXPECT_EQ(sigtimedwait(&pipe, nullptr, &at_once), signal ? SIGPIPE : -1);
  };
  expect("send", send(fd, &byte, 1, 0), true);
  expect("write", write(fd, &byte, 1), true);
  expect("writev", writev(fd, &iov, 1), true);
  expect("sendto", sendto(fd, &byte, 1, 0, nullptr, 0), true);
  expect("sendmsg", sendmsg(fd, &message, 0), true);
  expect("sendfile", sendfile(fd, file, nullptr, 1), true);
  expect("send", send(fd, &byte, 1, MSG_NOSIGNAL), false);
  expect("sendto", sendto(fd, &byte, 1, MSG_NOSIGNAL, nullptr, 0), false);
  expect("sendmsg", sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT), false);
  EXPECT_EQ(close(file), 0);
  EXPECT_EQ(pthread_sigmask(SIG_SETMASK, &before, nullptr), 0);
}

TEST_F(PreloadTest, SendingWithoutAPeerRaisesSigpipe) {
  Connect();
  ASSERT_EQ(shutdown(client_, SHUT_WR), 0);
  ExpectBrokenPipe(client_);
  EXPECT_EQ(close(std::exchange(server_, -1)), 0);
  EXPECT_EQ(Receive(client_, 1), "");
  ExpectBrokenPipe(client_);
  // The same before it connects.
  const int unconnected = Socket();
  ExpectBrokenPipe(unconnected);
  EXPECT_EQ(close(unconnected), 0);
}

TEST_F(PreloadTest, ThePeerThatClosesBreaksThePipe) {
  Connect();
  EXPECT_EQ(close(std::exchange(server_, -1)), 0);
  ASSERT_NE(Poll(client_, POLLRDHUP) & POLLRDHUP, 0);
  ExpectBrokenPipe(client_);
  // Without a handler the signal ends the program.
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int unconnected = socket(AF_INET, SOCK_STREAM, 0);
    signal(SIGPIPE, SIG_DFL);
    static_cast<void>(!write(unconnected, "x", 1));
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << status;
}

// The same with TCP of the kernel.
TEST_F(PreloadTest, TcpBreaksThePipe) {
  listener_ = Socket();
  if (Bind(listener_, kTcpPort) != 0 && errno == EACCES) {
    GTEST_SKIP() << "not allowed to listen there";
  }
  ASSERT_EQ(listen(listener_, 1), 0);
  client_ = Socket();
  ASSERT_EQ(Bind(client_, kTcpPort + 1), 0) << std::strerror(errno);
  ASSERT_FALSE(IsRsocket(client_));
  ExpectBrokenPipe(client_);
  ASSERT_EQ(ConnectTo(client_, kTcpPort), 0);
  ASSERT_EQ(shutdown(client_, SHUT_WR), 0);
  ExpectBrokenPipe(client_);
}

// Programs read errno after they have closed a failed socket.
TEST_F(PreloadTest, CallsThatSucceedLeaveErrno) {
  constexpr int kBefore = ENOTEMPTY;
  const auto expect = [&](const char* what, auto call) {
    errno = kBefore;
    const int result = call();
    const int after = errno;
    EXPECT_GE(result, 0) << what << ": " << std::strerror(after);
    EXPECT_EQ(after, kBefore) << what << ": " << std::strerror(after);
    return result;
  };
  int value = 1;
  socklen_t length = sizeof(value);
  sockaddr_in name;
  socklen_t name_length = sizeof(name);
  const int fd = expect("socket", [] { return Socket(); });
  expect("setsockopt", [&] {
    return setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &value, sizeof(value));
  });
  expect("bind", [&] { return Bind(fd, 0); });
  expect("listen", [&] { return listen(fd, 1); });
  expect("poll", [&] {
    pollfd one = {.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&one, 1, 1);
  });
  expect("getsockopt", [&] {
    return getsockopt(fd, SOL_SOCKET, SO_PRIORITY, &value, &length);
  });
  expect("getsockname", [&] {
    return getsockname(fd, reinterpret_cast<sockaddr*>(&name), &name_length);
  });
  const int copy = expect("dup", [&] { return dup(fd); });
  const int other = Socket();
  expect("dup2", [&] { return dup2(other, copy); });
  expect("close", [&] { return close(copy); });
  expect("close", [&] { return close(fd); });
  expect("close_range", [&] {
    const auto number = static_cast<unsigned>(other);
    return close_range(number, number, 0);
  });
  // This socket becomes TCP.
  const int tcp = Socket();
  if (expect("bind", [&] { return Bind(tcp, kTcpPort); }) == 0) {
    expect("listen", [&] { return listen(tcp, 1); });
    client_ = Socket();
    expect("connect", [&] { return ConnectTo(client_, kTcpPort); });
    EXPECT_EQ(close(std::exchange(client_, -1)), 0);
  }
  expect("close", [&] { return close(tcp); });
  Listen();
  client_ = Socket();
  std::thread connects([&] {
    expect("connect", [&] { return ConnectTo(client_, port_); });
    expect("send", [&] { return send(client_, "a", 1, 0); });
  });
  server_ =
      expect("accept", [&] { return accept(listener_, nullptr, nullptr); });
  connects.join();
  Add(server_, EPOLLIN);
  expect("epoll_wait", [&] {
    epoll_event event;
    return epoll_wait(epoll_, &event, 1, kSoon);
  });
  char byte;
  expect("recv", [&] { return recv(server_, &byte, 1, 0); });
  expect("select", [&] {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(server_, &set);
    timeval time = {.tv_sec = 0, .tv_usec = 1000};
    return select(server_ + 1, &set, nullptr, nullptr, &time);
  });
  expect("shutdown", [&] { return shutdown(server_, SHUT_RDWR); });
  expect("close", [&] { return close(std::exchange(server_, -1)); });
}

TEST_F(PreloadTest, ThereIsNoQueueOfErrors) {
  Connect();
  const int on = 1;
  EXPECT_EQ(setsockopt(server_, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)), -1);
  Send(client_, "a");
  ASSERT_EQ(Poll(server_, POLLIN), POLLIN);
  char byte;
  EXPECT_EQ(recv(server_, &byte, 1, MSG_ERRQUEUE), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(Receive(server_, 1), "a");
}

// --- Signals.

TEST_F(PreloadTest, ASignalThatIsThereEndsTheWait) {
  Connect();
  Add(server_, EPOLLIN);
  struct sigaction action = {}, before;
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  sigset_t blocked, mask, after;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &blocked, &mask), 0);
  const timespec soon = {.tv_sec = kSoon / 1000, .tv_nsec = 0};
  const auto expect_interrupted = [&](auto call) {
    pthread_kill(pthread_self(), SIGUSR1);
    errno = 0;
    EXPECT_EQ(call(), -1);
    EXPECT_EQ(errno, EINTR);
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    EXPECT_EQ(sigismember(&now, SIGUSR1), 1);
    sigpending(&now);
    EXPECT_EQ(sigismember(&now, SIGUSR1), 0);
  };
  pollfd fd = {.fd = server_, .events = POLLIN, .revents = 0};
  expect_interrupted([&] { return ppoll(&fd, 1, &soon, &mask); });
  fd_set set;
  FD_ZERO(&set);
  FD_SET(server_, &set);
  expect_interrupted([&] {
    return pselect(server_ + 1, &set, nullptr, nullptr, &soon, &mask);
  });
  epoll_event event;
  expect_interrupted(
      [&] { return epoll_pwait(epoll_, &event, 1, kSoon, &mask); });
  // Ready descriptors take precedence.
  Send(client_, "a");
  ASSERT_EQ(Poll(server_, POLLIN), POLLIN);
  pthread_kill(pthread_self(), SIGUSR1);
  EXPECT_EQ(ppoll(&fd, 1, &soon, &mask), 1);
  pthread_sigmask(SIG_SETMASK, &mask, &after);
  sigaction(SIGUSR1, &before, nullptr);
}

// --- Threads.

TEST_F(PreloadTest, ThreadsMayHaveSmallStacks) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  const auto size = std::max<size_t>(1 << 16, PTHREAD_STACK_MIN);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, size), 0);
  pthread_t thread;
  const auto nothing = [](void*) -> void* { return nullptr; };
  ASSERT_EQ(pthread_create(&thread, &attributes, nothing, nullptr), 0);
  EXPECT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

// --- sendfile(2).

class SendFileTest : public PreloadTest {
 protected:
  static constexpr size_t kSize = 4 << 20;  // more than all buffers
  void SetUp() override {
    PreloadTest::SetUp();
    if (IsSkipped()) return;
    file_ = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    ASSERT_GE(file_, 0) << std::strerror(errno);
    const std::string bytes(kSize, 'x');
    ASSERT_EQ(write(file_, bytes.data(), kSize), ssize_t{kSize});
    ASSERT_EQ(lseek(file_, 0, SEEK_SET), 0);
  }
  void TearDown() override {
    if (file_ >= 0) close(file_);
    PreloadTest::TearDown();
  }
  int file_ = -1;
};

TEST_F(SendFileTest, NothingIsTheEndOfTheFileAlone) {
  Connect();
  std::atomic<bool> goes{true};
  const pthread_t sender = pthread_self();
  struct sigaction action = {}, before;
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  std::thread disturbs([&] {
    while (goes) {
      pthread_kill(sender, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  std::thread reads([&] {
    // In small pieces, so that the sender waits.
    for (size_t left = kSize; left > 0;) {
      char bytes[16384];
      const ssize_t n = recv(client_, bytes, sizeof(bytes), 0);
      if (n <= 0) {
        ASSERT_TRUE(n < 0 && errno == EINTR) << left;
        continue;
      }
      left -= static_cast<size_t>(n);
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  });
  size_t sent = 0;
  while (sent < kSize) {
    errno = 0;
    const ssize_t n = sendfile(server_, file_, nullptr, kSize);
    if (n < 0) {
      EXPECT_EQ(errno, EINTR);
      if (errno != EINTR) break;
      continue;
    }
    EXPECT_GT(n, 0) << "an end after " << sent;
    if (n == 0) break;
    sent += static_cast<size_t>(n);
  }
  goes = false;
  disturbs.join();
  if (sent < kSize) shutdown(server_, SHUT_RDWR);
  reads.join();
  sigaction(SIGUSR1, &before, nullptr);
  errno = EAGAIN;
  EXPECT_EQ(sendfile(server_, file_, nullptr, 1), 0) << std::strerror(errno);
}

}  // namespace
}  // namespace conformance
