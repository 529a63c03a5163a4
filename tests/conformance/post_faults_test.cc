// Rules of RXE_USER_FAULTS that name a work request, in a program that lacks
// memory while it posts.
#include <infiniband/verbs.h>
#include <poll.h>

#include <cerrno>
#include <cstdlib>
#include <map>

#include "tests/conformance/fixture.h"
#include "tests/conformance/scarce_malloc.h"

namespace conformance {
namespace {

class PostFaultsTest : public PairTest {
 protected:
  void SetUp() override {
    setenv("RXE_USER_FAULTS",
           "event LID_CHANGE tx wr_id=1\n"
           "event PKEY_CHANGE tx wr_id=9\n"
           "event SM_CHANGE tx wr_id=21 every=1\n"
           "event CLIENT_REREGISTER tx wr_id=22 every=1",
           1);
    PairTest::SetUp();
  }
  void TearDown() override {
    PairTest::TearDown();
    unsetenv("RXE_USER_FAULTS");
  }
  void Move(Side& side, ibv_qp_state state) {
    ibv_qp_attr to = {};
    to.qp_state = state;
    ASSERT_EQ(ibv_modify_qp(side.qp, &to, IBV_QP_STATE), 0);
  }
  // The asynchronous event that has arrived; 0: none.
  int Event() {
    pollfd wait = {context_->async_fd, POLLIN, 0};
    if (poll(&wait, 1, 0) != 1) return 0;
    ibv_async_event event;
    EXPECT_EQ(ibv_get_async_event(context_, &event), 0);
    ibv_ack_async_event(&event);
    return event.event_type;
  }
};

// Requests that were posted earlier stay known. They used to be forgotten in
// place of requests that were refused and had not been recorded.
TEST_F(PostFaultsTest, ARefusedPostWithoutMemoryTakesBackNothingElse) {
  if (!MallocCanBeRefused()) GTEST_SKIP() << "a sanitizer has its own malloc";
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_EQ(Receive(b_, i, 0, 64), 0);
  // Requests are queued, and nothing is sent.
  Move(a_, IBV_QPS_SQD);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 64), 0);

  ibv_sge sge = a_.Sge(0, 64);
  ibv_send_wr list[3] = {};
  for (int i = 0; i < 3; ++i) {
    list[i].wr_id = 2 + i;
    list[i].next = i < 2 ? &list[i + 1] : nullptr;
    list[i].sg_list = &sge;
    list[i].num_sge = i == 1 ? -1 : 1;
    list[i].opcode = IBV_WR_SEND;
    list[i].send_flags = IBV_SEND_SIGNALED;
  }
  ibv_send_wr* bad = nullptr;
  mallocs_left = 0;
  const int error = ibv_post_send(a_.qp, list, &bad);
  mallocs_left = kUnlimited;
  EXPECT_EQ(error, EINVAL);
  EXPECT_EQ(bad, &list[1]);

  ASSERT_EQ(Send(a_, IBV_WR_SEND, 9, 0, 64), 0);
  Move(a_, IBV_QPS_RTS);
  ExpectSuccess(a_.cq, 1);
  EXPECT_EQ(Event(), IBV_EVENT_LID_CHANGE);
  ExpectSuccess(a_.cq, 2);
  ExpectSuccess(a_.cq, 9);
  // Rules do not find requests after one that was not recorded, until all of
  // these are sent. They do not take one message for another.
  EXPECT_EQ(Event(), 0);
  ASSERT_EQ(Receive(b_, 4, 0, 64), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 9, 0, 64), 0);
  ExpectSuccess(a_.cq, 9);
  EXPECT_EQ(Event(), IBV_EVENT_PKEY_CHANGE);
}

// A READ whose list of SGEs is invalid is refused, as without rules.
TEST_F(PostFaultsTest, AReadWithoutValidSgesIsRefused) {
  ibv_sge sge = a_.Sge(0, 64);
  ibv_send_wr wr = {};
  wr.opcode = IBV_WR_RDMA_READ;
  wr.wr.rdma = {b_.address(), b_.mr->rkey};
  for (const int count : {1, 1 << 30, -1}) {
    wr.num_sge = count;
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(a_.qp, &wr, &bad), EINVAL) << count;
    EXPECT_EQ(bad, &wr);
    wr.sg_list = &sge;  // of the others
  }
  ExpectNothing(a_.cq);
}

// A long READ has several request packets. They are one message.
TEST_F(PostFaultsTest, ALongReadIsOneMessage) {
  QpOptions options;
  options.send_ops = IBV_QP_EX_WITH_RDMA_READ;
  DestroySide(&a_);
  DestroySide(&b_);
  MakeSide(&a_, options);
  MakeSide(&b_);
  Connect(&a_, &b_);
  ibv_qp_ex* const qpx = ibv_qp_to_qp_ex(a_.qp);
  ASSERT_NE(qpx, nullptr);
  ibv_wr_start(qpx);
  qpx->wr_flags = IBV_SEND_SIGNALED;
  for (const uint64_t id : {21, 22}) {
    qpx->wr_id = id;
    ibv_wr_rdma_read(qpx, b_.mr->rkey, b_.address());
    ibv_wr_set_sge(qpx, a_.mr->lkey, a_.address(), 256 << 10);
  }
  ASSERT_EQ(ibv_wr_complete(qpx), 0);
  ExpectSuccess(a_.cq, 21);
  ExpectSuccess(a_.cq, 22);
  std::map<int, int> events;
  while (const int event = Event()) ++events[event];
  EXPECT_EQ(events.size(), 2u);
  EXPECT_GT(events[IBV_EVENT_SM_CHANGE], 1);
  EXPECT_GT(events[IBV_EVENT_CLIENT_REREGISTER], 1);
}

}  // namespace
}  // namespace conformance
