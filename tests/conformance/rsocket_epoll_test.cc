// repoll_create, repoll_ctl, repoll_wait of rsocket(7), compared with epoll(7).
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "rxe_user/testing/watched_thread.h"
#include "tests/conformance/rsocket_fixture.h"

// Debian 12's header does not have them.
extern "C" {
int repoll_create(int flags);
int repoll_ctl(int epoll, int operation, int fd, epoll_event* event);
int repoll_wait(int epoll, epoll_event* events, int most, int timeout);
}

namespace conformance {
namespace {

class RsocketEpollTest : public RsocketTest {
 protected:
  void SetUp() override {
    epoll_ = repoll_create(EPOLL_CLOEXEC);
    ASSERT_GE(epoll_, 0) << std::strerror(errno);
  }
  void TearDown() override {
    if (epoll_ >= 0) {
      EXPECT_EQ(rclose(epoll_), 0);
    }
    RsocketTest::TearDown();
  }

  int Control(int operation, int fd, uint32_t events, uint64_t data = 0) {
    epoll_event event = {.events = events, .data = {.u64 = data}};
    return repoll_ctl(epoll_, operation, fd, &event);
  }
  void Add(int fd, uint32_t events, uint64_t data = 0) {
    ASSERT_EQ(Control(EPOLL_CTL_ADD, fd, events, data), 0)
        << std::strerror(errno);
  }
  // The events that arrive within `timeout` ms.
  std::vector<epoll_event> Wait(int timeout, int most = 10) {
    std::vector<epoll_event> events(static_cast<size_t>(most));
    const int n = repoll_wait(epoll_, events.data(), most, timeout);
    EXPECT_GE(n, 0) << std::strerror(errno);
    events.resize(static_cast<size_t>(std::max(n, 0)));
    return events;
  }
  // Expects exactly one event.
  void ExpectOne(uint32_t wanted, uint64_t data, int timeout = kSoon) {
    const std::vector<epoll_event> events = Wait(timeout);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].events, wanted);
    EXPECT_EQ(events[0].data.u64, data);
  }

  int epoll_ = -1;
};

TEST_F(RsocketEpollTest, SocketsAndOrdinaryDescriptors) {
  Connect();
  const int other = eventfd(0, EFD_CLOEXEC);
  Add(server_, EPOLLIN, 11);
  Add(other, EPOLLIN, uint64_t{22} << 32);
  EXPECT_TRUE(Wait(0).empty());
  SendAll(client_, "hello");
  ExpectOne(EPOLLIN, 11);
  const uint64_t one = 1;
  ASSERT_EQ(write(other, &one, sizeof(one)), 8);
  EXPECT_EQ(Wait(kSoon).size(), 2u);
  EXPECT_EQ(Wait(kSoon, 1).size(), 1u);
  EXPECT_EQ(Receive(server_, 5), "hello");
  ExpectOne(EPOLLIN, uint64_t{22} << 32);
  EXPECT_EQ(close(other), 0);
  EXPECT_TRUE(Wait(0).empty());
}

TEST_F(RsocketEpollTest, LevelsAreReportedAgain) {
  Connect();
  Add(server_, EPOLLIN | EPOLLET, 1);  // EPOLLET is ignored
  SendAll(client_, "ab");
  ExpectOne(EPOLLIN, 1);
  ExpectOne(EPOLLIN, 1);
  EXPECT_EQ(Receive(server_, 1), "a");
  ExpectOne(EPOLLIN, 1);
  EXPECT_EQ(Receive(server_, 1), "b");
  EXPECT_TRUE(Wait(0).empty());
  Add(client_, EPOLLOUT, 2);
  ExpectOne(EPOLLOUT, 2);
}

TEST_F(RsocketEpollTest, AConnectionComes) {
  Listen();
  Add(listener_, EPOLLIN, 5);
  MakeClient();
  rxe_user::WatchedThread connects([&] {
    const LoopbackAddress address(AF_INET, port_);
    EXPECT_EQ(rconnect(client_, address.get(), address.length), 0)
        << std::strerror(errno);
  });
  ExpectOne(EPOLLIN, 5);
  server_ = raccept(listener_, nullptr, nullptr);
  EXPECT_GE(server_, 0);
  connects.join();
}

TEST_F(RsocketEpollTest, ThePeerGoes) {
  Connect();
  Add(server_, EPOLLIN, 3);
  ASSERT_EQ(rclose(std::exchange(client_, -1)), 0);
  const std::vector<epoll_event> events = Wait(kSoon);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].events & EPOLLIN, EPOLLIN);
  EXPECT_EQ(Receive(server_, 1), "");
}

TEST_F(RsocketEpollTest, OnceOnly) {
  Connect();
  Add(server_, EPOLLIN | EPOLLONESHOT, 1);
  SendAll(client_, "a");
  ExpectOne(EPOLLIN, 1);
  EXPECT_TRUE(Wait(0).empty());
  ASSERT_EQ(Control(EPOLL_CTL_MOD, server_, EPOLLIN | EPOLLONESHOT, 2), 0);
  ExpectOne(EPOLLIN, 2);
}

// A waiting thread sees additions, changes and removals.
TEST_F(RsocketEpollTest, ChangesMeanwhile) {
  Connect();
  SendAll(client_, "a");
  ASSERT_EQ(Events(server_, POLLIN, kSoon), POLLIN);
  rxe_user::WatchedThread first([&] { ExpectOne(EPOLLIN, 7, -1); });
  ASSERT_TRUE(first.AwaitSleep());
  Add(server_, EPOLLIN, 7);
  first.join();

  ASSERT_EQ(Control(EPOLL_CTL_MOD, server_, 0), 0);
  rxe_user::WatchedThread second([&] { ExpectOne(EPOLLIN, 8, -1); });
  ASSERT_TRUE(second.AwaitSleep());
  ASSERT_EQ(Control(EPOLL_CTL_MOD, server_, EPOLLIN, 8), 0);
  second.join();
  EXPECT_EQ(Receive(server_, 1), "a");

  const int epoll = epoll_;
  rxe_user::WatchedThread third([&] {
    epoll_event event;
    EXPECT_EQ(repoll_wait(epoll, &event, 1, -1), -1);
    EXPECT_EQ(errno, EBADF);
  });
  ASSERT_TRUE(third.AwaitSleep());
  ASSERT_EQ(Control(EPOLL_CTL_DEL, server_, 0), 0);
  SendAll(client_, "b");
  ASSERT_EQ(Events(server_, POLLIN, kSoon), POLLIN);
  ASSERT_TRUE(third.AwaitSleep());  // the third thread gets no event any more
  ASSERT_EQ(rclose(std::exchange(epoll_, -1)), 0);
  third.join();
}

// Each event goes to one of several threads.
TEST_F(RsocketEpollTest, SeveralThreadsWait) {
  constexpr int kMessages = 200;
  Connect();
  const int end = eventfd(0, EFD_CLOEXEC);
  Add(server_, EPOLLIN | EPOLLONESHOT, 1);
  Add(end, EPOLLIN, 2);
  std::atomic<int> got{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (;;) {
        epoll_event event;
        ASSERT_EQ(repoll_wait(epoll_, &event, 1, -1), 1);
        if (event.data.u64 == 2) return;
        char bytes[16];
        const ssize_t n = rrecv(server_, bytes, sizeof(bytes), MSG_DONTWAIT);
        ASSERT_GT(n, 0) << "two had the same event: " << std::strerror(errno);
        got += static_cast<int>(n);
        ASSERT_EQ(Control(EPOLL_CTL_MOD, server_, EPOLLIN | EPOLLONESHOT, 1),
                  0);
        if (got == kMessages) {
          const uint64_t one = 1;
          ASSERT_EQ(write(end, &one, sizeof(one)), 8);
        }
      }
    });
  }
  for (int i = 0; i < kMessages; ++i) SendAll(client_, "x");
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, kMessages);
  EXPECT_EQ(close(end), 0);
}

TEST_F(RsocketEpollTest, AClosedSocketIsWatchedNoMore) {
  Connect();
  Add(server_, EPOLLIN, 1);
  const int old = server_;
  ASSERT_EQ(rclose(std::exchange(server_, -1)), 0);
  EXPECT_TRUE(Wait(0).empty());
  ASSERT_EQ(rclose(std::exchange(client_, -1)), 0);
  // Another socket with that number is not watched.
  Connect();
  ASSERT_TRUE(client_ == old || server_ == old);
  SendAll(client_, "a");
  SendAll(server_, "a");
  ASSERT_EQ(Events(old, POLLIN, kSoon), POLLIN);
  EXPECT_TRUE(Wait(0).empty());
  EXPECT_EQ(Control(EPOLL_CTL_MOD, old, EPOLLIN), -1);
  EXPECT_EQ(errno, ENOENT);
  Add(old, EPOLLIN, 2);
  ExpectOne(EPOLLIN, 2);
}

// No descriptor starves behind others that are always ready.
TEST_F(RsocketEpollTest, PlacesAreTakenInTurn) {
  Connect();
  // The client may know of the connection before the server.
  ASSERT_EQ(Events(server_, POLLOUT, kSoon), POLLOUT);
  const int other = eventfd(1, EFD_CLOEXEC);
  Add(client_, EPOLLOUT, 1);
  Add(server_, EPOLLOUT, 2);
  Add(other, EPOLLIN, 3);
  for (int round = 0; round < 3; ++round) {
    uint64_t sum = 0;
    for (int i = 0; i < 3; ++i) {
      const std::vector<epoll_event> one = Wait(kSoon, 1);
      ASSERT_EQ(one.size(), 1u);
      sum += uint64_t{1} << (8 * one[0].data.u64);
    }
    EXPECT_EQ(sum, 0x01010100u);
  }
  EXPECT_EQ(close(other), 0);
}

// Nothing remains of an instance that was closed with close(2).
TEST_F(RsocketEpollTest, ANumberThatWasClosedOtherwise) {
  ASSERT_EQ(close(epoll_), 0);
  const int old = std::exchange(epoll_, -1);
  epoll_ = repoll_create(EPOLL_CLOEXEC);
  ASSERT_EQ(epoll_, old);
  const int other = eventfd(1, EFD_CLOEXEC);
  Add(other, EPOLLIN, 3);
  ExpectOne(EPOLLIN, 3);
  EXPECT_EQ(close(other), 0);
}

// The same in a child of fork.
TEST_F(RsocketEpollTest, ANumberThatAChildOfForkHasClosed) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    close(epoll_);
    if (repoll_create(0) != epoll_) _exit(1);
    epoll_event event = {.events = EPOLLIN, .data = {.u32 = 3}};
    const int other = eventfd(1, EFD_CLOEXEC);
    if (repoll_ctl(epoll_, EPOLL_CTL_ADD, other, &event) != 0) _exit(2);
    _exit(repoll_wait(epoll_, &event, 1, kSoon) == 1 ? 0 : 3);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(RsocketEpollTest, WrongCalls) {
  Listen();
  const auto expect = [&](int result, int error) {
    EXPECT_EQ(result, -1);
    EXPECT_EQ(errno, error);
  };
  expect(repoll_create(12345), EINVAL);
  expect(Control(EPOLL_CTL_ADD, epoll_, EPOLLIN), EINVAL);
  expect(Control(EPOLL_CTL_ADD, -1, EPOLLIN), EBADF);
  expect(Control(77, listener_, EPOLLIN), EINVAL);
  expect(Control(EPOLL_CTL_MOD, listener_, EPOLLIN), ENOENT);
  expect(Control(EPOLL_CTL_DEL, listener_, EPOLLIN), ENOENT);
  expect(repoll_ctl(epoll_, EPOLL_CTL_ADD, listener_, nullptr), EFAULT);
  Add(listener_, EPOLLIN);
  expect(Control(EPOLL_CTL_ADD, listener_, EPOLLIN), EEXIST);
  EXPECT_EQ(repoll_ctl(epoll_, EPOLL_CTL_DEL, listener_, nullptr), 0);
  epoll_event event;
  expect(repoll_ctl(listener_, EPOLL_CTL_ADD, 0, &event), EINVAL);
  expect(repoll_wait(listener_, &event, 1, 0), EINVAL);
  expect(repoll_wait(epoll_, &event, 0, 0), EINVAL);
  expect(repoll_wait(epoll_, nullptr, 1, 0), EFAULT);
  EXPECT_EQ(repoll_wait(epoll_, &event, 1, 10), 0);
}

}  // namespace
}  // namespace conformance
