// ibv_modify_cq(3): fewer events than completions.
#include <poll.h>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class ModerationTest : public PairTest {
 protected:
  ModerationTest() { make_pair_ = false; }

  void SetUp() override {
    PairTest::SetUp();
    channel_ = ibv_create_comp_channel(context_);
    ASSERT_NE(channel_, nullptr);
    MakeSide(&a_);
    MakeSide(&b_, {}, 256, channel_);
    Connect(&a_, &b_);
    for (uint64_t i = 0; i < 32; ++i) ASSERT_EQ(Receive(b_, i, 0, 64), 0);
  }
  void TearDown() override {
    DestroySide(&a_);
    DestroySide(&b_);
    EXPECT_EQ(ibv_destroy_comp_channel(channel_), 0);
    PairTest::TearDown();
  }

  int Moderate(uint16_t count, uint16_t period) {
    ibv_modify_cq_attr attr = {};
    attr.attr_mask = IBV_CQ_ATTR_MODERATE;
    attr.moderate = {count, period};
    return ibv_modify_cq(b_.cq, &attr);
  }
  // Sends `count` messages to b, until they have completed there.
  void SendMessages(int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 8), 0);
      ExpectSuccess(a_.cq, 1);
    }
  }
  bool EventWaits(int ms) {
    pollfd p = {channel_->fd, POLLIN, 0};
    return poll(&p, 1, ms) == 1;
  }
  void TakeEvent() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &context), 0);
    EXPECT_EQ(cq, b_.cq);
    ibv_ack_cq_events(cq, 1);
  }

  ibv_comp_channel* channel_ = nullptr;
};

TEST_F(ModerationTest, AnEventForSoManyCompletions) {
  ASSERT_EQ(Moderate(4, 0), 0);
  for (uint64_t first = 0; first < 12; first += 4) {
    ASSERT_EQ(ibv_req_notify_cq(b_.cq, 0), 0);
    SendMessages(3);
    EXPECT_FALSE(EventWaits(0));
    ExpectSuccess(b_.cq, first);  // by polling, which is not moderated
    SendMessages(1);
    TakeEvent();
    for (uint64_t i = 1; i < 4; ++i) ExpectSuccess(b_.cq, first + i);
    EXPECT_FALSE(EventWaits(0));
  }
}

TEST_F(ModerationTest, AnEventAfterSoLong) {
  ASSERT_EQ(Moderate(100, 4000), 0);
  ASSERT_EQ(ibv_req_notify_cq(b_.cq, 0), 0);
  const int64_t before = NowMs();
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 8), 0);
  // Without polling, and without waiting in ibv_get_cq_event.
  ASSERT_TRUE(EventWaits(kTimeoutMs));
  EXPECT_GE(NowMs() - before, 3);  // in whole milliseconds
  TakeEvent();
  ExpectSuccess(b_.cq, 0);
  ExpectSuccess(a_.cq, 1);
  // The same by waiting, and without a count.
  ASSERT_EQ(Moderate(0, 100), 0);
  ASSERT_EQ(ibv_req_notify_cq(b_.cq, 0), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 8), 0);
  TakeEvent();
  ExpectSuccess(b_.cq, 1);
}

TEST_F(ModerationTest, OnlySolicitedCompletionsCount) {
  ASSERT_EQ(Moderate(2, 0), 0);
  ASSERT_EQ(ibv_req_notify_cq(b_.cq, 1), 0);
  SendMessages(3);
  EXPECT_FALSE(EventWaits(0));
  for (uint64_t id = 1; id < 3; ++id) {
    EXPECT_FALSE(EventWaits(0));
    ASSERT_EQ(
        Send(a_, IBV_WR_SEND, id, 0, 8, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED),
        0);
    ExpectSuccess(a_.cq, id);
  }
  TakeEvent();
}

TEST_F(ModerationTest, EndsWithZeroes) {
  ASSERT_EQ(Moderate(100, 0), 0);
  ASSERT_EQ(ibv_req_notify_cq(b_.cq, 0), 0);
  SendMessages(1);
  EXPECT_FALSE(EventWaits(0));
  ASSERT_EQ(Moderate(0, 0), 0);
  TakeEvent();
  ASSERT_EQ(ibv_req_notify_cq(b_.cq, 0), 0);
  SendMessages(1);
  TakeEvent();
}

TEST_F(ModerationTest, KeepsToTheReportedLimits) {
  ibv_device_attr_ex device = {};
  ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &device), 0);
  EXPECT_EQ(device.cq_mod_caps.max_cq_count, 0xffff);
  ASSERT_GT(device.cq_mod_caps.max_cq_period, 0);
  ASSERT_LT(device.cq_mod_caps.max_cq_period, 0xffff);
  EXPECT_EQ(Moderate(0xffff, device.cq_mod_caps.max_cq_period), 0);
  EXPECT_EQ(Moderate(1, device.cq_mod_caps.max_cq_period + 1), EINVAL);
  ibv_modify_cq_attr attr = {};
  EXPECT_EQ(ibv_modify_cq(b_.cq, &attr), 0);  // no attribute
  attr.attr_mask = IBV_CQ_ATTR_MODERATE << 1;
  EXPECT_EQ(ibv_modify_cq(b_.cq, &attr), EINVAL);
  // Moderation needs a channel.
  attr.attr_mask = IBV_CQ_ATTR_MODERATE;
  attr.moderate = {4, 100};
  EXPECT_EQ(ibv_modify_cq(a_.cq, &attr), 0);
  SendMessages(1);
}

// Queues are destroyed while an event is delayed for them.
TEST_F(ModerationTest, DestroyedBeforeTheTime) {
  for (int i = 0; i < 50; ++i) {
    Side c, d;
    MakeSide(&c);
    MakeSide(&d, {}, 256, channel_);
    Connect(&c, &d);
    ibv_modify_cq_attr attr = {};
    attr.attr_mask = IBV_CQ_ATTR_MODERATE;
    attr.moderate = {100, static_cast<uint16_t>(1 + i * 10)};
    ASSERT_EQ(ibv_modify_cq(d.cq, &attr), 0);
    ASSERT_EQ(ibv_req_notify_cq(d.cq, 0), 0);
    ASSERT_EQ(Receive(d, 1, 0, 64), 0);
    ASSERT_EQ(Send(c, IBV_WR_SEND, 1, 0, 8), 0);
    ExpectSuccess(c.cq, 1);
    DestroySide(&c);
    DestroySide(&d);
  }
}

}  // namespace
}  // namespace conformance
