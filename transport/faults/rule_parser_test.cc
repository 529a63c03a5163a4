#include "transport/faults/rule_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "wire/opcode.h"

namespace transport::faults {
namespace {

using wire::MakeOpcode;
using wire::Operation;
using wire::Transport;

std::vector<Rule> Parsed(const std::string& text) {
  std::vector<Rule> rules;
  const auto error = ParseRules(text, &rules);
  EXPECT_FALSE(error.has_value()) << text << ": " << error->ToString();
  return rules;
}

Rule One(const std::string& text) {
  const std::vector<Rule> rules = Parsed(text);
  EXPECT_EQ(rules.size(), 1u) << text;
  return rules.empty() ? Rule() : rules[0];
}

std::string ErrorOf(const std::string& text) {
  std::vector<Rule> rules;
  const auto error = ParseRules(text, &rules);
  EXPECT_TRUE(rules.empty()) << text;
  return error ? error->ToString() : "";
}

TEST(RuleParserTest, ActionsWithTheirArguments) {
  EXPECT_EQ(One("drop").action, Action::kDrop);
  EXPECT_EQ(One("duplicate").action, Action::kDuplicate);
  EXPECT_EQ(One("ce").action, Action::kMark);
  EXPECT_EQ(One("delay 2ms").delay, 2 * kMillisecond);
  EXPECT_EQ(One("delay 2ms").jitter, 0);
  const Rule delay = One("delay 1.5s~20us");
  EXPECT_EQ(delay.action, Action::kDelay);
  EXPECT_EQ(delay.delay, 1500 * kMillisecond);
  EXPECT_EQ(delay.jitter, 20 * kMicrosecond);
  EXPECT_EQ(One("reorder 3").behind, 3u);
  EXPECT_EQ(One("stall 20ms").action, Action::kStall);
  EXPECT_EQ(One("stall 20ms").delay, 20 * kMillisecond);
  EXPECT_EQ(One("corrupt byte=17").corruption.byte, 17u);
  EXPECT_EQ(One("corrupt byte=17").corruption.field, Corruption::kByte);
  EXPECT_FALSE(One("corrupt psn").corruption.resealed);
  EXPECT_TRUE(One("corrupt psn resealed").corruption.resealed);
}

TEST(RuleParserTest, MatchAndWhen) {
  const Rule all = One("drop");
  EXPECT_TRUE(all.received && all.transmitted);
  EXPECT_TRUE(all.opcodes.all());
  EXPECT_TRUE(all.nth.empty());
  const Rule rule =
      One("drop tx op=data qp=@2 peer=192.0.2.1 psn=+5 iter=1 bytes>100 "
          "nth=3|7-9|12- every=2 p=25% times=4 after=1s for=500ms maybe");
  EXPECT_FALSE(rule.received);
  EXPECT_TRUE(rule.transmitted);
  EXPECT_EQ(rule.ordinal, 2u);
  EXPECT_EQ(rule.qpn, std::nullopt);
  EXPECT_EQ(rule.peer, wire::IpAddress::Parse("192.0.2.1"));
  EXPECT_EQ(rule.psn, 5u);
  EXPECT_TRUE(rule.psn_is_relative);
  EXPECT_EQ(rule.iteration, 1u);
  EXPECT_EQ(rule.longer_than, 100u);
  ASSERT_EQ(rule.nth.size(), 3u);
  EXPECT_EQ(rule.nth[0].first, 3u);
  EXPECT_EQ(rule.nth[0].last, 3u);
  EXPECT_EQ(rule.nth[1].first, 7u);
  EXPECT_EQ(rule.nth[1].last, 9u);
  EXPECT_EQ(rule.nth[2].first, 12u);
  EXPECT_EQ(rule.nth[2].last, UINT64_MAX);
  EXPECT_EQ(rule.every, 2u);
  EXPECT_EQ(rule.chance, 0.25);
  EXPECT_EQ(rule.times, 4u);
  EXPECT_EQ(rule.after, kSecond);
  EXPECT_EQ(rule.during, 500 * kMillisecond);
  EXPECT_TRUE(rule.maybe);
  EXPECT_EQ(One("drop qp=0x12 psn=7").qpn, 0x12u);
  EXPECT_FALSE(One("drop qp=0x12 psn=7").psn_is_relative);
}

TEST(RuleParserTest, OpcodesAreThoseOfTheDecoder) {
  const auto has = [](const Rule& rule, Transport transport, Operation op) {
    return rule.opcodes[MakeOpcode(transport, op)];
  };
  const Rule data = One("drop op=data");
  EXPECT_TRUE(has(data, Transport::kRc, Operation::kWriteMiddle));
  EXPECT_TRUE(has(data, Transport::kUd, Operation::kSendOnly));
  EXPECT_TRUE(has(data, Transport::kXrc, Operation::kReadResponseLast));
  EXPECT_FALSE(has(data, Transport::kRc, Operation::kReadRequest));
  EXPECT_FALSE(has(data, Transport::kRc, Operation::kAcknowledge));
  const Rule ack = One("drop op=ack");
  EXPECT_TRUE(has(ack, Transport::kRc, Operation::kAcknowledge));
  EXPECT_TRUE(has(ack, Transport::kDc, Operation::kAtomicAcknowledge));
  EXPECT_FALSE(has(ack, Transport::kRc, Operation::kReadResponseOnly));
  EXPECT_FALSE(ack.opcodes[wire::kOpcodeCnp]);
  const Rule two = One("drop op=RC_RDMA_WRITE_FIRST|RC_FETCH_ADD");
  EXPECT_EQ(two.opcodes.count(), 2u);
  EXPECT_TRUE(has(two, Transport::kRc, Operation::kFetchAdd));
}

TEST(RuleParserTest, RulesByLineSemicolonAndComment) {
  const std::vector<Rule> rules = Parsed(
      "# a comment; drop\n\n  drop tx nth=1 ; ce rx  # why\n;;\nreorder 2\r\n");
  ASSERT_EQ(rules.size(), 3u);
  EXPECT_EQ(rules[0].text, "drop tx nth=1");
  EXPECT_EQ(rules[1].text, "ce rx");
  EXPECT_EQ(rules[2].text, "reorder 2");
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(rules[i].number, i + 1);
}

TEST(RuleParserTest, ErrorsNamePlaceAndRightForm) {
  EXPECT_EQ(ErrorOf("dorp rx"),
            "line 1, column 1: 'dorp' is no action; the actions are drop, "
            "duplicate, delay T, reorder N, corrupt FIELD, ce, stall T");
  EXPECT_EQ(ErrorOf("drop rx;\n  drop op=dat nth=1"),
            "line 2, column 11: 'dat': op= needs data, ack, request, response "
            "or opcodes as rxe-user decode prints them, separated by |: "
            "op=RC_RDMA_WRITE_FIRST|RC_RDMA_WRITE_ONLY");
  EXPECT_EQ(ErrorOf("drop nth=9-7"),
            "line 1, column 10: '9-7': nth= needs numbers and ranges from 1 "
            "on: nth=3, nth=3|7-9, nth=5-");
  EXPECT_EQ(ErrorOf("delay"),
            "line 1, column 6: delay needs a time such as 50us, 2ms or 1.5s "
            "(an hour at most), or a time and up to how much more: delay "
            "2ms~500us");
  EXPECT_EQ(ErrorOf("stall rx"),
            "line 1, column 7: stall needs a time such as 50us, 2ms or 1.5s "
            "(an hour at most): stall 20ms");
  EXPECT_EQ(ErrorOf("drop; ce nht=3"),
            "line 1, column 10: 'nht=3' is no part of a rule; after the action "
            "come rx, tx, op=, qp=, peer=, psn=, iter=, bytes>, nth=, every=, "
            "p=, times=, after=, for=, maybe");
}

TEST(RuleParserTest, RefusesNonsense) {
  for (const char* text : {"",
                           "  ",
                           "# nothing",
                           "drop rx tx",
                           "drop rx rx",
                           "drop op=",
                           "drop op=data|",
                           "drop op=data op=ack",
                           "drop nth=0",
                           "drop nth=",
                           "drop nth=1|",
                           "drop nth=-3",
                           "drop nth=3--",
                           "drop every=0",
                           "drop p=0",
                           "drop p=1.5",
                           "drop p=101%",
                           "drop p=-1",
                           "drop p=nan",
                           "drop p=inf",
                           "drop times=0",
                           "drop after=5",
                           "drop after=-5s",
                           "drop for=0s",
                           "drop for=99999999999s",
                           "drop qp=@0",
                           "drop qp=@",
                           "drop qp=0x1000000",
                           "drop psn=16777216",
                           "drop psn=+",
                           "drop psn=-1",
                           "drop iter=0",
                           "drop bytes>",
                           "drop bytes>-1",
                           "drop bytes=5",
                           "drop peer=nowhere",
                           "drop peer=",
                           "delay 5",
                           "delay 2h",
                           "delay 2ms~",
                           "delay -2ms",
                           "stall",
                           "stall 0ms",
                           "stall 2ms~1ms",
                           "stall 2h",
                           "reorder",
                           "reorder 0",
                           "reorder 5000",
                           "corrupt",
                           "corrupt colour",
                           "corrupt byte=-1",
                           "corrupt byte=70000",
                           "corrupt icrc resealed",
                           "drop resealed",
                           "drop 3",
                           "ce 5us",
                           "drop nth=18446744073709551616",
                           "Drop",
                           "drop\x01 rx"}) {
    EXPECT_NE(ErrorOf(text), "") << text;
  }
  std::string many;
  for (size_t i = 0; i <= kMaxRules; ++i) many += "drop\n";
  EXPECT_NE(ErrorOf(many), "");
  EXPECT_NE(ErrorOf(std::string(kMaxRuleText + 1, '#')), "");
}

TEST(RuleParserTest, TellsRulesFromNamesOfFiles) {
  EXPECT_TRUE(LooksLikeRules("drop rx"));
  EXPECT_TRUE(LooksLikeRules("ce"));
  EXPECT_TRUE(LooksLikeRules(" # why\ndrop"));
  EXPECT_TRUE(LooksLikeRules(""));
  EXPECT_FALSE(LooksLikeRules("loss.rules"));
  EXPECT_FALSE(LooksLikeRules("./drop"));
  EXPECT_FALSE(LooksLikeRules("dropped.txt"));
}

}  // namespace
}  // namespace transport::faults
