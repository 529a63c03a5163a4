// Twelve programs that hang, and what `rxe-user explain PID` says of each
// (docs/explain.md). None of them has failed: `timeout` is 0, or they wait for
// something that is not the device's.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "rxe_user/observe/explain.h"
#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

using testing::HasSubstr;

class HangingTest : public PairTest {
 protected:
  HangingTest() { make_pair_ = false; }
  void SetUp() override {
    PairTest::SetUp();
    ASSERT_FALSE(HasFatalFailure());
    MakeSide(&a_);
    MakeSide(&b_);
  }
  // Waits forever for an acknowledgement.
  static ConnectOptions Patient() {
    ConnectOptions options;
    options.timeout = 0;
    return options;
  }
  // The explanation of this process, as soon as it has `part`.
  static std::string Await(uint32_t qpn, const std::string& part) {
    std::string text;
    const int64_t limit = NowMs() + kTimeoutMs;
    do {
      text = Explain(qpn);
    } while (text.find(part) == std::string::npos && NowMs() < limit);
    return text;
  }
  static std::string Explain(uint32_t qpn) {
    const auto witnesses = rxe_user::AskWitnesses(0);
    EXPECT_TRUE(witnesses.ok());
    if (!witnesses.ok()) return "";
    for (const rxe_user::Witness& witness : *witnesses) {
      if (witness.pid != getpid()) continue;
      return rxe_user::ExplainQueuePair(witness, qpn, *witnesses) +
             rxe_user::ExplainRefusals(witness);
    }
    return "";
  }
  void Write(Side& from, Side& to, uint64_t wr_id,
             unsigned flags = IBV_SEND_SIGNALED) {
    ASSERT_EQ(Send(from, IBV_WR_RDMA_WRITE, wr_id, 0, 100, flags, to.address(),
                   to.mr->rkey),
              0);
  }
};

// 1
TEST_F(HangingTest, ThePeersQueuePairIsGone) {
  Connect(&a_, &b_, Patient());
  DestroyQp(&b_);
  Write(a_, b_, 1);
  EXPECT_THAT(Await(a_.qp->qp_num, "was destroyed by"),
              HasSubstr("waits for     an acknowledgement of queue pair"));
}

// 2
TEST_F(HangingTest, ThePeersNumberIsWrong) {
  Side c;
  MakeSide(&c);
  ASSERT_EQ(ToRts(a_.qp, b_.qp->qp_num, Patient()), 0);
  ASSERT_EQ(ToRts(b_.qp, c.qp->qp_num, Patient()), 0);
  Write(a_, b_, 1);
  EXPECT_THAT(Await(a_.qp->qp_num, "the number is wrong"),
              HasSubstr("Compare dest_qp_num at both ends"));
  DestroySide(&c);
}

// 3
TEST_F(HangingTest, ThePeerIsNotReadyToReceive) {
  ASSERT_EQ(ToRts(a_.qp, b_.qp->qp_num, Patient()), 0);
  ToInit(b_.qp);
  Write(a_, b_, 1);
  EXPECT_THAT(Await(a_.qp->qp_num, "takes no packets"),
              HasSubstr("Move the peer's queue pair to RTR"));
}

// 4
TEST_F(HangingTest, ThePeerPostsNoReceive) {
  Connect(&a_, &b_);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 100), 0);
  EXPECT_THAT(Await(a_.qp->qp_num, "the RNR timer"),
              HasSubstr("the peer had no receive posted"));
  EXPECT_THAT(Explain(b_.qp->qp_num),
              HasSubstr("none is posted: a SEND of the peer has to wait"));
}

// 5
TEST_F(HangingTest, ARnrTimerOfZero) {
  ConnectOptions options;
  options.min_rnr_timer = 0;
  Connect(&a_, &b_, options);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 100), 0);
  EXPECT_THAT(Await(a_.qp->qp_num, "the RNR timer"),
              HasSubstr("0 means 655.36 ms"));
}

// 6
TEST_F(HangingTest, NobodySends) {
  Connect(&a_, &b_);
  ASSERT_EQ(Receive(b_, 1, 0, 100), 0);
  ASSERT_EQ(Receive(b_, 2, 0, 100), 0);
  EXPECT_THAT(Explain(b_.qp->qp_num),
              HasSubstr("a message of the peer; 2 receives are posted"));
}

// 7
TEST_F(HangingTest, NobodyPolls) {
  Connect(&a_, &b_);
  Write(a_, b_, 1);
  EXPECT_THAT(Await(a_.qp->qp_num, "unpolled"),
              HasSubstr("so the program has to poll it"));
}

// A queue with a channel: 8, not armed; 9, armed too late.
TEST_F(HangingTest, NoEventComes) {
  ibv_comp_channel* const channel = ibv_create_comp_channel(context_);
  ASSERT_NE(channel, nullptr);
  Side c;
  MakeSide(&c, {}, 256, channel);
  Connect(&c, &b_);
  Write(c, b_, 1);
  EXPECT_THAT(Await(c.qp->qp_num, "unpolled"),
              HasSubstr("the queue is not armed"));
  ASSERT_EQ(ibv_req_notify_cq(c.cq, 0), 0);
  EXPECT_THAT(Explain(c.qp->qp_num),
              HasSubstr("Poll once more after ibv_req_notify_cq(3)"));
  DestroySide(&c);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

// 10
TEST_F(HangingTest, TheQueuePairIsInSqd) {
  Connect(&a_, &b_);
  ibv_qp_attr to = {};
  to.qp_state = IBV_QPS_SQD;
  ASSERT_EQ(ibv_modify_qp(a_.qp, &to, IBV_QP_STATE), 0);
  Write(a_, b_, 1);
  EXPECT_THAT(Explain(a_.qp->qp_num),
              HasSubstr("the program, which moved the queue pair to SQD"));
}

// 11
TEST_F(HangingTest, TheSendQueueIsFullOfUnsignaledRequests) {
  Side c;
  QpOptions options;
  options.cap.max_send_wr = 4;
  MakeSide(&c, options);
  Connect(&c, &b_);
  int error = 0;
  // The queue may be longer than asked for.
  for (uint64_t wr_id = 1; error == 0 && wr_id < 10'000; ++wr_id) {
    error =
        Send(c, IBV_WR_RDMA_WRITE, wr_id, 0, 100, 0, b_.address(), b_.mr->rkey);
  }
  ASSERT_EQ(error, ENOMEM);
  EXPECT_THAT(Explain(c.qp->qp_num),
              HasSubstr("ibv_post_send failed with ENOMEM"));
  EXPECT_THAT(Explain(c.qp->qp_num), HasSubstr("the send queue is full"));
  DestroySide(&c);
}

// 12
TEST_F(HangingTest, TheCompletionQueueHasOverrun) {
  Side c;
  MakeSide(&c, {}, 1);
  Connect(&c, &b_);
  ibv_async_event event = {};
  // The queue may be longer than asked for.
  for (int i = 0; i < c.cq->cqe + 1; ++i) {
    Write(c, b_, static_cast<uint64_t>(i));
  }
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  ibv_ack_async_event(&event);
  EXPECT_THAT(
      Await(c.qp->qp_num, "overrun"),
      HasSubstr("completion queue was full, and completions were lost"));
  DestroySide(&c);
}

}  // namespace
}  // namespace conformance
