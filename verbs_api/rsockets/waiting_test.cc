// Waiting threads, when the progress of a socket lacks memory.
#include <poll.h>

#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "gtest/gtest.h"
#include "verbs_api/rsockets/poll.h"
#include "verbs_api/rsockets/socket.h"

namespace rsockets {
namespace {

// Its Progress throws at one call.
class FailingSocket final : public Socket {
 public:
  FailingSocket() : Socket(AF_INET, Settings()) { EXPECT_EQ(Open(), 0); }

  // Counts the calls of Progress from now on, or from the next Arm on. It
  // throws at call `call`.
  void FailAt(int call) {
    std::lock_guard<std::mutex> lock(mutex_);
    calls_ = 0;
    fail_at_ = call;
  }
  void FailAfterArm(int call) {
    FailAt(0);
    fail_after_arm_ = call;
  }
  bool failed() const { return failed_; }
  int Wait(const Deadline& deadline) {
    std::unique_lock<std::mutex> lock(mutex_);
    return Await(lock, false, deadline, [] { return false; });
  }
  // Acts as a thread that finds a change.
  void Change() {
    std::lock_guard<std::mutex> lock(mutex_);
    fail_at_ = 0;
    WakeAll(nullptr);
  }

  int type() const override { return SOCK_DGRAM; }
  int Bind(const sockaddr*, socklen_t) override { return 0; }
  int Listen(int) override { return 0; }
  int Accept(std::shared_ptr<Socket>*, sockaddr_storage*) override { return 0; }
  int Connect(const sockaddr*, socklen_t) override { return 0; }
  int Shutdown(int) override { return 0; }
  void Close(Clock::time_point) override {}
  ssize_t Send(IovCursor, int, const sockaddr*, socklen_t) override {
    return 0;
  }
  ssize_t Receive(IovCursor, int, sockaddr*, socklen_t*) override { return 0; }
  int LocalAddress(sockaddr_storage*) override { return 0; }
  int PeerAddress(sockaddr_storage*) override { return 0; }

 protected:
  bool Progress() override {
    if (++calls_ == fail_at_) {
      failed_ = true;
      throw std::bad_alloc();
    }
    return false;
  }
  void Arm() override {
    if (fail_after_arm_ == 0) return;
    calls_ = 0;
    fail_at_ = std::exchange(fail_after_arm_, 0);
  }
  bool Drain() override { return false; }
  short Ready() override { return 0; }
  int Apply(int, int, int) override { return 0; }
  bool HasBuffers() const override { return false; }

 private:
  int calls_ = 0;
  int fail_at_ = 0;
  int fail_after_arm_ = 0;
  bool failed_ = false;
};

// Whether this thread's waiter has been woken.
bool IsWoken() {
  pollfd fd = {
      .fd = Waiter::OfThisThread()->fd(), .events = POLLIN, .revents = 0};
  return poll(&fd, 1, 0) == 1;
}

Deadline Soon() { return Clock::now() + std::chrono::milliseconds(1); }

// The socket fails at each call of Progress in turn, after it is armed.
TEST(WaitingTest, ACallThatLacksMemoryLeavesNoWaiter) {
  const auto socket = std::make_shared<FailingSocket>();
  int failures = 0;
  for (bool failed = true; failed; failures += failed) {
    socket->FailAfterArm(failures + 1);
    failed = false;
    try {
      socket->Wait(Soon());
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    socket->Change();
    ASSERT_FALSE(IsWoken()) << "call " << failures + 1;
  }
  EXPECT_GE(failures, 2);  // before and after waiting
}

TEST(WaitingTest, APollThatLacksMemoryLeavesNoWaiter) {
  const auto good = std::make_shared<FailingSocket>();
  const auto bad = std::make_shared<FailingSocket>();
  Publish(good);
  Publish(bad);
  for (int call = 1; call <= 6; ++call) {
    bad->FailAt(call);
    pollfd fds[] = {{.fd = bad->fd(), .events = POLLIN, .revents = 0},
                    {.fd = good->fd(), .events = POLLIN, .revents = 0}};
    try {
      Poll(fds, 2, Soon());
    } catch (const std::bad_alloc&) {
    }
    good->Change();
    bad->Change();
    ASSERT_FALSE(IsWoken()) << "call " << call;
  }
  EXPECT_TRUE(bad->failed());
  Withdraw(good->fd());
  Withdraw(bad->fd());
}

}  // namespace
}  // namespace rsockets
