// Counts of messages by type.
#include "gtest/gtest.h"
#include "transport/cm/connection_fixture.h"

namespace transport::cm {
namespace {

using wire::CmAttribute;
using MessageCountsTest = ConnectionManagerTest;

TEST_F(MessageCountsTest, CountBothEndsAndEveryType) {
  Establish();
  const Counters& a = a_->counters();
  const Counters& b = b_->counters();
  EXPECT_EQ(a.tx_msgs.Of(CmAttribute::kReq), 1u);
  EXPECT_EQ(b.rx_msgs.Of(CmAttribute::kReq), 1u);
  EXPECT_EQ(b.tx_msgs.Of(CmAttribute::kRep), 1u);
  EXPECT_EQ(a.rx_msgs.Of(CmAttribute::kRep), 1u);
  EXPECT_EQ(a.tx_msgs.Of(CmAttribute::kRtu), 1u);
  EXPECT_EQ(b.rx_msgs.Of(CmAttribute::kRtu), 1u);
  EXPECT_EQ(a.tx_retries.Of(CmAttribute::kReq), 0u);
  ASSERT_EQ(a_->Disconnect(active_, {}, now_), Result::kOk);
  EXPECT_EQ(a_.Drop(), "CM_DREQ ");
  now_ = a_->NextTimeout();
  a_->OnTimer(now_);
  EXPECT_EQ(a_.SendTo(b_, now_), "CM_DREQ ");
  EXPECT_EQ(a.tx_msgs.Of(CmAttribute::kDreq), 2u);
  EXPECT_EQ(a.tx_retries.Of(CmAttribute::kDreq), 1u);
  EXPECT_EQ(b.rx_msgs.Of(CmAttribute::kDreq), 1u);
}

TEST_F(MessageCountsTest, CountDuplicatesSeparately) {
  b_.Listen();
  active_ = a_.Connect(b_, 0x11, now_);
  const auto req = a_.Sent();
  ASSERT_TRUE(req);
  b_.Receive(*req, now_);
  b_.Receive(*req, now_);
  EXPECT_EQ(b_->counters().rx_msgs.Of(CmAttribute::kReq), 2u);
  EXPECT_EQ(b_->counters().rx_duplicates.Of(CmAttribute::kReq), 1u);
  EXPECT_EQ(b_->counters().tx_msgs.Of(CmAttribute::kMra), 1u);
}

}  // namespace
}  // namespace transport::cm
