// Bursts of requests to one peer, and undelivered requests.
#include "gtest/gtest.h"
#include "transport/cm/connection_fixture.h"

namespace transport::cm {
namespace {

constexpr Time kHold = 100 * kMillisecond;

// Hosts that have at most two unanswered requests per peer.
class TurnsTest : public testing::Test {
 protected:
  static Config TwoAtATime() {
    Config config;
    config.max_unanswered = 2;
    config.unanswered_hold = kHold;
    return config;
  }
  void Connect(TestHost& to, int count) {
    for (int i = 0; i < count; ++i) {
      ids_.push_back(a_.Connect(to, next_qpn_++, now_));
    }
  }

  TestHost a_{1, TwoAtATime()};
  TestHost b_{2};
  TestHost c_{3};
  std::vector<CmId> ids_;
  uint32_t next_qpn_ = 0x11;
  Time now_ = 0;
};

TEST_F(TurnsTest, RequestsWaitUntilOthersAreAnswered) {
  b_.Listen();
  Connect(b_, 5);
  EXPECT_EQ(a_->counters().held_back, 3u);
  EXPECT_EQ(a_.SendTo(b_, now_), "CM_REQ CM_REQ ");
  for (int i = 0; i < 3; ++i) {
    const auto request = b_.NextEvent();
    ASSERT_TRUE(request);
    ASSERT_EQ(b_.Accept(request->id, 0x100 + i, now_), Result::kOk);
    EXPECT_EQ(b_.SendTo(a_, now_), "CM_REP ");
    // The reply permits the next request.
    EXPECT_EQ(a_.SendTo(b_, now_), "CM_REQ ");
  }
}

TEST_F(TurnsTest, PeersDoNotWaitForEachOther) {
  Connect(b_, 3);
  Connect(c_, 1);
  EXPECT_EQ(a_.Drop(), "CM_REQ CM_REQ CM_REQ ");
}

TEST_F(TurnsTest, ASilentPeerHoldsRequestsBackForALimitedTime) {
  ConnectOptions slow = a_.OptionsFor(b_, 0x31);
  slow.req.remote_cm_response_timeout = 20;  // 4.3 s
  CmId id = 0;
  for (int i = 0; i < 4; ++i, ++slow.req.local_qpn) {
    ASSERT_EQ(a_->Connect(slow, now_, &id), Result::kOk);
  }
  EXPECT_EQ(a_.Drop(), "CM_REQ CM_REQ ");
  EXPECT_EQ(a_->NextTimeout(), kHold);
  now_ = kHold;
  a_->OnTimer(now_);
  EXPECT_EQ(a_.Drop(), "CM_REQ CM_REQ ");
  // The first requests are still retransmitted on time.
  now_ = a_->NextTimeout();
  EXPECT_GT(now_, 4 * kSecond);
  a_->OnTimer(now_);
  EXPECT_EQ(a_.Drop(), "CM_REQ CM_REQ ");
}

TEST_F(TurnsTest, AHeldBackRequestMayBeDestroyed) {
  Connect(b_, 4);
  EXPECT_EQ(a_.Drop(), "CM_REQ CM_REQ ");
  // The peer never received it: no REJ is needed.
  EXPECT_EQ(a_->Destroy(ids_[2], now_), Result::kOk);
  EXPECT_EQ(a_.Drop(), "");
  EXPECT_EQ(a_->Destroy(ids_[0], now_), Result::kOk);
  EXPECT_EQ(a_.Drop(), "CM_REJ CM_REQ ");
  EXPECT_EQ(a_->Destroy(ids_[1], now_), Result::kOk);
  EXPECT_EQ(a_->Destroy(ids_[3], now_), Result::kOk);
  EXPECT_EQ(a_->size(), 0u);
  EXPECT_EQ(a_->NextTimeout(), kNever);
}

class UndeliveredTest : public ConnectionManagerTest {
 protected:
  // The MAD that a_ sent was not delivered.
  void FailDelivery() {
    OutgoingMad mad;
    ASSERT_TRUE(a_->PollTransmit(&mad));
    a_->OnUndelivered(mad, now_);
  }
};

TEST_F(UndeliveredTest, AnUndeliveredRequestIsRetransmittedSoon) {
  ConnectOptions options = a_.OptionsFor(b_, 0x11);
  options.req.remote_cm_response_timeout = 20;
  ASSERT_EQ(a_->Connect(options, now_, &active_), Result::kOk);
  const Time regular = a_->NextTimeout();
  Time wait = Config{}.undelivered_wait;
  for (int i = 0; i < Config{}.undelivered_tries; ++i, wait *= 2) {
    FailDelivery();
    EXPECT_EQ(a_->NextTimeout(), now_ + wait);
    now_ += wait;
    a_->OnTimer(now_);
    EXPECT_EQ(a_->NextTimeout(), regular);
  }
  EXPECT_EQ(a_->counters().undelivered, Config{}.undelivered_tries);
  // Then the normal timeout applies.
  FailDelivery();
  EXPECT_EQ(a_->NextTimeout(), regular);
  // The tries so far do not count: 15 more follow, the first at the normal
  // timeout.
  LetRetry(a_, "CM_REQ ", 15);
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kUnreachable});
}

TEST_F(UndeliveredTest, OtherUndeliveredMessagesHaveNoEffect) {
  Request();
  const Time regular = a_->NextTimeout();
  OutgoingMad mad = {
      .local = a_.address(), .remote = b_.address(), .bytes = {}};
  a_->OnUndelivered(mad, now_);
  wire::CmReq req;
  req.local_comm_id = active_;
  wire::EmitCm({.id = 1}, req, mad.bytes);
  mad.remote = *wire::IpAddress::Parse("10.0.0.9");
  a_->OnUndelivered(mad, now_);
  EXPECT_EQ(a_->NextTimeout(), regular);
  Reply();
  mad.remote = b_.address();
  a_->OnUndelivered(mad, now_);
  EXPECT_EQ(a_->NextTimeout(), kNever);
}

}  // namespace
}  // namespace transport::cm
