// Rejected requests and replies, by sender and reason.
#include "transport/cm/connection_fixture.h"
#include "transport/cm/connection_manager.h"

namespace transport::cm {
namespace {

using RejectTest = ConnectionManagerTest;

TEST_F(RejectTest, NobodyListens) {
  active_ = a_.Connect(b_, 0x11, 0);
  a_.SendTo(b_, 0);
  EXPECT_EQ(b_->size(), 0u);
  EXPECT_EQ(b_.SendTo(a_, 0), "CM_REJ ");
  const auto event = a_.NextEvent();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, EventKind::kRejected);
  EXPECT_EQ(RejOf(event->mad).reason, CmRejectReason::kInvalidServiceId);
  EXPECT_EQ(RejOf(event->mad).answered, wire::CmAnswered::kReq);
  EXPECT_EQ(a_->state(active_), State::kIdle);
  // The queue pair is free at once.
  EXPECT_NE(a_.Connect(b_, 0x11, 0), 0u);
}

TEST_F(RejectTest, TheApplicationRejectsWithEveryReason) {
  b_.Listen();
  for (int reason = 1; reason <= 33; ++reason) {
    const CmId id = a_.Connect(b_, 0x100 + reason, now_);
    a_.SendTo(b_, now_);
    const uint8_t info[] = {0x11, 0x12};
    const uint8_t data[] = {0x21};
    const CmId request = b_.NextEvent()->id;
    ASSERT_EQ(b_->Reject(request,
                         {.reason = static_cast<CmRejectReason>(reason),
                          .additional_info = info,
                          .private_data = data},
                         now_),
              Result::kOk);
    b_.SendTo(a_, now_);
    const auto event = a_.NextEvent();
    ASSERT_TRUE(event);
    EXPECT_EQ(event->id, id);
    const wire::CmRej rej = RejOf(event->mad);
    EXPECT_EQ(static_cast<int>(rej.reason), reason);
    EXPECT_EQ(rej.info_length, 2);
    EXPECT_EQ(rej.additional_info[1], 0x12);
    EXPECT_EQ(rej.private_data[0], 0x21);
    b_->Destroy(request, now_);
    a_->Destroy(id, now_);
  }
  EXPECT_EQ(a_->size(), 0u);
  EXPECT_EQ(b_->half_open(), 0u);
  b_->OnTimer(b_->NextTimeout());
  EXPECT_EQ(b_->size(), 0u);
}

TEST_F(RejectTest, ALostRejectIsRetransmitted) {
  b_.Listen();
  active_ = a_.Connect(b_, 0x11, 0);
  const OutgoingMad req = *a_.Sent();
  b_.Receive(req, 0);
  passive_ = b_.NextEvent()->id;
  b_->Reject(passive_, {}, 0);
  EXPECT_EQ(b_.Drop(), "CM_REJ ");
  // The REJ is kept until the peer's last try.
  EXPECT_EQ(b_->NextTimeout(), 16 * kReqWait);
  b_.Receive(req, 15 * kReqWait);
  EXPECT_EQ(b_.SendTo(a_, 15 * kReqWait), "CM_REJ ");
  EXPECT_EQ(b_.Events(), Kinds{});
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kRejected});
  ExpectNothingLeft();
}

TEST_F(RejectTest, ARejectAfterAnMraIsKeptForARetransmission) {
  b_.Listen();
  ConnectOptions options = a_.OptionsFor(b_, 0x11);
  options.req.max_cm_retries = 1;
  a_->Connect(options, 0, &active_);
  a_.SendTo(b_, 0);
  passive_ = b_.NextEvent()->id;
  b_->Delay(passive_, 20);
  b_.SendTo(a_, 0);
  b_->Reject(passive_, {}, 0);
  EXPECT_EQ(b_.Drop(), "CM_REJ ");
  now_ = a_->NextTimeout();
  EXPECT_GT(now_, 4 * kSecond);
  b_->OnTimer(now_);
  a_->OnTimer(now_);
  EXPECT_EQ(a_.SendTo(b_, now_), "CM_REQ ");
  EXPECT_EQ(b_.Events(), Kinds{});
  EXPECT_EQ(b_.SendTo(a_, now_), "CM_REJ ");
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kRejected});
}

TEST_F(RejectTest, TheReplyIsRejected) {
  Request();
  Reply();
  EXPECT_EQ(a_->Reject(active_, {}, now_), Result::kOk);
  EXPECT_EQ(a_.SendTo(b_, now_), "CM_REJ ");
  const auto event = b_.NextEvent();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, EventKind::kRejected);
  EXPECT_EQ(RejOf(event->mad).answered, wire::CmAnswered::kRep);
  EXPECT_EQ(b_->state(passive_), State::kTimeWait);
  ExpectNothingLeft();
}

TEST_F(RejectTest, AReplyWithoutConnectionIsRejected) {
  Request();
  a_->Destroy(active_, now_);
  EXPECT_EQ(a_.Drop(), "CM_REJ ");  // lost
  b_.Accept(passive_, 0x22, now_);
  EXPECT_EQ(b_.SendTo(a_, now_), "CM_REP ");
  EXPECT_EQ(a_.SendTo(b_, now_), "CM_REJ ");
  const auto event = b_.NextEvent();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, EventKind::kRejected);
  EXPECT_EQ(RejOf(event->mad).reason, CmRejectReason::kInvalidCommId);
  ExpectNothingLeft();
}

TEST_F(RejectTest, ReliableDatagramsAreRefused) {
  b_.Listen();
  ConnectOptions options = a_.OptionsFor(b_, 0x11);
  options.req.service = wire::CmService::kRd;
  a_->Connect(options, 0, &active_);
  a_.SendTo(b_, 0);
  b_.SendTo(a_, 0);
  EXPECT_EQ(RejOf(a_.NextEvent()->mad).reason,
            CmRejectReason::kInvalidServiceType);
}

TEST_F(RejectTest, ACommunicationIdWithAnotherQueuePairIsRefused) {
  Request();
  Mad mad;
  wire::CmReq req = a_.OptionsFor(b_, 0x99).req;
  req.local_comm_id = active_;
  wire::EmitCm({}, req, mad);
  b_.Receive({.local = a_.address(), .remote = b_.address(), .bytes = mad}, 0);
  EXPECT_EQ(RejOf(b_.Sent()->bytes).reason,
            CmRejectReason::kDuplicateLocalCommId);
  EXPECT_EQ(b_.Events(), Kinds{});
}

TEST_F(RejectTest, LoadAlternatePathIsRefused) {
  Establish();
  Mad mad;
  wire::EmitCm(
      {}, wire::CmRtu{.local_comm_id = active_, .remote_comm_id = passive_},
      mad);
  mad[17] = static_cast<uint8_t>(wire::CmAttribute::kLap);
  b_.Receive({.local = a_.address(), .remote = b_.address(), .bytes = mad}, 0);
  const OutgoingMad sent = *b_.Sent();
  wire::CmView view;
  ASSERT_EQ(wire::CmView::Parse(sent.bytes, &view), wire::CmParseError::kOk);
  ASSERT_EQ(view.attribute(), wire::CmAttribute::kApr);
  EXPECT_EQ(view.apr().status, wire::CmAprStatus::kUnsupported);
  EXPECT_EQ(b_->state(passive_), State::kEstablished);
}

}  // namespace
}  // namespace transport::cm
