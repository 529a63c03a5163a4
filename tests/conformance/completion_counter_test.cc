// Completion counters, by what rdma-core 64's manual pages say of
// ibv_create_comp_cntr(3), ibv_qp_attach_comp_cntr(3) and
// ibv_query_comp_cntr_caps(3); Debian's header does not have them yet.
#include <sched.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/conformance/fixture.h"

extern "C" {

struct ibv_comp_cntr {
  ibv_context* context;
  uint32_t handle;
  uint64_t comp_count_max_value;
  uint64_t err_count_max_value;
};
struct ibv_comp_cntr_init_attr {
  uint32_t comp_mask;
  uint32_t type;
  uint32_t flags;
};
struct ibv_qp_attach_comp_cntr_attr {
  uint32_t comp_mask;
  uint32_t op_mask;
};
struct ibv_comp_cntr_caps {
  uint64_t max_value;
  uint32_t max_counters;
  uint32_t supported_qp_attach_ops;
};

int ibv_query_comp_cntr_caps(ibv_context*, ibv_comp_cntr_caps*);
ibv_comp_cntr* ibv_create_comp_cntr(ibv_context*, ibv_comp_cntr_init_attr*);
int ibv_destroy_comp_cntr(ibv_comp_cntr*);
int ibv_qp_attach_comp_cntr(ibv_qp*, ibv_comp_cntr*,
                            ibv_qp_attach_comp_cntr_attr*);
int ibv_read_comp_cntr(ibv_comp_cntr*, uint64_t*);
int ibv_read_err_comp_cntr(ibv_comp_cntr*, uint64_t*);
int ibv_set_comp_cntr(ibv_comp_cntr*, uint64_t);
int ibv_set_err_comp_cntr(ibv_comp_cntr*, uint64_t);
int ibv_inc_comp_cntr(ibv_comp_cntr*, uint64_t);
int ibv_inc_err_comp_cntr(ibv_comp_cntr*, uint64_t);
}

namespace conformance {
namespace {

enum : uint32_t {  // op_mask
  kSend = 1 << 0,
  kReceive = 1 << 1,
  kRead = 1 << 2,
  kRemoteRead = 1 << 3,
  kWrite = 1 << 4,
  kRemoteWrite = 1 << 5,
};
enum : uint32_t { kRequests, kBytes };  // type

class CompletionCounterTest : public PairTest {
 protected:
  void SetUp() override {
    make_pair_ = false;
    PairTest::SetUp();
  }
  void TearDown() override {
    DestroySide(&a_);
    DestroySide(&b_);
    for (ibv_comp_cntr* counter : counters_) {
      EXPECT_EQ(ibv_destroy_comp_cntr(counter), 0);
    }
    DeviceTest::TearDown();
  }

  ibv_comp_cntr* Make(uint32_t type = kRequests) {
    ibv_comp_cntr_init_attr attr = {0, type, 0};
    ibv_comp_cntr* counter = ibv_create_comp_cntr(context_, &attr);
    EXPECT_NE(counter, nullptr) << strerror(errno);
    counters_.push_back(counter);
    return counter;
  }
  static int Attach(ibv_qp* qp, ibv_comp_cntr* counter, uint32_t ops) {
    ibv_qp_attach_comp_cntr_attr attr = {0, ops};
    return ibv_qp_attach_comp_cntr(qp, counter, &attr);
  }
  static uint64_t Count(ibv_comp_cntr* counter) {
    uint64_t value = ~uint64_t{0};
    EXPECT_EQ(ibv_read_comp_cntr(counter, &value), 0);
    return value;
  }
  static uint64_t Errors(ibv_comp_cntr* counter) {
    uint64_t value = ~uint64_t{0};
    EXPECT_EQ(ibv_read_err_comp_cntr(counter, &value), 0);
    return value;
  }
  // Nobody polls: the device counts by itself.
  static void Await(ibv_comp_cntr* counter, uint64_t wanted) {
    const int64_t end = NowMs() + kTimeoutMs;
    while (Count(counter) < wanted && NowMs() < end) sched_yield();
    EXPECT_EQ(Count(counter), wanted);
  }

  std::vector<ibv_comp_cntr*> counters_;
};

TEST_F(CompletionCounterTest, ProgramsSetThemAndAddToThem) {
  ibv_comp_cntr_caps caps = {};
  ASSERT_EQ(ibv_query_comp_cntr_caps(context_, &caps), 0);
  EXPECT_EQ(caps.max_value, UINT64_MAX);
  EXPECT_GE(caps.max_counters, 512u);
  EXPECT_EQ(caps.supported_qp_attach_ops, 0x3fu);

  ibv_comp_cntr* counter = Make();
  EXPECT_EQ(counter->context, context_);
  EXPECT_EQ(counter->comp_count_max_value, UINT64_MAX);
  EXPECT_EQ(counter->err_count_max_value, UINT64_MAX);
  EXPECT_EQ(Count(counter), 0u);
  EXPECT_EQ(ibv_set_comp_cntr(counter, UINT64_MAX), 0);
  EXPECT_EQ(ibv_inc_comp_cntr(counter, 3), 0);
  EXPECT_EQ(Count(counter), 2u);
  EXPECT_EQ(Errors(counter), 0u);
  EXPECT_EQ(ibv_set_err_comp_cntr(counter, 40), 0);
  EXPECT_EQ(ibv_inc_err_comp_cntr(counter, 2), 0);
  EXPECT_EQ(Errors(counter), 42u);
  EXPECT_EQ(Count(counter), 2u);
}

TEST_F(CompletionCounterTest, BadArguments) {
  ibv_comp_cntr_init_attr attr = {};
  EXPECT_EQ(ibv_create_comp_cntr(nullptr, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_create_comp_cntr(context_, nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  for (ibv_comp_cntr_init_attr unknown :
       {ibv_comp_cntr_init_attr{1, 0, 0}, ibv_comp_cntr_init_attr{0, 2, 0},
        ibv_comp_cntr_init_attr{0, 0, 1}}) {
    EXPECT_EQ(ibv_create_comp_cntr(context_, &unknown), nullptr);
    EXPECT_EQ(errno, ENOTSUP);
  }
  ibv_comp_cntr* counter = Make();
  EXPECT_EQ(ibv_read_comp_cntr(counter, nullptr), EINVAL);
  EXPECT_EQ(ibv_read_comp_cntr(nullptr, nullptr), EINVAL);
  EXPECT_EQ(ibv_inc_comp_cntr(nullptr, 1), EINVAL);
  EXPECT_EQ(ibv_destroy_comp_cntr(nullptr), EINVAL);
  EXPECT_EQ(ibv_query_comp_cntr_caps(context_, nullptr), EINVAL);

  MakeSide(&a_);
  EXPECT_EQ(Attach(a_.qp, counter, 0), EINVAL);
  EXPECT_EQ(Attach(a_.qp, counter, kSend | 1 << 6), ENOTSUP);
  EXPECT_EQ(Attach(a_.qp, nullptr, kSend), EINVAL);
  EXPECT_EQ(Attach(nullptr, counter, kSend), EINVAL);
  EXPECT_EQ(ibv_qp_attach_comp_cntr(a_.qp, counter, nullptr), EINVAL);
  EXPECT_EQ(Attach(a_.qp, counter, kSend | kWrite), 0);
  EXPECT_EQ(Attach(a_.qp, Make(), kRead | kWrite), EBUSY);
  EXPECT_EQ(ibv_destroy_comp_cntr(counter), EBUSY);
  ToInit(a_.qp);
  EXPECT_EQ(Attach(a_.qp, counter, kRead), 0);
  ibv_qp_attr rtr = RtrAttributes(a_.qp->qp_num);
  ASSERT_EQ(ibv_modify_qp(a_.qp, &rtr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                              IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            0);
  EXPECT_EQ(Attach(a_.qp, counter, kReceive), EINVAL);
}

TEST_F(CompletionCounterTest, EachKindOfCompletion) {
  MakeSide(&a_);
  MakeSide(&b_);
  ibv_comp_cntr* const sends = Make();
  ibv_comp_cntr* const transfers = Make();
  ibv_comp_cntr* const receives = Make();
  ibv_comp_cntr* const reads_here = Make();
  ibv_comp_cntr* const writes_here = Make();
  ASSERT_EQ(Attach(a_.qp, sends, kSend), 0);
  ASSERT_EQ(Attach(a_.qp, transfers, kRead | kWrite), 0);
  ASSERT_EQ(Attach(b_.qp, receives, kReceive), 0);
  ASSERT_EQ(Attach(b_.qp, reads_here, kRemoteRead), 0);
  ASSERT_EQ(Attach(b_.qp, writes_here, kRemoteWrite), 0);
  Connect(&a_, &b_);

  const uint64_t remote = b_.address(4096);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(Receive(b_, i, 0, 64), 0);
  // Unsignaled ones count as well.
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Send(a_, IBV_WR_SEND, i, 0, 64, 0), 0);
  }
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 4, 0, 5000, 0, remote, b_.mr->rkey), 0);
  ASSERT_EQ(
      Send(a_, IBV_WR_RDMA_WRITE_WITH_IMM, 5, 0, 64, 0, remote, b_.mr->rkey),
      0);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_READ, 6, 0, 3000, 0, remote, b_.mr->rkey),
              0);
  }
  Await(sends, 3);
  Await(transfers, 7);
  Await(receives, 4);
  Await(reads_here, 5);
  Await(writes_here, 2);
  for (ibv_comp_cntr* counter : counters_) EXPECT_EQ(Errors(counter), 0u);
  ExpectNothing(a_.cq);
}

TEST_F(CompletionCounterTest, BytesOfSeveralQueuePairs) {
  MakeSide(&a_);
  MakeSide(&b_);
  ibv_comp_cntr* const bytes = Make(kBytes);
  ASSERT_EQ(Attach(a_.qp, bytes, kSend | kWrite), 0);
  ASSERT_EQ(Attach(b_.qp, bytes, kReceive | kRemoteRead), 0);
  Connect(&a_, &b_);
  ASSERT_EQ(Receive(b_, 1, 0, 4096), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 2, 0, 100, 0), 0);
  ASSERT_EQ(
      Send(a_, IBV_WR_RDMA_WRITE, 3, 0, 5000, 0, b_.address(8192), b_.mr->rkey),
      0);
  ASSERT_EQ(
      Send(a_, IBV_WR_RDMA_READ, 4, 0, 70000, 0, b_.address(8192), b_.mr->rkey),
      0);
  Await(bytes, 100 + 100 + 5000 + 70000);
}

TEST_F(CompletionCounterTest, WhatFailsIsCountedApart) {
  MakeSide(&a_);
  MakeSide(&b_);
  ibv_comp_cntr* const requests = Make();
  ibv_comp_cntr* const receives = Make();
  ASSERT_EQ(Attach(a_.qp, requests, kSend | kWrite), 0);
  ASSERT_EQ(Attach(b_.qp, receives, kReceive), 0);
  Connect(&a_, &b_);
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  ASSERT_EQ(Receive(b_, 2, 0, 64), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 3, 0, 64), 0);
  // The R_Key is wrong; what follows is flushed.
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 4, 0, 64, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey ^ 0x5a),
            0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 5, 0, 64), 0);
  ExpectSuccess(a_.cq, 3);
  ExpectStatus(a_.cq, 4, IBV_WC_REM_ACCESS_ERR);
  ExpectStatus(a_.cq, 5, IBV_WC_WR_FLUSH_ERR);
  ExpectSuccess(b_.cq, 1);
  ExpectStatus(b_.cq, 2, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(Count(requests), 1u);
  EXPECT_EQ(Errors(requests), 2u);
  EXPECT_EQ(Count(receives), 1u);
  EXPECT_EQ(Errors(receives), 1u);
}

TEST_F(CompletionCounterTest, ThatOfAnotherContext) {
  MakeSide(&a_);
  ibv_context* const other = ibv_open_device(context_->device);
  ASSERT_NE(other, nullptr);
  ibv_comp_cntr_init_attr attr = {};
  ibv_comp_cntr* const counter = ibv_create_comp_cntr(other, &attr);
  ASSERT_NE(counter, nullptr);
  EXPECT_EQ(Attach(a_.qp, counter, kSend), EINVAL);
  // It outlives its context.
  EXPECT_EQ(ibv_close_device(other), 0);
  EXPECT_EQ(ibv_inc_comp_cntr(counter, 7), 0);
  EXPECT_EQ(Count(counter), 7u);
  EXPECT_EQ(ibv_destroy_comp_cntr(counter), 0);
}

}  // namespace
}  // namespace conformance
