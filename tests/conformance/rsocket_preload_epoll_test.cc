// epoll(7) over librspreload.so.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rxe_user/testing/watched_thread.h"
#include "tests/conformance/rsocket_preload_fixture.h"

namespace conformance {
namespace {

using PreloadedEpollTest = PreloadTest;

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

}  // namespace
}  // namespace conformance
