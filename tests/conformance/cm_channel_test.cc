// How event channels count what waits, by the system calls that it takes, and
// on kernels that have less of them.
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "tests/conformance/cm_fixture.h"

namespace {

std::atomic<int> reads_without_waiting = 0;
// Before Linux 5.8 descriptors of events do not know RWF_NOWAIT.
std::atomic<bool> is_old_kernel = false;

}  // namespace

extern "C" {

int rdma_write_cm_event(rdma_cm_id* id, int event, int status, uint64_t arg);

// In place of the C library's; nothing here calls it.
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

  void Resolve() {
    EXPECT_EQ(rdma_resolve_addr(id_, nullptr,
                                CmAddress::Loopback(AF_INET, 7471).get(), 2000),
              0)
        << std::strerror(errno);
  }
  void Write(rdma_cm_id* id, int events) {
    for (int i = 0; i < events; ++i) {
      ASSERT_EQ(rdma_write_cm_event(id, kUser, i, 0), 0);
    }
  }

  rdma_cm_id* id_ = nullptr;  // synchronous
};

TEST_F(CmChannelTest, WhatWaitsCostsACallThatWaitsNothing) {
  constexpr int kWaiting = 1000;
  Write(id_, kWaiting);
  reads_without_waiting = 0;
  Resolve();
  EXPECT_EQ(reads_without_waiting, 1);
  for (int i = 0; i < kWaiting; ++i) Next(id_->channel, kUser, i);
  EXPECT_FALSE(IsReadable(id_->channel));
}

TEST_F(CmChannelTest, AnOldKernelTellsOfNoEventThatIsNotThere) {
  is_old_kernel = true;
  Write(id_, 2);
  Resolve();
  EXPECT_EQ(rdma_resolve_route(id_, 2000), 0) << std::strerror(errno);
  Next(id_->channel, kUser, 0);
  Next(id_->channel, kUser, 1);
  EXPECT_FALSE(IsReadable(id_->channel));
  // Withdrawn.
  rdma_cm_id* const other = NewId();
  Write(other, 2);
  EXPECT_EQ(rdma_destroy_id(other), 0);
  EXPECT_FALSE(IsReadable(channel_));
}

}  // namespace
}  // namespace conformance
