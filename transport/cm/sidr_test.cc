// Service ID resolution, as transcripts.
#include <gtest/gtest.h>

#include "transport/cm/test_host.h"

namespace transport::cm {
namespace {

class SidrTest : public testing::Test {
 protected:
  CmId Resolve(Time now = 0) {
    CmId id = 0;
    a_->Resolve({.local = a_.address(),
                 .remote = b_.address(),
                 .timeout = kSecond,
                 .max_retries = 3,
                 .req = {.service_id = TestHost::kService}},
                now, &id);
    return id;
  }
  wire::CmSidrRep RepOf(const Event& event) {
    wire::CmView view;
    EXPECT_EQ(wire::CmView::Parse(event.mad, &view), wire::CmParseError::kOk);
    return view.sidr_rep();
  }

  TestHost a_{1};
  TestHost b_{2};
};

TEST_F(SidrTest, IsResolved) {
  const ListenerId listener = b_.Listen();
  const CmId id = Resolve();
  EXPECT_EQ(a_.SendTo(b_, 0), "CM_SIDR_REQ ");
  const auto request = b_.NextEvent();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->kind, EventKind::kServiceRequest);
  EXPECT_EQ(request->listener, listener);
  EXPECT_EQ(b_->AnswerService(request->id, {.qpn = 0x123, .qkey = 0x456}, 0),
            Result::kOk);
  EXPECT_EQ(b_.SendTo(a_, 0), "CM_SIDR_REP ");
  const auto reply = a_.NextEvent();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->kind, EventKind::kServiceReply);
  EXPECT_EQ(reply->id, id);
  EXPECT_EQ(RepOf(*reply).qpn, 0x123u);
  EXPECT_EQ(RepOf(*reply).qkey, 0x456u);
  EXPECT_EQ(RepOf(*reply).service_id, TestHost::kService);

  EXPECT_EQ(a_->Destroy(id, 0), Result::kOk);
  EXPECT_EQ(b_->Destroy(request->id, 0), Result::kOk);
  EXPECT_EQ(a_->size(), 0u);
  b_->OnTimer(Config{}.sidr_hold);
  EXPECT_EQ(b_->size(), 0u);
  EXPECT_EQ(b_->half_open(), 0u);
}

TEST_F(SidrTest, DuplicatesAreAnsweredFromState) {
  b_.Listen();
  Resolve();
  const auto req = a_.Sent();
  ASSERT_TRUE(req);
  b_.Receive(*req, 0);
  b_.Receive(*req, 0);
  const auto request = b_.NextEvent();
  ASSERT_TRUE(request);
  EXPECT_FALSE(b_.NextEvent());
  EXPECT_EQ(b_.Drop(), "");  // not answered yet
  b_->AnswerService(request->id, {}, 0);
  EXPECT_EQ(b_.Drop(), "CM_SIDR_REP ");
  b_.Receive(*req, kMillisecond);
  EXPECT_EQ(b_.Drop(), "CM_SIDR_REP ");
  // The answer is repeated even after the application has destroyed the
  // request.
  b_->Destroy(request->id, kMillisecond);
  b_.Receive(*req, kMillisecond);
  EXPECT_EQ(b_.Drop(), "CM_SIDR_REP ");
  EXPECT_FALSE(b_.NextEvent());
}

TEST_F(SidrTest, NobodyListens) {
  Resolve();
  a_.SendTo(b_, 0);
  EXPECT_EQ(b_.SendTo(a_, 0), "CM_SIDR_REP ");
  const auto reply = a_.NextEvent();
  ASSERT_TRUE(reply);
  EXPECT_EQ(RepOf(*reply).status, wire::CmSidrStatus::kInvalidServiceId);
  EXPECT_EQ(b_->size(), 0u);
}

TEST_F(SidrTest, IsRetriedUntilTheLimit) {
  const CmId id = Resolve();
  EXPECT_EQ(a_.Drop(), "CM_SIDR_REQ ");
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(a_->NextTimeout(), i * kSecond);
    a_->OnTimer(i * kSecond);
    EXPECT_EQ(a_.Drop(), "CM_SIDR_REQ ");
  }
  EXPECT_EQ(a_.Events(), std::vector<EventKind>{});
  a_->OnTimer(4 * kSecond);
  EXPECT_EQ(a_.Drop(), "");
  EXPECT_EQ(a_.Events(), std::vector<EventKind>{EventKind::kUnreachable});
  EXPECT_EQ(a_->NextTimeout(), kNever);
  EXPECT_EQ(a_->state(id), State::kIdle);
}

TEST_F(SidrTest, AnswersOfOthersAreDropped) {
  b_.Listen();
  const CmId id = Resolve();
  a_.Drop();
  Mad mad;
  wire::EmitCm(
      {}, wire::CmSidrRep{.request_id = id, .service_id = TestHost::kService},
      mad);
  TestHost other(3);
  a_.Receive({.local = other.address(), .remote = a_.address(), .bytes = mad},
             0);
  EXPECT_FALSE(a_.NextEvent());
  EXPECT_EQ(a_->counters().wrong_peer, 1u);
  wire::EmitCm({}, wire::CmSidrRep{.request_id = id, .service_id = 1}, mad);
  a_.Receive({.local = b_.address(), .remote = a_.address(), .bytes = mad}, 0);
  EXPECT_FALSE(a_.NextEvent());
  EXPECT_EQ(a_->counters().wrong_peer, 2u);
}

TEST_F(SidrTest, DestroyingARequestRejectsIt) {
  b_.Listen();
  Resolve();
  a_.SendTo(b_, 0);
  b_->Destroy(b_.NextEvent()->id, 0);
  b_.SendTo(a_, 0);
  const auto reply = a_.NextEvent();
  ASSERT_TRUE(reply);
  EXPECT_EQ(RepOf(*reply).status, wire::CmSidrStatus::kRejected);
}

}  // namespace
}  // namespace transport::cm
