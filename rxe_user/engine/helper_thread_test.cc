#include "rxe_user/engine/helper_thread.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

namespace rxe_user {
namespace {

using transport::kMillisecond;
using transport::kNever;
using transport::kSecond;
using transport::Time;

// A helper whose runs are recorded. The test sets the time of the next run.
class HelperThreadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto helper = HelperThread::Create("test", [this](bool) { return Work(); });
    ASSERT_TRUE(helper.ok());
    helper_ = *std::move(helper);
  }
  void TearDown() override { helper_.reset(); }
  void StartAnew() {
    TearDown();
    runs_.clear();
    SetUp();
  }

  Time Work() {
    const std::lock_guard<std::mutex> lock(mutex_);
    runs_.push_back(Lane::Now());
    ran_.notify_all();
    return next_;
  }
  void SetNext(Time next) {
    const std::lock_guard<std::mutex> lock(mutex_);
    next_ = next;
  }
  // Waits for run `count`, counted from 1. Returns when it began.
  Time Await(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    ran_.wait(lock, [&] { return runs_.size() >= count; });
    return runs_[count - 1];
  }
  size_t runs() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return runs_.size();
  }

  std::mutex mutex_;
  std::condition_variable ran_;
  std::vector<Time> runs_;  // guarded by mutex_
  Time next_ = kNever;      // guarded by mutex_
  std::unique_ptr<HelperThread> helper_;
};

TEST_F(HelperThreadTest, RunsAtTheGivenTime) {
  const Time when = Lane::Now() + 20 * kMillisecond;
  SetNext(when);
  ASSERT_TRUE(helper_->Start().ok());
  Await(1);
  SetNext(kNever);
  EXPECT_GE(Await(2), when);
}

// If the deadline was pushed back, the timer still expires, and is set again
// without a run.
TEST_F(HelperThreadTest, DoesNotRunForADeadlineThatWasPushedBack) {
  // Repeats with longer times until the deadline was moved before it expired,
  // which a busy machine may prevent.
  for (Time left = 10 * kMillisecond;; left *= 2) {
    const Time deadline = Lane::Now() + left;
    SetNext(deadline);
    ASSERT_TRUE(helper_->Start().ok());
    Await(1);
    const Time moved = deadline + 50 * kMillisecond;
    SetNext(moved);
    helper_->Wake();
    Await(2);
    if (Lane::Now() < deadline) {
      SetNext(kNever);
      EXPECT_GE(Await(3), moved);
      EXPECT_LE(helper_->timers_set(), 2u);
      return;
    }
    StartAnew();
  }
}

TEST_F(HelperThreadTest, SetsNoTimerForDeadlinesThatArePushedBack) {
  SetNext(Lane::Now() + 1000 * kSecond);
  ASSERT_TRUE(helper_->Start().ok());
  Await(1);
  for (int i = 0; i < 200; ++i) {
    SetNext(Lane::Now() + 1001 * kSecond);
    const size_t before = runs();
    helper_->Wake();
    Await(before + 1);
  }
  EXPECT_EQ(helper_->timers_set(), 1u);
  // An earlier deadline needs a new timer.
  const Time nearer = Lane::Now() + 5 * kMillisecond;
  const size_t before = runs();
  SetNext(nearer);
  helper_->Wake();
  Await(before + 1);
  SetNext(kNever);
  EXPECT_GE(Await(before + 2), nearer);
  EXPECT_LE(helper_->timers_set(), 2u);  // none for a deadline in the past
}

TEST_F(HelperThreadTest, RunsForArmedSockets) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends), 0);
  ASSERT_TRUE(helper_->AddSocket(ends[0], /*armed=*/false));
  ASSERT_TRUE(helper_->Start().ok());
  Await(1);
  ASSERT_EQ(::send(ends[1], "x", 1, 0), 1);
  // If the socket were armed, the helper would run again and again.
  for (size_t i = 2; i < 10; ++i) {
    helper_->Wake();
    Await(i);
    EXPECT_EQ(runs(), i);
  }
  EXPECT_TRUE(helper_->Arm(true));  // arming notices what is already there
  Await(20);
  EXPECT_TRUE(helper_->Arm(true));
  EXPECT_TRUE(helper_->Arm(false));
  EXPECT_TRUE(helper_->Arm(false));
  char byte;
  ASSERT_EQ(::recv(ends[0], &byte, 1, 0), 1);
  helper_->Arm(true);
  const size_t before = runs();
  helper_->Wake();
  Await(before + 1);
  ASSERT_EQ(::send(ends[1], "x", 1, 0), 1);
  Await(before + 10);
  helper_.reset();
  ::close(ends[0]);
  ::close(ends[1]);
}

// The program has closed a descriptor that it does not own, and another process
// holds the socket open, so the socket cannot leave the epoll set.
TEST_F(HelperThreadTest, ASocketClosedByTheProgramCostsLittle) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends), 0);
  ASSERT_TRUE(helper_->AddSocket(ends[0], /*armed=*/true));
  const int other = ::dup(ends[0]);
  ::close(ends[0]);
  ASSERT_EQ(::send(ends[1], "x", 1, 0), 1);
  ASSERT_TRUE(helper_->Start().ok());
  Await(2);
  helper_->Arm(false);
  const size_t before = runs();
  ::poll(nullptr, 0, 200);
  EXPECT_LT(runs() - before, 100u);
  helper_.reset();
  ::close(other);
  ::close(ends[1]);
}

// The same for the thread's own descriptors.
TEST_F(HelperThreadTest, WithoutItsDescriptorsItCostsLittle) {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ASSERT_GE(null, 0);
  ASSERT_TRUE(helper_->Start().ok());
  Await(1);
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string what = std::filesystem::read_symlink(entry, error);
    if (!error && what == "anon_inode:[eventpoll]") {
      ::dup2(null, std::stoi(entry.path().filename()));
    }
  }
  helper_->Wake();  // ends the wait on an epoll set that is gone
  ::poll(nullptr, 0, 200);
  EXPECT_LT(runs(), 100u);
  helper_.reset();
  ::close(null);
}

// Memory files, which epoll refuses.
TEST_F(HelperThreadTest, ReportsWhatCannotBeArmed) {
  const int file = ::memfd_create("x", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  EXPECT_TRUE(helper_->AddSocket(file, /*armed=*/false));
  EXPECT_FALSE(helper_->Arm(true));
  EXPECT_TRUE(helper_->Arm(false));
  EXPECT_FALSE(helper_->AddSocket(file, /*armed=*/true));
  ::close(file);
}

}  // namespace
}  // namespace rxe_user
