// A port with an ArrivalBell: polls make no system calls while nothing arrives.
#include "rxe_user/ports/arrival_bell.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <thread>
#include <vector>

#include "rxe_user/base/unique_fd.h"
#include "rxe_user/ports/uring_port_fixture.h"
#include "rxe_user/testing/refused_calls.h"
#include "rxe_user/testing/watched_thread.h"

namespace rxe_user {
namespace {

class ArrivalBellTest : public UringPortTest {
 protected:
  // Polls until 100 polls in a row make no system call. False if that never
  // happens, or if something arrives.
  bool BecomesQuiet() {
    for (int i = 0; i < 1000; ++i) {
      const uint64_t before = port_->counters().rx_calls;
      for (int j = 0; j < 100; ++j) {
        if (!port_->Receive(false).empty()) return false;
      }
      if (port_->counters().rx_calls == before) return true;
    }
    return false;
  }
};

TEST_F(ArrivalBellTest, AnEmptyPollIsNoSystemCall) {
  std::thread([&] {
    ASSERT_TRUE(BecomesQuiet());
    if (!RefuseCall(__NR_io_uring_enter, EIO)) {
      GTEST_SKIP() << "no seccomp filter here";
    }
    for (int i = 0; i < 10'000; ++i) port_->Receive(false);
    EXPECT_EQ(port_->counters().rx_errors, 0u);
    // The filter works: an error is counted.
    SendFromElsewhere(local_.address, 100);
    port_->Receive(false);
    EXPECT_NE(port_->counters().rx_errors, 0u);
  }).join();
}

TEST_F(ArrivalBellTest, ThePollAfterAnArrivalFindsIt) {
  LocalAddress other;
  other.address = *wire::IpAddress::Parse("127.0.0.2");
  ASSERT_TRUE(port_->AddReceiver(other, Bind(other)).ok());
  for (uint8_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(BecomesQuiet());
    const LocalAddress& to = i % 3 == 0 ? other : local_;
    SendFromElsewhere(to.address, 100, i);
    const auto batches = port_->Receive(false);
    ASSERT_EQ(batches.size(), 1u);
    EXPECT_EQ(batches[0].bytes[0], i);
    EXPECT_EQ(batches[0].destination, to.address);
    // Other threads that poll see the same.
    std::thread([&] {
      EXPECT_TRUE(port_->Receive(false).empty());
      SendFromElsewhere(to.address, 100, i);
      EXPECT_EQ(ReceiveOnce(false), std::vector<int>{i});
    }).join();
  }
}

TEST_F(ArrivalBellTest, ASocketThatIsAddedLaterIsPolled) {
  ASSERT_TRUE(BecomesQuiet());
  LocalAddress other;
  other.address = *wire::IpAddress::Parse("127.0.0.2");
  ASSERT_TRUE(port_->AddReceiver(other, Bind(other)).ok());
  SendFromElsewhere(other.address, 100, 5);
  bool found = false;
  for (int i = 0; i < 8 && !found; ++i) found = !ReceiveOnce(false).empty();
  EXPECT_TRUE(found);
  ASSERT_TRUE(BecomesQuiet());
  SendFromElsewhere(other.address, 100, 6);
  EXPECT_EQ(ReceiveOnce(false), std::vector<int>{6});
}

// The address can be bound again: no request holds the socket open.
TEST_F(ArrivalBellTest, ARemovedSocketIsClosedAtOnce) {
  ASSERT_TRUE(BecomesQuiet());
  port_->RemoveReceiver(local_.address);
  const int fd = Bind();
  ASSERT_GE(fd, 0);
  ASSERT_TRUE(port_->AddReceiver(local_, fd).ok());
  ASSERT_TRUE(BecomesQuiet());
  port_.reset();
  const UniqueFd last(Bind());
  EXPECT_TRUE(last.valid());
}

// The same if the bell's owner has ended, or sleeps in another call.
TEST_F(ArrivalBellTest, ASocketThatAnotherThreadHasPolledIsClosedAtOnce) {
  std::thread([&] { EXPECT_TRUE(BecomesQuiet()); }).join();
  port_->RemoveReceiver(local_.address);
  const int fd = Bind();
  ASSERT_GE(fd, 0);
  ASSERT_TRUE(port_->AddReceiver(local_, fd).ok());
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  WatchedThread thread([&] {
    EXPECT_TRUE(BecomesQuiet());
    uint64_t ignored;
    EXPECT_EQ(::read(event.get(), &ignored, sizeof(ignored)),
              static_cast<ssize_t>(sizeof(ignored)));
  });
  ASSERT_TRUE(thread.AwaitSleep());
  port_.reset();
  const UniqueFd last(Bind());
  EXPECT_TRUE(last.valid());
  const uint64_t one = 1;
  ASSERT_EQ(::write(event.get(), &one, sizeof(one)),
            static_cast<ssize_t>(sizeof(one)));
  thread.join();
}

// An owner may stop polling, without telling the port, and sleep in another
// call.
TEST_F(ArrivalBellTest, AnArrivalInterruptsNoThread) {
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  epoll_event watch{};
  watch.events = EPOLLIN;
  ASSERT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, event.get(), &watch), 0);
  int woken_by = -1;  // epoll_wait's result, or errno
  WatchedThread thread([&] {
    ASSERT_TRUE(BecomesQuiet());
    epoll_event got;
    const int count = ::epoll_wait(epoll.get(), &got, 1, -1);
    woken_by = count >= 0 ? count : errno;
  });
  ASSERT_TRUE(thread.AwaitSleep());
  SendFromElsewhere(local_.address, 100, 3);
  EXPECT_EQ(ReceiveOnce(false), std::vector<int>{3});
  const uint64_t one = 1;
  ASSERT_EQ(::write(event.get(), &one, sizeof(one)),
            static_cast<ssize_t>(sizeof(one)));
  thread.join();
  EXPECT_EQ(woken_by, 1);
}

TEST_F(ArrivalBellTest, AnotherThreadFollowsOneThatHasEnded) {
  for (uint8_t i = 0; i < 3; ++i) {
    std::thread([&] { EXPECT_TRUE(BecomesQuiet()); }).join();
    SendFromElsewhere(local_.address, 100, i);
    EXPECT_EQ(ReceiveOnce(false), std::vector<int>{i});
  }
}

// The child closes its copy; the parent's bell continues to work.
TEST_F(ArrivalBellTest, AChildOfForkAbandonsIt) {
  ASSERT_TRUE(BecomesQuiet());
  const pid_t child = ::fork();
  if (child == 0) {
    port_->AbandonInChild();
    port_.reset();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  SendFromElsewhere(local_.address, 100, 9);
  EXPECT_EQ(ReceiveOnce(false), std::vector<int>{9});
  EXPECT_TRUE(BecomesQuiet());
}

// Where the system refuses the bell, polls continue to make system calls.
TEST_F(ArrivalBellTest, WithoutItPollsMakeSystemCalls) {
  std::thread([&] {
    if (!RefuseCall(__NR_io_uring_setup, EPERM)) {
      GTEST_SKIP() << "no seccomp filter here";
    }
    EXPECT_FALSE(BecomesQuiet());
    SendFromElsewhere(local_.address, 100, 4);
    EXPECT_EQ(ReceiveOnce(false), std::vector<int>{4});
  }).join();
}

}  // namespace
}  // namespace rxe_user
