// Completion counters as in the manual pages ibv_create_comp_cntr(3),
// ibv_qp_attach_comp_cntr(3) and ibv_query_comp_cntr_caps(3) of rdma-core 65.
// Debian's header does not have them yet.
#include <sched.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/conformance/fixture.h"
#include "verbs_api/supplement/rxe_user_verbs.h"

namespace conformance {
namespace {

using Counter = rxe_user_comp_cntr;

enum : uint32_t {  // op_mask
  kSend = RXE_USER_COMP_CNTR_OP_SEND,
  kReceive = RXE_USER_COMP_CNTR_OP_RECV,
  kRead = RXE_USER_COMP_CNTR_OP_RDMA_READ,
  kRemoteRead = RXE_USER_COMP_CNTR_OP_REMOTE_RDMA_READ,
  kWrite = RXE_USER_COMP_CNTR_OP_RDMA_WRITE,
  kRemoteWrite = RXE_USER_COMP_CNTR_OP_REMOTE_RDMA_WRITE,
};

class CompletionCounterTest : public PairTest {
 protected:
  void SetUp() override {
    make_pair_ = false;
    PairTest::SetUp();
  }
  void TearDown() override {
    DestroySide(&a_);
    DestroySide(&b_);
    for (Counter* counter : counters_) {
      EXPECT_EQ(rxe_user_destroy_comp_cntr(counter), 0);
    }
    DeviceTest::TearDown();
  }

  Counter* Make(uint32_t type = RXE_USER_COMP_CNTR_TYPE_WRS) {
    rxe_user_comp_cntr_init_attr attr = {0, type, 0};
    Counter* counter = rxe_user_create_comp_cntr(context_, &attr);
    EXPECT_NE(counter, nullptr) << strerror(errno);
    counters_.push_back(counter);
    return counter;
  }
  static int Attach(ibv_qp* qp, Counter* counter, uint32_t ops) {
    rxe_user_qp_attach_comp_cntr_attr attr = {0, ops};
    return rxe_user_qp_attach_comp_cntr(qp, counter, &attr);
  }
  static uint64_t Count(Counter* counter) {
    uint64_t value = ~uint64_t{0};
    EXPECT_EQ(rxe_user_read_comp_cntr(counter, &value), 0);
    return value;
  }
  static uint64_t Errors(Counter* counter) {
    uint64_t value = ~uint64_t{0};
    EXPECT_EQ(rxe_user_read_err_comp_cntr(counter, &value), 0);
    return value;
  }
  // Without polling: the device counts by itself.
  static void Await(Counter* counter, uint64_t wanted) {
    const int64_t end = NowMs() + kTimeoutMs;
    while (Count(counter) < wanted && NowMs() < end) sched_yield();
    EXPECT_EQ(Count(counter), wanted);
  }

  std::vector<Counter*> counters_;
};

TEST_F(CompletionCounterTest, ProgramsSetThemAndAddToThem) {
  rxe_user_comp_cntr_caps caps = {};
  ASSERT_EQ(rxe_user_query_comp_cntr_caps(context_, &caps), 0);
  EXPECT_EQ(caps.max_value, UINT64_MAX);
  EXPECT_GE(caps.max_counters, 512u);
  EXPECT_EQ(caps.supported_qp_attach_ops, 0x3fu);
  // Programs with an older and with a newer header.
  caps.max_counters = 7;
  EXPECT_EQ(rxe_user_query_comp_cntr_caps_of_size(context_, &caps,
                                                  sizeof(caps.max_value)),
            0);
  EXPECT_EQ(caps.max_value, UINT64_MAX);
  EXPECT_EQ(caps.max_counters, 7u);
  struct {
    rxe_user_comp_cntr_caps caps;
    uint64_t newer = 7;
  } longer;
  EXPECT_EQ(rxe_user_query_comp_cntr_caps_of_size(context_, &longer.caps,
                                                  sizeof(longer)),
            0);
  EXPECT_EQ(longer.caps.supported_qp_attach_ops, 0x3fu);
  EXPECT_EQ(longer.newer, 0u);

  Counter* counter = Make();
  EXPECT_EQ(counter->context, context_);
  EXPECT_EQ(Count(counter), 0u);
  EXPECT_EQ(rxe_user_set_comp_cntr(counter, UINT64_MAX), 0);
  EXPECT_EQ(rxe_user_inc_comp_cntr(counter, 3), 0);
  EXPECT_EQ(Count(counter), 2u);
  EXPECT_EQ(Errors(counter), 0u);
  EXPECT_EQ(rxe_user_set_err_comp_cntr(counter, 40), 0);
  EXPECT_EQ(rxe_user_inc_err_comp_cntr(counter, 2), 0);
  EXPECT_EQ(Errors(counter), 42u);
  EXPECT_EQ(Count(counter), 2u);
}

TEST_F(CompletionCounterTest, BadArguments) {
  rxe_user_comp_cntr_init_attr attr = {};
  EXPECT_EQ(rxe_user_create_comp_cntr(nullptr, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rxe_user_create_comp_cntr(context_, nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  for (rxe_user_comp_cntr_init_attr unknown :
       {rxe_user_comp_cntr_init_attr{1, 0, 0},
        rxe_user_comp_cntr_init_attr{0, 2, 0},
        rxe_user_comp_cntr_init_attr{0, 0, 1}}) {
    EXPECT_EQ(rxe_user_create_comp_cntr(context_, &unknown), nullptr);
    EXPECT_EQ(errno, ENOTSUP);
  }
  Counter* counter = Make();
  EXPECT_EQ(rxe_user_read_comp_cntr(counter, nullptr), EINVAL);
  EXPECT_EQ(rxe_user_read_comp_cntr(nullptr, nullptr), EINVAL);
  EXPECT_EQ(rxe_user_inc_comp_cntr(nullptr, 1), EINVAL);
  EXPECT_EQ(rxe_user_destroy_comp_cntr(nullptr), EINVAL);
  EXPECT_EQ(rxe_user_query_comp_cntr_caps(context_, nullptr), EINVAL);

  MakeSide(&a_);
  EXPECT_EQ(Attach(a_.qp, counter, 0), EINVAL);
  EXPECT_EQ(Attach(a_.qp, counter, kSend | 1 << 6), ENOTSUP);
  EXPECT_EQ(Attach(a_.qp, nullptr, kSend), EINVAL);
  EXPECT_EQ(Attach(nullptr, counter, kSend), EINVAL);
  EXPECT_EQ(rxe_user_qp_attach_comp_cntr(a_.qp, counter, nullptr), EINVAL);
  EXPECT_EQ(Attach(a_.qp, counter, kSend | kWrite), 0);
  EXPECT_EQ(Attach(a_.qp, Make(), kRead | kWrite), EBUSY);
  EXPECT_EQ(rxe_user_destroy_comp_cntr(counter), EBUSY);
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
  Counter* const sends = Make();
  Counter* const transfers = Make();
  Counter* const receives = Make();
  Counter* const reads_here = Make();
  Counter* const writes_here = Make();
  ASSERT_EQ(Attach(a_.qp, sends, kSend), 0);
  ASSERT_EQ(Attach(a_.qp, transfers, kRead | kWrite), 0);
  ASSERT_EQ(Attach(b_.qp, receives, kReceive), 0);
  ASSERT_EQ(Attach(b_.qp, reads_here, kRemoteRead), 0);
  ASSERT_EQ(Attach(b_.qp, writes_here, kRemoteWrite), 0);
  Connect(&a_, &b_);

  const uint64_t remote = b_.address(4096);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(Receive(b_, i, 0, 64), 0);
  // Unsignaled requests are counted too.
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
  for (Counter* counter : counters_) EXPECT_EQ(Errors(counter), 0u);
  ExpectNothing(a_.cq);
}

TEST_F(CompletionCounterTest, BytesOfSeveralQueuePairs) {
  MakeSide(&a_);
  MakeSide(&b_);
  Counter* const bytes = Make(RXE_USER_COMP_CNTR_TYPE_BYTES);
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

TEST_F(CompletionCounterTest, FailuresAreCountedSeparately) {
  MakeSide(&a_);
  MakeSide(&b_);
  Counter* const requests = Make();
  Counter* const receives = Make();
  ASSERT_EQ(Attach(a_.qp, requests, kSend | kWrite), 0);
  ASSERT_EQ(Attach(b_.qp, receives, kReceive), 0);
  Connect(&a_, &b_);
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  ASSERT_EQ(Receive(b_, 2, 0, 64), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 3, 0, 64), 0);
  // The R_Key is wrong; later requests are flushed.
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

// A program that counts need not poll: an unsignaled request is no longer
// outstanding when it was counted. A signaled request stays outstanding until
// its completion is polled, and so do later requests.
TEST_F(CompletionCounterTest, CountedRequestsFreeTheirSlots) {
  QpOptions options;
  options.cap = {8, 8, 1, 1, 0};
  MakeSide(&a_, options);
  MakeSide(&b_, options);
  Counter* const writes = Make();
  ASSERT_EQ(Attach(a_.qp, writes, kWrite), 0);
  Connect(&a_, &b_);
  const auto write = [this](uint64_t wr_id, unsigned flags) {
    return Send(a_, IBV_WR_RDMA_WRITE, wr_id, 0, 8, flags, b_.address(),
                b_.mr->rkey);
  };
  uint64_t written = 0;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 8; ++i) ASSERT_EQ(write(i, 0), 0);
    Await(writes, written += 8);
  }
  ASSERT_EQ(write(1, IBV_SEND_SIGNALED), 0);
  for (int i = 0; i < 7; ++i) ASSERT_EQ(write(i, 0), 0);
  Await(writes, written += 8);
  EXPECT_EQ(write(99, 0), ENOMEM);
  ExpectSuccess(a_.cq, 1);
  for (int i = 0; i < 8; ++i) ASSERT_EQ(write(i, 0), 0);
  Await(writes, written += 8);
  // A READ is not counted, but counted requests follow it.
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_READ, 2, 0, 8, 0, b_.address(), b_.mr->rkey),
            0);
  ASSERT_EQ(write(3, 0), 0);
  Await(writes, ++written);
  for (int i = 0; i < 8; ++i) ASSERT_EQ(write(i, 0), 0);
  Await(writes, written += 8);
  ExpectNothing(a_.cq);
}

TEST_F(CompletionCounterTest, ThatOfAnotherContext) {
  MakeSide(&a_);
  ibv_context* const other = ibv_open_device(context_->device);
  ASSERT_NE(other, nullptr);
  rxe_user_comp_cntr_init_attr attr = {};
  Counter* const counter = rxe_user_create_comp_cntr(other, &attr);
  ASSERT_NE(counter, nullptr);
  EXPECT_EQ(Attach(a_.qp, counter, kSend), EINVAL);
  // A counter outlives its context.
  EXPECT_EQ(ibv_close_device(other), 0);
  EXPECT_EQ(rxe_user_inc_comp_cntr(counter, 7), 0);
  EXPECT_EQ(Count(counter), 7u);
  EXPECT_EQ(rxe_user_destroy_comp_cntr(counter), 0);
}

}  // namespace
}  // namespace conformance
