// ibv_create_cq_ex(3) and its iterator.
#include <time.h>

#include <set>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class ExtendedCqTest : public PairTest {
 protected:
  ExtendedCqTest() { make_pair_ = false; }

  ibv_cq_ex* Create(uint64_t wc_flags, uint32_t flags = 0, uint32_t cqe = 64) {
    ibv_cq_init_attr_ex attr = {};
    attr.cqe = cqe;
    attr.wc_flags = wc_flags;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attr.flags = flags;
    return ibv_create_cq_ex(context_, &attr);
  }

  // Creates two sides whose completions go to `cq`.
  void MakePairOn(ibv_cq_ex* cq) {
    for (Side* side : {&a_, &b_}) {
      MakeSide(side);
      DestroyQp(side);
      ibv_qp_init_attr attr = {};
      attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
      attr.cap = {16, 16, 1, 1, 0};
      attr.qp_type = IBV_QPT_RC;
      side->qp = ibv_create_qp(pd_, &attr);
      ASSERT_NE(side->qp, nullptr);
    }
    Connect(&a_, &b_);
  }

  int StartWithin(ibv_cq_ex* cq, int ms) {
    const int64_t until = NowMs() + ms;
    ibv_poll_cq_attr attr = {};
    int error;
    do {
      error = ibv_start_poll(cq, &attr);
    } while (error == ENOENT && NowMs() < until);
    return error;
  }
};

TEST_F(ExtendedCqTest, ReadsEveryField) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const uint64_t begin = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 +
                         static_cast<uint64_t>(now.tv_nsec);
  ibv_cq_ex* cq =
      Create(uint64_t{IBV_WC_STANDARD_FLAGS} |
             uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP} |
             uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK});
  ASSERT_NE(cq, nullptr);
  MakePairOn(cq);
  EXPECT_EQ(StartWithin(cq, 1), ENOENT);
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(Receive(b_, 100 + i, 0, 64), 0);
    ibv_sge sge = a_.Sge(0, 20);
    ibv_send_wr wr = {};
    wr.wr_id = i;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.imm_data = 1000 + static_cast<uint32_t>(i);
    ibv_send_wr* bad;
    ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  }
  uint64_t sent = 0, received = 0;
  while (sent + received < 6) {
    ASSERT_EQ(StartWithin(cq, kTimeoutMs), 0);
    do {
      EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
      EXPECT_EQ(ibv_wc_read_vendor_err(cq), 0u);
      ibv_values_ex values = {};
      values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
      ASSERT_EQ(ibv_query_rt_values_ex(context_, &values), 0);
      const auto clock = static_cast<uint64_t>(values.raw_clock.tv_nsec);
      EXPECT_LE(ibv_wc_read_completion_ts(cq), clock);
      EXPECT_GT(ibv_wc_read_completion_ts(cq) + 60'000'000'000, clock);
      EXPECT_GE(ibv_wc_read_completion_wallclock_ns(cq) + 1'000'000, begin);
      if (ibv_wc_read_opcode(cq) == IBV_WC_RECV) {
        EXPECT_EQ(cq->wr_id, 100 + received);
        EXPECT_EQ(ibv_wc_read_byte_len(cq), 20u);
        EXPECT_EQ(ibv_wc_read_imm_data(cq), 1000 + received);
        EXPECT_EQ(ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM,
                  unsigned{IBV_WC_WITH_IMM});
        EXPECT_EQ(ibv_wc_read_qp_num(cq), b_.qp->qp_num);
        ++received;
      } else {
        EXPECT_EQ(cq->wr_id, sent);
        EXPECT_EQ(ibv_wc_read_qp_num(cq), a_.qp->qp_num);
        ++sent;
      }
      EXPECT_EQ(ibv_wc_read_slid(cq), 0u);
      EXPECT_EQ(ibv_wc_read_sl(cq), 0u);
      EXPECT_EQ(ibv_wc_read_dlid_path_bits(cq), 0u);
    } while (ibv_next_poll(cq) == 0);
    ibv_end_poll(cq);
  }
  DestroyQp(&a_);
  DestroyQp(&b_);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

// The two clocks of a completion stay consistent, however often and whenever
// they are read.
TEST_F(ExtendedCqTest, WallClockKeepsOrderAndDistances) {
  ibv_cq_ex* cq =
      Create(uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP} |
             uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK});
  ASSERT_NE(cq, nullptr);
  MakePairOn(cq);
  std::set<uint64_t> between;
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, i, 0, 8, IBV_SEND_SIGNALED,
                   b_.address(), b_.mr->rkey),
              0);
    ASSERT_EQ(StartWithin(cq, kTimeoutMs), 0);
    for (int again = 0; again < 100; ++again) {
      between.insert(ibv_wc_read_completion_wallclock_ns(cq) -
                     ibv_wc_read_completion_ts(cq));
    }
    ibv_end_poll(cq);
  }
  // A larger difference only occurs if the clock is set meanwhile.
  EXPECT_EQ(between.size(), 1u);
  DestroyQp(&a_);
  DestroyQp(&b_);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST_F(ExtendedCqTest, PostingBetweenStartAndEnd) {
  ibv_cq_ex* cq = Create(IBV_WC_STANDARD_FLAGS);
  ASSERT_NE(cq, nullptr);
  MakePairOn(cq);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 0, 0, 8, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  ASSERT_EQ(StartWithin(cq, kTimeoutMs), 0);
  for (uint64_t i = 1; i < 10; ++i) {
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, i, 0, 8, IBV_SEND_SIGNALED,
                   b_.address(), b_.mr->rkey),
              0);
  }
  uint64_t next = 1;
  const int64_t until = NowMs() + kTimeoutMs;
  while (next < 10 && NowMs() < until) {
    if (ibv_next_poll(cq) != 0) continue;
    EXPECT_EQ(cq->wr_id, next++);
  }
  EXPECT_EQ(next, 10u);
  ibv_end_poll(cq);
  DestroyQp(&a_);
  DestroyQp(&b_);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST_F(ExtendedCqTest, OverrunMayBeIgnored) {
  ibv_cq_ex* cq =
      Create(IBV_WC_STANDARD_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, 2);
  ASSERT_NE(cq, nullptr);
  MakePairOn(cq);
  const auto capacity = static_cast<uint64_t>(cq->cqe);
  const uint64_t posts = capacity + 8;
  a_.memory[0] = 1;
  for (uint64_t i = 0; i < posts; ++i) {
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, i, 0, 8, IBV_SEND_SIGNALED,
                   b_.address(8 * i), b_.mr->rkey),
              0);
  }
  AwaitUnpolled(a_, &b_.memory[8 * (posts - 1)]);
  EXPECT_EQ(StateOf(a_.qp), IBV_QPS_RTS);
  // The newest completions are there.
  ASSERT_EQ(StartWithin(cq, kTimeoutMs), 0);
  EXPECT_GE(cq->wr_id, posts - capacity);
  ibv_end_poll(cq);
  DestroyQp(&a_);
  DestroyQp(&b_);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST_F(ExtendedCqTest, RefusesUnsupportedFlags) {
  errno = 0;
  EXPECT_EQ(Create(IBV_WC_EX_WITH_CVLAN), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(Create(IBV_WC_EX_WITH_TM_INFO), nullptr);
  EXPECT_EQ(Create(0, 1u << 20), nullptr);
  EXPECT_EQ(Create(0, 0, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace conformance
