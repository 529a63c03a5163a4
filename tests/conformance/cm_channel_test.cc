// How event channels count their events, tested by the system calls that they
// make, also on kernels without some of these calls.
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "rxe_user/testing/watched_thread.h"
#include "tests/conformance/cm_fixture.h"

namespace {

std::atomic<int> reads_without_waiting = 0;
// Before Linux 5.8 eventfds do not support RWF_NOWAIT.
std::atomic<bool> is_old_kernel = false;
// Simulates another thread that took the event and set O_NONBLOCK meanwhile, as
// on old kernels: the next read finds nothing.
std::atomic<bool> finds_nothing = false;

}  // namespace

extern "C" {

int rdma_write_cm_event(rdma_cm_id* id, int event, int status, uint64_t arg);

// Replaces the C library's function; nothing in this file calls it.
__attribute__((visibility("default"))) ssize_t preadv2(int fd, const iovec* to,
                                                       int count, off_t offset,
                                                       int flags) {
  ++reads_without_waiting;
  if (is_old_kernel) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return syscall(SYS_preadv2, fd, to, count, offset, offset >> 31 >> 1, flags);
}

__attribute__((visibility("default"))) ssize_t read(int fd, void* to,
                                                    size_t bytes) {
  if (finds_nothing.exchange(false)) {
    errno = EAGAIN;
    return -1;
  }
  return syscall(SYS_read, fd, to, bytes);
}

// Some compilers replace read by this function if they know the size of `to`.
__attribute__((visibility("default"))) ssize_t __read_chk(int fd, void* to,
                                                          size_t bytes,
                                                          size_t) {
  return read(fd, to, bytes);
}

}  // extern "C"

namespace conformance {
namespace {

constexpr int kUser = 18;  // RDMA_CM_EVENT_USER of the newer header

class CmChannelTest : public CmTest {
 protected:
  void SetUp() override {
    CmTest::SetUp();
    ASSERT_EQ(rdma_create_id(nullptr, &id_, nullptr, RDMA_PS_TCP), 0);
  }
  void TearDown() override {
    EXPECT_EQ(rdma_destroy_id(id_), 0);
    is_old_kernel = false;
    CmTest::TearDown();
  }

  void Resolve(rdma_cm_id* listener = nullptr) {
    const uint16_t port =
        listener != nullptr ? ntohs(rdma_get_src_port(listener)) : 7471;
    EXPECT_EQ(rdma_resolve_addr(id_, nullptr,
                                CmAddress::Loopback(AF_INET, port).get(), 2000),
              0)
        << std::strerror(errno);
  }
  void Write(rdma_cm_id* id, int events, int first = 0) {
    for (int i = 0; i < events; ++i) {
      ASSERT_EQ(rdma_write_cm_event(id, kUser, first + i, 0), 0);
    }
  }

  rdma_cm_id* id_ = nullptr;  // synchronous
};

TEST_F(CmChannelTest, QueuedEventsDoNotSlowAWaitingCall) {
  constexpr int kWaiting = 1000;
  Write(id_, kWaiting);
  reads_without_waiting = 0;
  Resolve();
  EXPECT_EQ(reads_without_waiting, 1);
  for (int i = 0; i < kWaiting; ++i) Next(id_->channel, kUser, i);
  EXPECT_FALSE(IsReadable(id_->channel));
}

TEST_F(CmChannelTest, TakingAnEventLeavesErrno) {
  constexpr int kBefore = ENOTEMPTY;
  Write(id_, 1);
  finds_nothing = true;
  errno = kBefore;
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(id_->channel, &event), 0);
  EXPECT_EQ(errno, kBefore);
  EXPECT_FALSE(finds_nothing);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
  // Calls that take their own event.
  is_old_kernel = true;
  errno = kBefore;
  Resolve();
  EXPECT_EQ(errno, kBefore);
}

TEST_F(CmChannelTest, AnOldKernelClearsTheDescriptor) {
  is_old_kernel = true;
  Write(id_, 2);
  Resolve();
  EXPECT_EQ(rdma_resolve_route(id_, 2000), 0) << std::strerror(errno);
  Next(id_->channel, kUser, 0);
  Next(id_->channel, kUser, 1);
  EXPECT_FALSE(IsReadable(id_->channel));
  // Withdrawn events.
  rdma_cm_id* const other = NewId();
  Write(other, 2);
  EXPECT_EQ(rdma_destroy_id(other), 0);
  EXPECT_FALSE(IsReadable(channel_));
}

// Two waiting calls once took each other's wake-up.
TEST_F(CmChannelTest, AWaitingCallLeavesOtherEvents) {
  constexpr int kRounds = 50;
  rdma_cm_id* const listener = NewListener(AF_INET);
  Resolve(listener);
  ASSERT_EQ(rdma_resolve_route(id_, 2000), 0) << std::strerror(errno);
  rxe_user::WatchedThread connecting([&] {
    rdma_conn_param param = {};
    param.qp_num = 0x1001;
    EXPECT_EQ(rdma_connect(id_, &param), 0) << std::strerror(errno);
  });
  CmEvent request = Next(RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_TRUE(connecting.AwaitSleep());
  for (int i = 0; i < kRounds; ++i) {
    rxe_user::WatchedThread reading([&] { Next(id_->channel, kUser, i); });
    ASSERT_TRUE(reading.AwaitSleep());
    Write(id_, 1, i);
    reading.join();
    if (HasFailure()) break;
  }
  // Events that no call takes keep the descriptor readable.
  Write(id_, 1);
  EXPECT_TRUE(IsReadable(id_->channel));
  rdma_conn_param param = {};
  param.qp_num = 0x1002;
  EXPECT_EQ(rdma_accept(request->id, &param), 0) << std::strerror(errno);
  connecting.join();
  EXPECT_EQ(rdma_establish(id_), 0) << std::strerror(errno);
  Next(RDMA_CM_EVENT_ESTABLISHED);
  Next(id_->channel, kUser, 0);
  EXPECT_FALSE(IsReadable(id_->channel));
  rdma_cm_id* const server = request->id;
  request.Acknowledge();
  EXPECT_EQ(rdma_destroy_id(server), 0);
  EXPECT_EQ(rdma_destroy_id(listener), 0);
}

}  // namespace
}  // namespace conformance
