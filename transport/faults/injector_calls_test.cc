// Rules that match no packets: for calls, completions and CM messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "transport/testing/injector_fixture.h"

namespace transport::faults {
namespace {

TEST_F(InjectorTest, CallsThatFail) {
  Injector injector = Make(
      "fail ibv_reg_mr ENOMEM nth=2; drop nth=1; fail ibv_create_qp EAGAIN "
      "after=5s for=1s");
  EXPECT_TRUE(injector.concerns(kProgramCalls));
  EXPECT_FALSE(Make("drop").concerns(kProgramCalls));
  EXPECT_EQ(injector.DecideCall("ibv_reg_mr", std::nullopt, 0).rule, nullptr);
  EXPECT_EQ(injector.DecideCall("ibv_create_cq", std::nullopt, 0).rule,
            nullptr);
  const Rule* const rule =
      injector.DecideCall("ibv_reg_mr", std::nullopt, 0).rule;
  ASSERT_NE(rule, nullptr);
  EXPECT_EQ(rule->number, 1u);
  EXPECT_EQ(injector.DecideCall("ibv_reg_mr", std::nullopt, 0).rule, nullptr);
  EXPECT_EQ(injector.counts()[0].matched, 3u);
  EXPECT_EQ(injector.counts()[0].fired, 1u);
  EXPECT_EQ(
      injector.DecideCall("ibv_create_qp", std::nullopt, 4 * kSecond).rule,
      nullptr);
  EXPECT_NE(
      injector.DecideCall("ibv_create_qp", std::nullopt, 5 * kSecond).rule,
      nullptr);
  EXPECT_EQ(
      injector.DecideCall("ibv_create_qp", std::nullopt, 6 * kSecond).rule,
      nullptr);
  // Only the other rule matches packets.
  EXPECT_EQ(Decide(&injector, true, Operation::kSendOnly, 1).rule->number, 2u);
  // The same calls fail in each run.
  const auto run = [this](uint64_t seed) {
    Injector chance = Make("fail ibv_reg_mr ENOMEM p=20%", seed);
    std::vector<bool> failed;
    for (int i = 0; i < 500; ++i) {
      failed.push_back(chance.DecideCall("ibv_reg_mr", std::nullopt, 0).rule !=
                       nullptr);
    }
    return failed;
  };
  const std::vector<bool> failed = run(1);
  // Four standard deviations.
  EXPECT_NEAR(static_cast<double>(std::ranges::count(failed, true)), 100, 36);
  EXPECT_EQ(run(1), failed);
  EXPECT_NE(run(2), failed);
}

TEST_F(InjectorTest, CallsAtWhichSomethingHappens) {
  Injector injector = Make(
      "delay 2ms~2ms call=ibv_reg_mr nth=2; fail ibv_post_send ENOMEM wr_id=5; "
      "link down call=ibv_post_recv wr_id=9");
  EXPECT_FALSE(injector.concerns(kReceived));
  EXPECT_FALSE(injector.concerns(kTransmitted));
  EXPECT_EQ(Decide(&injector, true, Operation::kSendOnly, kSendPsn).rule,
            nullptr);
  EXPECT_EQ(injector.DecideCall("ibv_reg_mr", std::nullopt, 0).rule, nullptr);
  const NumberedFate slow = injector.DecideCall("ibv_reg_mr", std::nullopt, 0);
  ASSERT_NE(slow.rule, nullptr);
  EXPECT_EQ(slow.number, 2u);
  EXPECT_GE(slow.delay, 2 * kMillisecond);
  EXPECT_LE(slow.delay, 4 * kMillisecond);
  EXPECT_EQ(injector.DecideCall("ibv_post_send", 4, 0).rule, nullptr);
  EXPECT_NE(injector.DecideCall("ibv_post_send", 5, 0).rule, nullptr);
  EXPECT_EQ(injector.DecideCall("ibv_post_recv", std::nullopt, 0).rule,
            nullptr);
  EXPECT_NE(injector.DecideCall("ibv_post_recv", 9, 0).rule, nullptr);
  // The rule fires once.
  EXPECT_EQ(injector.DecideCall("ibv_post_recv", 9, 0).rule, nullptr);
}

TEST_F(InjectorTest, Completions) {
  Injector injector = Make(
      "complete GENERAL_ERR tx qp=@1 nth=2; late-completion rx; drop nth=1");
  EXPECT_TRUE(injector.concerns(kCompletions));
  EXPECT_FALSE(Make("drop").concerns(kCompletions));
  EXPECT_FALSE(Make("complete GENERAL_ERR").concerns(kReceived));
  const auto hit = [&](bool sent, uint32_t qpn, bool may_be_late) {
    const Rule* const rule = injector.DecideCompletion(
        {.sent = sent, .qpn = qpn, .bytes = 0, .may_be_late = may_be_late}, 0);
    return rule == nullptr ? 0 : rule->number;
  };
  EXPECT_EQ(hit(true, kQpn, true), 0u);
  EXPECT_EQ(hit(true, 99, true), 0u);
  EXPECT_EQ(hit(true, kQpn, true), 1u);
  EXPECT_EQ(hit(true, kQpn, true), 0u);
  EXPECT_EQ(hit(false, kQpn, false), 0u);
  EXPECT_EQ(hit(false, kQpn, true), 2u);
  EXPECT_EQ(injector.counts()[1].matched, 1u);
  // Only the third rule matches packets.
  EXPECT_EQ(Decide(&injector, true, Operation::kSendOnly, 1).rule->number, 3u);
}

TEST_F(InjectorTest, MessagesOfTheCmByAttributeAndDirection) {
  Injector injector =
      Make("drop rx op=CM_REQ nth=2; delay 2ms~2ms op=CM_REP peer=192.0.2.7");
  EXPECT_FALSE(injector.concerns(kReceived));
  const auto decide = [&](bool sent, uint16_t attribute,
                          const char* peer = "192.0.2.7") {
    return injector.DecideMad({.transmitted = sent,
                               .attribute = attribute,
                               .peer = *wire::IpAddress::Parse(peer)},
                              0);
  };
  EXPECT_EQ(decide(false, 0x10).rule, nullptr);
  EXPECT_EQ(decide(true, 0x10).rule, nullptr);
  const NumberedFate lost = decide(false, 0x10);
  ASSERT_NE(lost.rule, nullptr);
  EXPECT_EQ(lost.number, 2u);
  EXPECT_EQ(decide(false, 0x10).rule, nullptr);
  EXPECT_EQ(decide(true, 0x13, "192.0.2.8").rule, nullptr);
  const NumberedFate late = decide(true, 0x13);
  EXPECT_EQ(late.number, 2u);
  EXPECT_GE(late.delay, 2 * kMillisecond);
  EXPECT_LE(late.delay, 4 * kMillisecond);
  EXPECT_EQ(decide(false, 0x99).rule, nullptr);
  // No packet matches: CM messages are not RoCE opcodes.
  EXPECT_EQ(Decide(&injector, false, Operation::kSendOnly, kReceivePsn).rule,
            nullptr);
}

}  // namespace
}  // namespace transport::faults
