// Replies over XRC. Each end has two queue pairs: its initiator sends the
// replies to messages that its target receives. RXE_USER_LANES sets the number
// of lanes they may be in.
#include <fcntl.h>
#include <poll.h>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

constexpr uint32_t kBytes = 8;
constexpr int kMessages = 1000;

class XrcAnswersTest : public PairTest {
 protected:
  // As in perftest: one channel for both completion queues, and one slot in the
  // send queue.
  struct End {
    ibv_comp_channel* channel = nullptr;
    Side initiator;  // its CQ is that of sends
    ibv_cq* received = nullptr;
    ibv_xrcd* domain = nullptr;
    ibv_srq* srq = nullptr;
    ibv_qp* target = nullptr;
  };

  XrcAnswersTest() { make_pair_ = false; }

  void SetUp() override {
    PairTest::SetUp();
    for (End& end : ends_) Make(&end);
    for (int i = 0; i < 2 && !HasFatalFailure(); ++i) {
      End& from = ends_[i];
      End& to = ends_[1 - i];
      ASSERT_EQ(ToRts(from.initiator.qp, to.target->qp_num), 0);
      ASSERT_EQ(ToRts(to.target, from.initiator.qp->qp_num), 0);
    }
  }
  void TearDown() override {
    for (End& end : ends_) {
      EXPECT_EQ(ibv_destroy_qp(end.target), 0);
      EXPECT_EQ(ibv_destroy_srq(end.srq), 0);
      EXPECT_EQ(ibv_close_xrcd(end.domain), 0);
      EXPECT_EQ(ibv_destroy_cq(end.received), 0);
      DestroySide(&end.initiator);
      EXPECT_EQ(ibv_destroy_comp_channel(end.channel), 0);
    }
    PairTest::TearDown();
  }

  void Make(End* end) {
    end->channel = ibv_create_comp_channel(context_);
    ASSERT_NE(end->channel, nullptr);
    QpOptions options = {.type = IBV_QPT_XRC_SEND};
    options.cap.max_send_wr = 1;
    MakeSide(&end->initiator, options, 16, end->channel, 4096);
    end->received = ibv_create_cq(context_, 64, nullptr, end->channel, 0);
    ASSERT_NE(end->received, nullptr);
    ibv_xrcd_init_attr domain = {};
    domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    domain.fd = -1;
    domain.oflags = O_CREAT;
    end->domain = ibv_open_xrcd(context_, &domain);
    ASSERT_NE(end->domain, nullptr);
    ibv_srq_init_attr_ex srq = {};
    srq.attr = {16, 1, 0};
    srq.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                    IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    srq.srq_type = IBV_SRQT_XRC;
    srq.pd = pd_;
    srq.xrcd = end->domain;
    srq.cq = end->received;
    end->srq = ibv_create_srq_ex(context_, &srq);
    ASSERT_NE(end->srq, nullptr);
    ibv_qp_init_attr_ex target = {};
    target.qp_type = IBV_QPT_XRC_RECV;
    target.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    target.xrcd = end->domain;
    end->target = ibv_create_qp_ex(context_, &target);
    ASSERT_NE(end->target, nullptr);
    for (int i = 0; i < 4; ++i) PostReceive(end);
    ASSERT_EQ(ibv_req_notify_cq(end->initiator.cq, 0), 0);
    ASSERT_EQ(ibv_req_notify_cq(end->received, 0), 0);
  }

  void PostReceive(End* end) {
    ibv_sge sge = end->initiator.Sge(2048, kBytes);
    ibv_recv_wr wr = {0, nullptr, &sge, 1};
    ibv_recv_wr* bad;
    ASSERT_EQ(ibv_post_srq_recv(end->srq, &wr, &bad), 0);
  }
  void Send(End* end, const End& to) {
    uint32_t srqn = 0;
    ASSERT_EQ(ibv_get_srq_num(to.srq, &srqn), 0);
    ibv_sge sge = end->initiator.Sge(0, kBytes);
    ibv_send_wr wr = {};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.qp_type.xrc.remote_srqn = srqn;
    ibv_send_wr* bad;
    ASSERT_EQ(ibv_post_send(end->initiator.qp, &wr, &bad), 0);
  }
  // Expects an event of `cq`, which has a completion. With poll(2), progress is
  // left to other threads.
  void ExpectEvent(End* end, ibv_cq* cq, bool by_poll) {
    pollfd readable = {end->channel->fd, POLLIN, 0};
    if (by_poll) {
      ASSERT_EQ(poll(&readable, 1, kTimeoutMs), 1);
    }
    ibv_cq* found = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(end->channel, &found, &cq_context), 0);
    ibv_ack_cq_events(found, 1);
    ASSERT_EQ(found, cq) << (cq == end->received ? "an ACK" : "an answer")
                         << " came first";
    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
    ibv_wc wc;
    ASSERT_EQ(ibv_poll_cq(cq, 1, &wc), 1);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  }

  End ends_[2];
};

TEST_F(XrcAnswersTest, ComeAfterTheAckOfTheirRequest) {
  Send(&ends_[0], ends_[1]);
  for (int i = 0; i < kMessages && !HasFatalFailure(); ++i) {
    End* const end = &ends_[(i + 1) % 2];
    const End& peer = ends_[i % 2];
    const bool by_poll = i % 4 < 2;
    // This message answers the previous reply.
    if (i > 0) ExpectEvent(end, end->initiator.cq, by_poll);
    if (!HasFatalFailure()) ExpectEvent(end, end->received, by_poll);
    PostReceive(end);
    if (!HasFatalFailure()) Send(end, peer);
  }
}

}  // namespace
}  // namespace conformance
