// Nothing may wait on the wall clock, which can be set at any time. Here it
// jumps at every read, and the library must never read it.
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "tests/conformance/fixture.h"

namespace {
std::atomic<int> looks = 0;
std::atomic<int> monotonic_looks = 0;
std::atomic<bool> jumping = false;

// Jumps forward and back by an hour.
time_t Jump() {
  if (!jumping) return 0;
  return ++looks % 2 == 0 ? 3600 : -3600;
}
}  // namespace

// Replaces the C library's function, also for the tested library.
#define IN_ITS_PLACE extern "C" __attribute__((visibility("default")))

IN_ITS_PLACE int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long error = syscall(SYS_clock_gettime, clock, now);
  if (error == 0 &&
      (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    now->tv_sec += Jump();
  }
  if (clock == CLOCK_MONOTONIC) ++monotonic_looks;
  return static_cast<int>(error);
}
IN_ITS_PLACE int gettimeofday(timeval* __restrict now,
                              void* __restrict) noexcept {
  timespec exact;
  const int error = clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return error;
}
IN_ITS_PLACE time_t time(time_t* out) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

namespace conformance {
namespace {

class ClockTest : public PairTest {};

TEST_F(ClockTest, NothingReadsTheWallClock) {
  jumping = true;
  time(nullptr);
  ASSERT_EQ(looks.exchange(0), 1);
  // Transfers, found at once and after waiting for an event.
  ibv_comp_channel* channel = ibv_create_comp_channel(context_);
  ASSERT_NE(channel, nullptr);
  Side c, d;
  MakeSide(&c, {}, 256, channel);
  MakeSide(&d);
  ASSERT_FALSE(HasFatalFailure());
  ConnectOptions options;
  options.timeout = 8;  // 1 ms
  options.retry_cnt = 1;
  Connect(&c, &d);
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(ibv_req_notify_cq(c.cq, 0), 0);
    ASSERT_EQ(Send(c, IBV_WR_RDMA_WRITE, i, 0, 100'000, IBV_SEND_SIGNALED,
                   d.address(), d.mr->rkey),
              0);
    ibv_cq* cq;
    void* context;
    ASSERT_EQ(ibv_get_cq_event(channel, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
    ExpectSuccess(c.cq, i);
  }
  // An RNR wait, and retries without a peer. The monotonic clock's counter
  // shows that the library calls these functions.
  const int before = monotonic_looks;
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 100), 0);
  EXPECT_GT(monotonic_looks, before);
  EXPECT_FALSE(Within(a_.cq, 5).has_value());
  ASSERT_EQ(Receive(b_, 2, 0, 100), 0);
  ExpectSuccess(a_.cq, 1);
  ExpectSuccess(b_.cq, 2);
  DestroySide(&d);
  DestroySide(&c);
  MakeSide(&c);
  ASSERT_EQ(ToRts(c.qp, 0xffff00, options), 0);
  ASSERT_EQ(Send(c, IBV_WR_RDMA_WRITE, 3, 0, 8, IBV_SEND_SIGNALED, 0, 0), 0);
  ExpectStatus(c.cq, 3, IBV_WC_RETRY_EXC_ERR);
  DestroySide(&c);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  jumping = false;
  EXPECT_EQ(looks, 0);
}

}  // namespace
}  // namespace conformance
