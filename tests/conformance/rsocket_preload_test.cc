// librspreload.so under a program that uses TCP. This program is one; it
// executes itself with the library preloaded.
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/testing/net_namespace.h"
#include "rxe_user/testing/watched_thread.h"

namespace conformance {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Their runtimes must be loaded first.
constexpr bool kPreloads = false;
#else
constexpr bool kPreloads = true;
#endif

// Before main. With RDMAV_FORK_SAFE, fork hands connections over.
__attribute__((constructor)) void StartAnew(int, char** argv, char**) {
  if (!kPreloads || std::getenv("LD_PRELOAD") != nullptr) return;
  namespace fs = std::filesystem;
  std::string folders;
  for (const char* library : {"RDMACM", "VERBS"}) {
    folders += fs::absolute(std::getenv(library)).parent_path().string() + ":";
  }
  setenv("LD_LIBRARY_PATH", folders.c_str(), 1);
  setenv("LD_PRELOAD", fs::absolute(std::getenv("PRELOAD")).c_str(), 1);
  setenv("RDMAV_FORK_SAFE", "1", 1);
  execv("/proc/self/exe", argv);
  std::perror("execv");
  _exit(99);
}

constexpr int kSoon = 20000;        // ms; time limit for an event
constexpr uint16_t kTcpPort = 853;  // ports up to 1,024 stay TCP

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

using PreloadedEpollTest = PreloadTest;

// --- epoll(7).

TEST_F(PreloadedEpollTest, SocketsThatBecomeTcpStayInIt) {
  listener_ = Socket();
  Add(listener_, EPOLLIN | EPOLLET);
  if (Bind(listener_, kTcpPort) != 0 && errno == EACCES) {
    GTEST_SKIP() << "not allowed to listen there";
  }
  ASSERT_FALSE(IsRsocket(listener_));
  ASSERT_EQ(listen(listener_, 1), 0);
  client_ = Socket(SOCK_NONBLOCK);
  Add(client_, EPOLLIN | EPOLLOUT | EPOLLET);
  ASSERT_TRUE(ConnectTo(client_, kTcpPort) == 0 || errno == EINPROGRESS);
  ASSERT_FALSE(IsRsocket(client_));
  ExpectAll({listener_, client_}, EPOLLIN | EPOLLOUT);
  EXPECT_EQ(Control(EPOLL_CTL_MOD, client_, EPOLLIN), 0)
      << std::strerror(errno);
  EXPECT_EQ(Control(EPOLL_CTL_DEL, client_, 0), 0) << std::strerror(errno);
}

// The same while a thread waits and is just checking the rsocket.
TEST_F(PreloadedEpollTest, SocketsThatBecomeTcpBesideAWaitStayInIt) {
  const int listener = Socket(), end = eventfd(0, EFD_CLOEXEC);
  if (Bind(listener, kTcpPort) != 0 && errno == EACCES) {
    GTEST_SKIP() << "not allowed to listen there";
  }
  ASSERT_EQ(listen(listener, 0), 0);
  Add(end, EPOLLIN);
  // Many sockets, so that checking takes long.
  Connect();
  std::vector<int> fds = {listener, end};
  for (int i = 0; i < 300; ++i) {
    fds.push_back(dup(server_));
    Add(fds.back(), EPOLLIN);
  }
  std::binary_semaphore connected(0);
  std::thread waits([&] {
    for (;;) {
      for (const epoll_event& event : Wait(-1)) {
        if (event.data.fd == end) return;
        // EPOLLHUP of an unconnected socket is reported, too.
        if ((event.events & EPOLLHUP) != 0) continue;
        EXPECT_EQ(Control(EPOLL_CTL_DEL, event.data.fd, 0), 0);
        connected.release();
      }
    }
  });
  for (int i = 0; i < 3 && !HasFailure(); ++i) {
    // The listener's backlog is full: connecting takes a second.
    const int first = Socket(), second = Socket();
    EXPECT_EQ(ConnectTo(first, kTcpPort), 0) << std::strerror(errno);
    Add(second, EPOLLOUT);
    rxe_user::WatchedThread connects([&] {
      EXPECT_EQ(ConnectTo(second, kTcpPort), 0) << std::strerror(errno);
    });
    EXPECT_TRUE(connects.AwaitSleep());
    const int accepted[] = {accept(listener, nullptr, nullptr),
                            accept(listener, nullptr, nullptr)};
    connects.join();
    EXPECT_TRUE(connected.try_acquire_for(std::chrono::milliseconds(kSoon)))
        << i;
    for (const int fd : {first, second, accepted[0], accepted[1]}) {
      EXPECT_EQ(close(fd), 0);
    }
  }
  const uint64_t one = 1;
  EXPECT_EQ(write(end, &one, sizeof(one)), 8);
  waits.join();
  for (const int fd : fds) EXPECT_EQ(close(fd), 0);
}

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

TEST_F(PreloadedEpollTest, ConnectionsThatForkSharesStayInIt) {
  Connect();
  Add(server_, EPOLLIN);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_FALSE(IsRsocket(server_));
  Send(client_, "hello");
  ExpectAll({server_}, EPOLLIN);
  EXPECT_EQ(Receive(server_, 5), "hello");
  EXPECT_EQ(Control(EPOLL_CTL_DEL, server_, 0), 0) << std::strerror(errno);
}

// All waiting threads see the first added rsocket, and later changes.
TEST_F(PreloadedEpollTest, WaitingThreadsSeeChanges) {
  Connect();
  Send(client_, "a");
  ASSERT_EQ(Poll(server_, POLLIN), POLLIN);
  const auto expect = [&] {
    const std::vector<epoll_event> events = Wait(kSoon);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].data.fd, server_);
    EXPECT_EQ(events[0].events, static_cast<uint32_t>(EPOLLIN));
  };
  {
    rxe_user::WatchedThread first(expect), second(expect), third(expect);
    ASSERT_TRUE(first.AwaitSleep());
    ASSERT_TRUE(second.AwaitSleep());
    ASSERT_TRUE(third.AwaitSleep());
    Add(server_, EPOLLIN);
    first.join();
    second.join();
    third.join();
  }
  ASSERT_EQ(Control(EPOLL_CTL_MOD, server_, EPOLLIN | EPOLLONESHOT), 0);
  expect();
  rxe_user::WatchedThread fourth(expect);
  ASSERT_TRUE(fourth.AwaitSleep());
  ASSERT_EQ(Control(EPOLL_CTL_MOD, server_, EPOLLIN | EPOLLONESHOT), 0);
  fourth.join();
  // The kernel's instance reports none of our internal events.
  EXPECT_TRUE(Wait(0).empty());
  ASSERT_EQ(Control(EPOLL_CTL_DEL, server_, 0), 0);
  EXPECT_TRUE(Wait(0).empty());
}

// Each event goes to one of several threads.
TEST_F(PreloadedEpollTest, OneThreadGetsEachEvent) {
  constexpr int kMessages = 200;
  Connect();
  const int end = eventfd(0, EFD_CLOEXEC);
  Add(server_, EPOLLIN | EPOLLONESHOT);
  Add(end, EPOLLIN);
  std::atomic<int> got{0}, twice{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (;;) {
        epoll_event event;
        ASSERT_EQ(epoll_wait(epoll_, &event, 1, kSoon), 1);
        if (event.data.fd == end) return;
        char bytes[16];
        const ssize_t n = recv(server_, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n <= 0) {
          ++twice;
          continue;
        }
        got += static_cast<int>(n);
        ASSERT_EQ(Control(EPOLL_CTL_MOD, server_, EPOLLIN | EPOLLONESHOT), 0);
        if (got == kMessages) {
          const uint64_t one = 1;
          ASSERT_EQ(write(end, &one, sizeof(one)), 8);
        }
      }
    });
  }
  for (int i = 0; i < kMessages; ++i) Send(client_, "x");
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, kMessages);
  EXPECT_EQ(twice, 0);
  EXPECT_EQ(close(end), 0);
}

// The end is one edge, whatever other events are watched.
TEST_F(PreloadedEpollTest, TheEndIsReportedOnce) {
  Connect();
  Add(server_, EPOLLIN | EPOLLPRI | EPOLLERR | EPOLLHUP | EPOLLET);
  ASSERT_EQ(close(std::exchange(client_, -1)), 0);
  bool ended = false;
  while (!ended) {
    ASSERT_EQ(Wait().size(), 1u);
    char byte;
    ended = recv(server_, &byte, 1, MSG_DONTWAIT) == 0;
  }
  // The rest of it, if the two halves were reported separately.
  Wait(100);
  EXPECT_TRUE(Wait(100).empty());
}

TEST_F(PreloadedEpollTest, AConnectionIsNewsAfterAnUnconnectedSocket) {
  Listen();
  client_ = Socket(SOCK_NONBLOCK);
  Add(client_, EPOLLIN | EPOLLOUT | EPOLLET);
  Add(listener_, EPOLLIN);
  EXPECT_EQ(Wait().size(), 1u);  // not connected
  EXPECT_TRUE(Wait(0).empty());
  rxe_user::WatchedThread waits([&] { ExpectAll({client_}, EPOLLOUT); });
  ASSERT_TRUE(waits.AwaitSleep());
  ASSERT_EQ(ConnectTo(client_, port_), -1);
  ASSERT_EQ(errno, EINPROGRESS);
  server_ = accept(listener_, nullptr, nullptr);
  EXPECT_GE(server_, 0);
  waits.join();
}

// No descriptor starves behind others that are always ready.
TEST_F(PreloadedEpollTest, PlacesAreTakenInTurn) {
  Connect();
  // The client may know of the connection before the server.
  ASSERT_EQ(Poll(server_, POLLOUT), POLLOUT);
  const int other = eventfd(1, EFD_CLOEXEC);
  Add(client_, EPOLLOUT);
  Add(server_, EPOLLOUT);
  Add(other, EPOLLIN);
  for (int round = 0; round < 3; ++round) {
    std::vector<int> got;
    for (int i = 0; i < 3; ++i) {
      const std::vector<epoll_event> one = Wait(kSoon, 1);
      ASSERT_EQ(one.size(), 1u);
      got.push_back(one[0].data.fd);
    }
    std::sort(got.begin(), got.end());
    EXPECT_EQ(std::unique(got.begin(), got.end()), got.end());
  }
  EXPECT_EQ(close(other), 0);
}

TEST_F(PreloadedEpollTest, WaitingWithoutEndEndsWithAnEvent) {
  Connect();
  const int other = eventfd(0, EFD_CLOEXEC);
  Add(server_, EPOLLIN);
  Add(other, EPOLLIN);
  rxe_user::WatchedThread waits([&] {
    const std::vector<epoll_event> events = Wait(-1);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].data.fd, other);
  });
  ASSERT_TRUE(waits.AwaitSleep());
  ASSERT_EQ(close(std::exchange(server_, -1)), 0);
  EXPECT_TRUE(waits.AwaitSleep()) << "it has ended without an event";
  const uint64_t one = 1;
  ASSERT_EQ(write(other, &one, sizeof(one)), 8);
  waits.join();
  EXPECT_EQ(close(other), 0);
}

TEST_F(PreloadedEpollTest, WithNanoseconds) {
  Connect();
  Add(server_, EPOLLIN);
  Send(client_, "a");
  epoll_event event;
  const timespec time = {.tv_sec = 20, .tv_nsec = 1};
  EXPECT_EQ(epoll_pwait2(epoll_, &event, 1, &time, nullptr), 1);
  EXPECT_EQ(Receive(server_, 1), "a");
  const timespec soon = {.tv_sec = 0, .tv_nsec = 1000};
  EXPECT_EQ(epoll_pwait2(epoll_, &event, 1, &soon, nullptr), 0);
}

// Each of two instances has its own edges.
TEST_F(PreloadedEpollTest, TwoInstances) {
  Connect();
  const int first = epoll_, second = epoll_create1(EPOLL_CLOEXEC);
  for (const int epoll : {first, second}) {
    epoll_ = epoll;
    Add(server_, EPOLLIN | EPOLLET);
  }
  for (int i = 0; i < 3; ++i) {
    Send(client_, "a");
    for (const int epoll : {first, second}) {
      epoll_ = epoll;
      EXPECT_EQ(Wait().size(), 1u);
      EXPECT_TRUE(Wait(0).empty());
    }
    EXPECT_EQ(Receive(server_, 1), "a");
  }
  epoll_ = first;
  EXPECT_EQ(close(second), 0);
}

// A duplicate of an instance is the same instance, whether it was made before
// or after adding rsockets. Event loops of Rust add to one number and wait on
// another.
TEST_F(PreloadedEpollTest, ACopyOfAnInstanceIsTheSame) {
  Connect();
  const int original = epoll_, other = eventfd(0, EFD_CLOEXEC);
  const int early[] = {dup(epoll_), fcntl(epoll_, F_DUPFD_CLOEXEC, 0)};
  // Threads that wait in the kernel see it too, each on its own number.
  std::atomic<int> told{0};
  rxe_user::WatchedThread waits[] = {
      rxe_user::WatchedThread([&] { told += WaitAt(original, server_); }),
      rxe_user::WatchedThread([&] { told += WaitAt(early[0], server_); })};
  for (rxe_user::WatchedThread& thread : waits) {
    ASSERT_TRUE(thread.AwaitSleep());
  }
  epoll_ = early[1];
  Add(server_, EPOLLIN);
  Send(client_, "a");
  for (rxe_user::WatchedThread& thread : waits) thread.join();
  EXPECT_EQ(told, 2);

  const int late = dup2(epoll_, 200);
  ASSERT_EQ(late, 200);
  EXPECT_EQ(close(original), 0);
  EXPECT_EQ(Control(EPOLL_CTL_ADD, server_, EPOLLIN), -1);
  EXPECT_EQ(errno, EEXIST);
  epoll_ = late;
  ExpectAll({server_}, EPOLLIN);
  EXPECT_EQ(Receive(server_, 1), "a");
  EXPECT_TRUE(Wait(0).empty());
  Add(other, EPOLLIN);
  EXPECT_EQ(Control(EPOLL_CTL_DEL, server_, 0), 0);
  Send(client_, "b");
  ASSERT_EQ(Poll(server_, POLLIN), POLLIN);
  for (const int number : {late, early[0], early[1]}) {
    epoll_ = number;
    EXPECT_TRUE(Wait(0).empty());
  }
  const uint64_t one = 1;
  ASSERT_EQ(write(other, &one, sizeof(one)), 8);
  ExpectAll({other}, EPOLLIN);
  for (const int number : {late, early[0], other}) {
    EXPECT_EQ(close(number), 0);
  }
  // The number now belongs to another instance.
  const int next = epoll_create1(EPOLL_CLOEXEC);
  ASSERT_EQ(next, original);
  epoll_ = next;
  EXPECT_EQ(Control(EPOLL_CTL_DEL, server_, 0), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(close(early[1]), 0);
}

TEST_F(PreloadedEpollTest, NoDescriptorIsLeft) {
  Connect();
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_EQ(Control(EPOLL_CTL_ADD, server_, EPOLLIN), -1);
  EXPECT_EQ(errno, EMFILE);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

// A failed connection does not silence its listener.
TEST_F(PreloadedEpollTest, AListenerReportsTheNextConnectionAfterAFailure) {
  Listen(SOCK_NONBLOCK);
  Add(listener_, EPOLLIN | EPOLLET);
  int clients[2];
  for (int& client : clients) {
    client = Socket(SOCK_NONBLOCK);
    Add(client, EPOLLOUT | EPOLLONESHOT);
    ExpectAll({client}, EPOLLOUT);  // not connected
  }
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  for (const int client : clients) {
    ASSERT_EQ(ConnectTo(client, port_), -1);
    ASSERT_EQ(errno, EINPROGRESS);
    ASSERT_EQ(Control(EPOLL_CTL_MOD, client, EPOLLOUT | EPOLLONESHOT), 0);
    ExpectAll({listener_}, EPOLLIN);
    if (client == clients[1]) break;
    const rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    EXPECT_EQ(accept(listener_, nullptr, nullptr), -1);
    EXPECT_EQ(errno, EMFILE);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  for (const int client : clients) EXPECT_EQ(close(client), 0);
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

// An event loop that connects to itself, edge-triggered.
TEST_F(PreloadedEpollTest, BothEndsInOneLoop) {
  Listen(SOCK_NONBLOCK);
  client_ = Socket(SOCK_NONBLOCK);
  Add(listener_, EPOLLIN | EPOLLET);
  Add(client_, EPOLLOUT | EPOLLET);
  ASSERT_EQ(ConnectTo(client_, port_), -1);
  ASSERT_EQ(errno, EINPROGRESS);
  bool connected = false;
  while (!connected || server_ < 0) {
    epoll_event event = {};
    ASSERT_EQ(epoll_wait(epoll_, &event, 1, kSoon), 1);
    if (event.data.fd == client_ && (event.events & EPOLLHUP) == 0) {
      EXPECT_EQ(event.events, static_cast<uint32_t>(EPOLLOUT));
      connected = true;
    } else if (event.data.fd == listener_) {
      server_ = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK);
      ASSERT_GE(server_, 0) << std::strerror(errno);
    }
  }
  EXPECT_EQ(accept(listener_, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
}

// --- Other processes.

// A child of vfork shares its parent's memory, but what it closes and
// duplicates is its own.
TEST_F(PreloadTest, AChildOfVforkChangesNothing) {
  Connect();
  const int number = fcntl(server_, F_DUPFD_CLOEXEC, 300);
  ASSERT_GE(number, 300);
  ASSERT_EQ(close(number), 0);
  const int server = server_, epoll = epoll_;
  Add(server, EPOLLIN);
  const pid_t child = vfork();
  if (child == 0) {
    dup2(server, number);
    close(server);
    close(epoll);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(write(number, "x", 1), -1);
  EXPECT_EQ(errno, EBADF);
  Send(client_, "hello");
  ExpectAll({server_}, EPOLLIN);
  EXPECT_EQ(Receive(server_, 5), "hello");
  ASSERT_EQ(close(std::exchange(server_, -1)), 0);
  EXPECT_EQ(Receive(client_, 1), "");
}

// A child with a copy of the memory that libc does not know of is independent.
TEST_F(PreloadTest, AChildOfCloneHasItsOwnDescriptors) {
  Connect();
  const int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(zero, 0);
  const auto child =
      static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  ASSERT_GE(child, 0);
  if (child == 0) {
    char byte = 'x';
    if (dup2(zero, server_) != server_) _exit(1);
    _exit(read(server_, &byte, 1) == 1 && byte == 0 ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(close(zero), 0);
  Send(client_, "hello");
  EXPECT_EQ(Receive(server_, 5), "hello");
}

// Other threads are in calls when one forks.
TEST_F(PreloadTest, BytesStayInOrderWhenAnotherThreadForks) {
  constexpr int kRounds = 30;
  for (int i = 0; i < kRounds && !HasFailure(); ++i) {
    Connect();
    rxe_user::WatchedThread reads([&] {
      std::string got;
      char byte;
      while (recv(server_, &byte, 1, 0) == 1) got += byte;
      EXPECT_EQ(got, "0123456789") << "round " << i;
    });
    ASSERT_TRUE(reads.AwaitSleep());
    const pid_t child = fork();
    if (child == 0) _exit(0);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    for (char byte = '0'; byte <= '9'; ++byte) Send(client_, {byte});
    EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
    reads.join();
    for (int* const fd : {&client_, &server_}) {
      EXPECT_EQ(close(std::exchange(*fd, -1)), 0);
    }
  }
}

TEST_F(PreloadTest, PollingDuringAForkSeesData) {
  constexpr int kRounds = 30;
  for (int i = 0; i < kRounds && !HasFailure(); ++i) {
    Connect();
    rxe_user::WatchedThread polls(
        [&] { EXPECT_EQ(Poll(server_, POLLIN), POLLIN) << "round " << i; });
    ASSERT_TRUE(polls.AwaitSleep());
    const pid_t child = fork();
    if (child == 0) _exit(0);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    Send(client_, "a");
    polls.join();
    EXPECT_EQ(Receive(server_, 1), "a");
    for (int* const fd : {&client_, &server_}) {
      EXPECT_EQ(close(std::exchange(*fd, -1)), 0);
    }
  }
}

// Otherwise the children would not see that the parent has ended.
TEST_F(PreloadTest, LaterChildrenHaveNoEndsOfEarlierOnes) {
  Connect();
  int before = -1;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      int local = 0;
      for (int fd = 0; fd < 1024; ++fd) {
        int domain = 0;
        socklen_t length = sizeof(domain);
        local += getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 &&
                 domain == AF_UNIX;
      }
      _exit(local);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (i == 0) before = WEXITSTATUS(status);
    EXPECT_EQ(WEXITSTATUS(status), before);
  }
  EXPECT_GT(before, 0);
}

// Time-outs apply to the program, not to the carrying threads.
TEST_F(PreloadTest, ConnectionsThatForkSharesKeepTheirTimeouts) {
  Listen();
  const timeval timeout = {.tv_sec = 0, .tv_usec = 50000};
  ASSERT_EQ(
      setsockopt(listener_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)),
      0);
  Connect();
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(Poll(server_, POLLIN, 200), 0) << "it has ended";
  char byte;
  EXPECT_EQ(recv(server_, &byte, 1, 0), -1);
  EXPECT_EQ(errno, EAGAIN);
  Send(client_, "a");
  EXPECT_EQ(Poll(server_, POLLIN), POLLIN);
  EXPECT_EQ(Receive(server_, 1), "a");
}

// Non-blocking connections are carried by blocking threads.
TEST_F(PreloadTest, NonblockingConnectionsAreCarried) {
  constexpr size_t kMuch = 3 << 20;
  Connect();
  ASSERT_EQ(fcntl(server_, F_SETFL, O_NONBLOCK), 0);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(fcntl(server_, F_SETFL, 0), 0);
  const std::string bytes(kMuch, 'a');
  for (const auto& [from, to] :
       {std::pair(server_, client_), std::pair(client_, server_)}) {
    std::thread sends([&, fd = from] { Send(fd, bytes); });
    EXPECT_TRUE(Receive(to, kMuch) == bytes);
    sends.join();
  }
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
