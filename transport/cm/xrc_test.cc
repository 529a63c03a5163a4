// Extended reliable connections, and enhanced connection establishment in
// messages.
#include "gtest/gtest.h"
#include "transport/cm/connection_fixture.h"

namespace transport::cm {
namespace {

class XrcTest : public ConnectionManagerTest {
 protected:
  ConnectOptions XrcOptions() {
    ConnectOptions options = a_.OptionsFor(b_, 0x11);
    options.req.service = wire::CmService::kExtended;
    options.req.extended_transport = wire::kCmExtendedXrc;
    return options;
  }
  static wire::CmView ViewOf(const Event& event) {
    wire::CmView view;
    EXPECT_EQ(wire::CmView::Parse(event.mad, &view), wire::CmParseError::kOk);
    return view;
  }
};

// Like the kernel: the target's number is in the REP's local EECN.
TEST_F(XrcTest, TheTargetIsInTheEeContextField) {
  b_.Listen();
  ASSERT_EQ(a_->Connect(XrcOptions(), now_, &active_), Result::kOk);
  a_.SendTo(b_, now_);
  const auto request = b_.NextEvent();
  ASSERT_TRUE(request);
  EXPECT_TRUE(IsXrc(ViewOf(*request).req()));
  passive_ = request->id;
  ASSERT_EQ(b_.Accept(passive_, 0x22, now_), Result::kOk);
  b_.SendTo(a_, now_);
  const auto reply = a_.NextEvent();
  ASSERT_TRUE(reply);
  EXPECT_EQ(ViewOf(*reply).rep().local_eecn, 0x22u);
  EXPECT_EQ(ViewOf(*reply).rep().local_qpn, 0u);
  ASSERT_EQ(a_->Establish(active_, {}), Result::kOk);
  a_.SendTo(b_, now_);
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kEstablished});
  // The DREQ names the target.
  ASSERT_EQ(a_->Disconnect(active_, {}, now_), Result::kOk);
  OutgoingMad dreq;
  ASSERT_TRUE(a_->PollTransmit(&dreq));
  wire::CmView view;
  ASSERT_EQ(wire::CmView::Parse(dreq.bytes, &view), wire::CmParseError::kOk);
  EXPECT_EQ(view.dreq().remote_qpn, 0x22u);
  b_.Receive(dreq, now_);
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kDisconnected});
  ExpectNothingLeft();
}

TEST_F(XrcTest, OptionsOfEnhancedEstablishmentAreCarriedBothWays) {
  b_.Listen();
  ConnectOptions options = a_.OptionsFor(b_, 0x11);
  options.req.vendor_id = 0x123456;
  options.ece_options = 0xa1a2a3a4;
  ASSERT_EQ(a_->Connect(options, now_, &active_), Result::kOk);
  a_.SendTo(b_, now_);
  const auto request = b_.NextEvent();
  ASSERT_TRUE(request);
  EXPECT_EQ(ViewOf(*request).req().vendor_id, 0x123456u);
  EXPECT_EQ(ViewOf(*request).header().attribute_modifier, 0xa1a2a3a4u);
  passive_ = request->id;
  ASSERT_EQ(b_->Accept(passive_,
                       {.local_qpn = 0x22,
                        .local_ca_guid = b_.guid(),
                        .vendor_id = 0x123456},
                       now_, 0xb1b2b3b4),
            Result::kOk);
  b_.SendTo(a_, now_);
  const auto reply = a_.NextEvent();
  ASSERT_TRUE(reply);
  EXPECT_EQ(ViewOf(*reply).header().attribute_modifier, 0xb1b2b3b4u);
  EXPECT_EQ(ViewOf(*reply).rep().vendor_id, 0x123456u);
}

}  // namespace
}  // namespace transport::cm
