// Rules of RXE_USER_FAULTS for completions, and for posts that fail.
#include <poll.h>

#include <cerrno>
#include <cstdlib>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

// A process reads its rules once: they name its queue pairs, two in each part.
class CompletionFaultsTest : public PairTest {
 protected:
  void SetUp() override {
    setenv("RXE_USER_FAULTS",
           "complete RETRY_EXC_ERR tx qp=@1 nth=2\n"
           "late-completion rx qp=@4 nth=1|3\n"
           "overrun rx qp=@6 nth=2\n"
           "complete LOC_PROT_ERR rx qp=@8 nth=1\n"
           "fail ibv_post_send ENOMEM nth=10\n"
           "fail ibv_post_recv EINVAL nth=9",
           1);
    make_pair_ = false;
    PairTest::SetUp();
  }
  void TearDown() override {
    PairTest::TearDown();
    unsetenv("RXE_USER_FAULTS");
  }
  void MakePair(ibv_comp_channel* channel = nullptr) {
    MakeSide(&a_);
    MakeSide(&b_, {}, 256, channel);
    Connect(&a_, &b_);
  }
  void DestroyPair() {
    DestroySide(&a_);
    DestroySide(&b_);
  }
  void SendOne(uint64_t wr_id) {
    ASSERT_EQ(Receive(b_, wr_id, 0, 64), 0);
    ASSERT_EQ(Send(a_, IBV_WR_SEND, wr_id, 0, 64), 0);
  }
  // The next asynchronous event.
  ibv_event_type Event() {
    pollfd wait = {context_->async_fd, POLLIN, 0};
    EXPECT_EQ(poll(&wait, 1, kTimeoutMs), 1);
    ibv_async_event event;
    EXPECT_EQ(ibv_get_async_event(context_, &event), 0);
    ibv_ack_async_event(&event);
    return event.event_type;
  }
  static bool HasEvent(ibv_comp_channel* channel) {
    pollfd wait = {channel->fd, POLLIN, 0};
    return poll(&wait, 1, 0) == 1;
  }
};

TEST_F(CompletionFaultsTest, EachHitsTheCompletionThatItNames) {
  // --- A send that fails: later requests are flushed.
  MakePair();
  SendOne(1);
  ExpectSuccess(a_.cq, 1);
  SendOne(2);
  // The queue pair fails without a poll.
  const int64_t limit = NowMs() + kTimeoutMs;
  while (StateOf(a_.qp) != IBV_QPS_ERR && NowMs() < limit) {
  }
  EXPECT_EQ(StateOf(a_.qp), IBV_QPS_ERR);
  ibv_wc wc = Next(a_.cq);
  EXPECT_EQ(wc.wr_id, 2u);
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(wc.vendor_err, 72u);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 3, 0, 64), 0);
  wc = Next(a_.cq);
  EXPECT_EQ(wc.wr_id, 3u);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(wc.vendor_err, 72u);
  EXPECT_EQ(StateOf(a_.qp), IBV_QPS_ERR);
  // The peer has the messages.
  ExpectSuccess(b_.cq, 1);
  ExpectSuccess(b_.cq, 2);
  EXPECT_EQ(StateOf(b_.qp), IBV_QPS_RTS);
  DestroyPair();

  // --- A receive that arrives between the last empty poll and the arming.
  ibv_comp_channel* const channel = ibv_create_comp_channel(context_);
  ASSERT_NE(channel, nullptr);
  MakePair(channel);
  SendOne(4);
  SendOne(5);
  ExpectSuccess(a_.cq, 4);
  ExpectSuccess(a_.cq, 5);
  // The messages have arrived; the second may not overtake the first.
  EXPECT_EQ(ibv_poll_cq(b_.cq, 1, &wc), 0);
  ASSERT_EQ(ibv_req_notify_cq(b_.cq, 0), 0);
  EXPECT_FALSE(HasEvent(channel));
  ExpectSuccess(b_.cq, 4);
  ExpectSuccess(b_.cq, 5);
  ASSERT_EQ(ibv_req_notify_cq(b_.cq, 0), 0);
  // While the queue is armed nothing is late.
  SendOne(6);
  ExpectSuccess(a_.cq, 6);
  pollfd wait = {channel->fd, POLLIN, 0};
  ASSERT_EQ(poll(&wait, 1, kTimeoutMs), 1);
  ibv_cq* cq;
  void* cq_context;
  ASSERT_EQ(ibv_get_cq_event(channel, &cq, &cq_context), 0);
  ibv_ack_cq_events(cq, 1);
  ExpectSuccess(b_.cq, 6);
  // Nobody arms the queue: the completion still arrives.
  SendOne(7);
  SendOne(8);
  ExpectSuccess(b_.cq, 7);
  ExpectSuccess(b_.cq, 8);
  DestroyPair();
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);

  // --- A completion queue that overruns.
  MakePair();
  SendOne(9);
  ExpectSuccess(b_.cq, 9);
  ASSERT_EQ(Receive(b_, 10, 0, 64), EINVAL);
  ASSERT_EQ(Receive(b_, 10, 0, 64), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 10, 0, 64), ENOMEM);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 10, 0, 64), 0);
  EXPECT_EQ(Event(), IBV_EVENT_CQ_ERR);
  EXPECT_EQ(Event(), IBV_EVENT_QP_FATAL);
  EXPECT_EQ(StateOf(b_.qp), IBV_QPS_ERR);
  DestroyPair();

  // --- A receive that fails.
  MakePair();
  SendOne(11);
  wc = Next(b_.cq);
  EXPECT_EQ(wc.wr_id, 11u);
  EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
  ASSERT_EQ(Receive(b_, 12, 0, 64), 0);
  ExpectStatus(b_.cq, 12, IBV_WC_WR_FLUSH_ERR);
  DestroyPair();
}

}  // namespace
}  // namespace conformance
