// Rules that are added and removed while packets pass.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "transport/faults/rule_parser.h"
#include "transport/testing/injector_fixture.h"

namespace transport::faults {
namespace {

std::vector<Rule> Parsed(const std::string& text) {
  std::vector<Rule> rules;
  EXPECT_EQ(ParseRules(text, &rules), std::nullopt);
  return rules;
}

TEST_F(InjectorTest, RulesComeAndGo) {
  Injector injector = Make("drop tx nth=2");
  EXPECT_FALSE(injector.concerns(kReceived));
  EXPECT_EQ(Hits(&injector, 3), Numbers{2});
  ASSERT_TRUE(injector.Add(Parsed("ce nth=1; drop nth=2|3"), 10));
  EXPECT_TRUE(injector.concerns(kReceived));
  const Fate marked =
      Decide(&injector, true, Operation::kSendOnly, kSendPsn, 10);
  ASSERT_NE(marked.rule, nullptr);
  EXPECT_EQ(marked.rule->number, 2u);
  EXPECT_TRUE(injector.Remove(2));
  EXPECT_FALSE(injector.Remove(2));
  EXPECT_FALSE(injector.Remove(0));
  EXPECT_FALSE(injector.Remove(4));
  EXPECT_EQ(Hits(&injector, 3, 10), (Numbers{1, 2}));
  // It keeps its number and its counts.
  EXPECT_EQ(marked.rule->text, "ce nth=1");
  EXPECT_EQ(injector.counts()[1].fired, 1u);
  EXPECT_EQ(injector.counts()[2].fired, 2u);
  ASSERT_TRUE(injector.Add(Parsed("duplicate rx"), 10));
  EXPECT_EQ(injector.rules().back().number, 4u);
  EXPECT_TRUE(injector.Remove(1));
  EXPECT_TRUE(injector.Remove(3));
  EXPECT_FALSE(injector.concerns(kTransmitted));
}

TEST_F(InjectorTest, TimesOfARuleCountFromItsAddition) {
  Injector injector = Make("drop rx maybe");
  ASSERT_TRUE(injector.Add(Parsed("drop tx after=2ns for=2ns"), 100));
  const auto hit = [&](Time now) {
    return Decide(&injector, true, Operation::kSendOnly, kSendPsn, now).rule !=
           nullptr;
  };
  EXPECT_FALSE(hit(50));
  EXPECT_FALSE(hit(101));
  EXPECT_TRUE(hit(102));
  EXPECT_FALSE(hit(104));
}

// The requester would repeat the request until its timeouts end.
TEST_F(InjectorTest, ARemovedRuleDoesNothingMore) {
  Injector injector = Make("no-ack nth=1; rnr nth=2");
  ASSERT_NE(Decide(&injector, false, Operation::kSendOnly, kReceivePsn).rule,
            nullptr);
  EXPECT_TRUE(AckIsDropped(&injector, kReceivePsn));
  ASSERT_NE(
      Decide(&injector, false, Operation::kSendOnly, kReceivePsn + 1).rule,
      nullptr);
  EXPECT_TRUE(injector.Remove(1));
  EXPECT_TRUE(injector.Remove(2));
  EXPECT_FALSE(AckIsDropped(&injector, kReceivePsn));
  EXPECT_EQ(injector.TakeRefusal(kQpn, {}, kReceivePsn + 1), nullptr);
  EXPECT_FALSE(injector.concerns(kRefusals));
}

// Counts from before such a gap were mixed with later ones.
TEST_F(InjectorTest, IterationsCountAnewAfterATimeWithoutRulesThatNeedThem) {
  Injector injector = Make("drop tx iter=2; ce rx; ce tx");
  const auto hit = [&](bool transmitted, uint32_t rule) {
    const Fate fate = Decide(&injector, transmitted, Operation::kSendOnly,
                             transmitted ? kSendPsn : kReceivePsn);
    return fate.rule != nullptr && fate.rule->number == rule;
  };
  const auto add = [&](const std::string& text) {
    ASSERT_TRUE(injector.Add(Parsed(text), 0));
  };
  EXPECT_FALSE(hit(true, 1));
  injector.Remove(1);
  EXPECT_FALSE(hit(true, 4));  // not counted
  injector.Remove(3);
  add("drop tx iter=1");
  EXPECT_TRUE(hit(true, 4));
  // The counts of the other direction continue while one of its rules stays.
  EXPECT_FALSE(hit(false, 5));
  add("drop rx iter=1");
  EXPECT_FALSE(hit(false, 5));
  // Without one, packets of that direction do not come here.
  injector.Remove(2);
  injector.Remove(5);
  add("drop rx iter=1");
  EXPECT_TRUE(hit(false, 6));
}

TEST_F(InjectorTest, RulesAreLimited) {
  Injector injector = Make("drop rx maybe");
  std::string text;
  for (int i = 0; i < 256; ++i) text += "drop rx psn=1;";
  const std::vector<Rule> many = Parsed(text);
  size_t rules = 1;
  while (injector.Add(many, 0)) {
    rules += many.size();
    for (uint32_t i = 2; i <= rules; ++i) injector.Remove(i);
  }
  EXPECT_EQ(injector.rules().size(), rules);
  EXPECT_GT(rules + many.size(), Injector::kMaxRulesEver);
}

}  // namespace
}  // namespace transport::faults
