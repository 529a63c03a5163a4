#include "tools/rxe_user_cli/expectation.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace rxe_user_cli {
namespace {

using Kind = Condition::Kind;

std::string ErrorOf(const std::string& text) {
  ExpectationError error;
  return ParseExpectation(text, &error) ? "" : TextOf(error);
}

Condition Parsed(const std::string& text) {
  ExpectationError error;
  auto expectation = ParseExpectation(text, &error);
  EXPECT_TRUE(expectation) << text << ": " << TextOf(error);
  return expectation ? expectation->condition : Condition{};
}

TEST(ParseExpectation, KnowsCounters) {
  const Condition c = Parsed("retrans_pkts<=20");
  EXPECT_EQ(c.kind, Kind::kCompare);
  EXPECT_EQ(c.left.kind, Quantity::Kind::kCounter);
  EXPECT_EQ(ExpectedCounters()[c.left.counter], "retrans_pkts");
  EXPECT_EQ(c.relation, Relation::kLessOrEqual);
  EXPECT_EQ(c.right.kind, Quantity::Kind::kNumber);
  EXPECT_EQ(c.right.number, 20u);
  for (const std::string_view name : ExpectedCounters()) {
    EXPECT_EQ(ErrorOf(std::string(name) + " == 7"), "");
  }
}

TEST(ParseExpectation, KnowsAliases) {
  for (const CounterAlias& alias : CounterAliases()) {
    const Condition c = Parsed("0 == " + std::string(alias.alias));
    EXPECT_EQ(c.right.text, alias.alias);
    EXPECT_EQ(ExpectedCounters()[c.right.counter], alias.name);
    // An alias never hides a counter.
    EXPECT_EQ(std::ranges::count(ExpectedCounters(), alias.alias), 0);
  }
}

TEST(ParseExpectation, KnowsLints) {
  const Condition c = Parsed("lints == 0");
  EXPECT_EQ(c.left.kind, Quantity::Kind::kLints);
  EXPECT_EQ(c.left.text, "lints");
  EXPECT_TRUE(MentionsLints(c));
  EXPECT_TRUE(MentionsLints(Parsed("wc(*) == 1 or not 3 > lints")));
  EXPECT_FALSE(MentionsLints(Parsed("wc(*) == 1 or not 3 > repeated")));
}

TEST(ParseExpectation, KnowsCompletions) {
  Condition c = Parsed("wc ( REM_ACCESS_ERR ) == 1");
  EXPECT_EQ(c.left.kind, Quantity::Kind::kCompletions);
  EXPECT_EQ(c.left.queues, WorkQueues::kAll);
  EXPECT_EQ(c.left.status, 10);
  EXPECT_EQ(c.left.text, "wc(REM_ACCESS_ERR)");
  c = Parsed("recv_wc(*) != send_wc(IBV_WC_SUCCESS)");
  EXPECT_EQ(c.left.queues, WorkQueues::kReceive);
  EXPECT_EQ(c.left.status, Quantity::kAnyStatus);
  EXPECT_EQ(c.right.queues, WorkQueues::kSend);
  EXPECT_EQ(c.right.status, 0);
  EXPECT_EQ(c.right.text, "send_wc(SUCCESS)");
}

TEST(ParseExpectation, KnowsTimes) {
  for (const auto& [text, ns] : std::vector<std::pair<std::string, int64_t>>{
           {"2s", 2'000'000'000},
           {"2 s", 2'000'000'000},
           {"1.5ms", 1'500'000},
           {"0.000000001s", 1},
           {"7us", 7'000},
           {"1ns", 1},
           {"1.ms", 1'000'000},
           {"9000000000s", 9'000'000'000'000'000'000}}) {
    const Condition c = Parsed("every send_wc within " + text + " of post");
    EXPECT_EQ(c.kind, Kind::kEvery);
    EXPECT_EQ(c.queues, WorkQueues::kSend);
    EXPECT_EQ(c.within, ns) << text;
  }
}

TEST(ParseExpectation, AndBindsMoreThanOr) {
  const Condition c =
      Parsed("  repeated == 1 or naks == 2 and not timeouts > 3 ");
  ASSERT_EQ(c.kind, Kind::kOr);
  ASSERT_EQ(c.parts.size(), 2u);
  ASSERT_EQ(c.parts[1].kind, Kind::kAnd);
  ASSERT_EQ(c.parts[1].parts.size(), 2u);
  EXPECT_EQ(c.parts[1].parts[1].kind, Kind::kNot);
  const Condition d = Parsed("(repeated == 1 or naks == 2) and timeouts > 3");
  ASSERT_EQ(d.kind, Kind::kAnd);
  EXPECT_EQ(d.parts[0].kind, Kind::kOr);
  EXPECT_EQ(d.parts[0].begin, 0u);
  EXPECT_EQ(d.parts[0].end, 28u);
}

// Errors say what is wrong, where, and what would be right.
TEST(ParseExpectation, SaysWhatIsWrong) {
  for (const auto& [text, error] :
       std::vector<std::pair<std::string, std::string>>{
           {"",
            "column 1: a counter (rxe-user stat), wc(STATUS) or a number "
            "is expected here"},
           {" ",
            "column 1: a counter (rxe-user stat), wc(STATUS) or a number "
            "is expected here"},
           {"repeated",
            "column 9: one of == != < <= > >= is expected after "
            "repeated"},
           {"repeated = 0", "column 10: write == to compare"},
           {"repeated == 0 && naks == 0", "column 15: write and"},
           {"repeated == 0 || naks == 0", "column 15: write or"},
           {"!repeated == 0", "column 1: write not"},
           {"repeated == ",
            "column 12: a counter (rxe-user stat), wc(STATUS) "
            "or a number is expected here"},
           {"retrans_pkt == 0",
            "column 1: there is no counter retrans_pkt; "
            "did you mean retrans_pkts?"},
           {"zzzzzzzz == 0", "column 1: there is no counter zzzzzzzz"},
           {"repeated == 0 naks",
            "column 15: and, or, or the end is expected "
            "here"},
           {"1 < repeated < 3",
            "column 14: a comparison has two sides; join "
            "several by and"},
           {"1 < 3",
            "column 1: it compares two numbers; one side must be a "
            "counter or wc(STATUS)"},
           {"repeated < 1.5", "column 12: a whole number is expected here"},
           {"repeated < 5k", "column 13: a number has no unit here"},
           {"repeated < -1",
            "column 12: a counter (rxe-user stat), wc(STATUS) "
            "or a number is expected here"},
           {"repeated < 9223372036854775808",
            "column 12: this number is above 9223372036854775807"},
           {"(repeated < 5", "column 14: ) is expected here"},
           {"wc == 0", "column 4: (STATUS) or (*) is expected after wc"},
           {"wc(REM_ACCES_ERR) == 0",
            "column 4: there is no status "
            "REM_ACCES_ERR; did you mean "
            "REM_ACCESS_ERR?"},
           {"wc(SUCCESS == 0", "column 12: ) is expected here"},
           {"every thing within 2s of post",
            "column 7: wc, send_wc or recv_wc is expected here: every wc "
            "within 2s of post"},
           {"every wc within 2 of post",
            "column 19: a unit is expected here, "
            "one of ns, us, ms, s: every wc "
            "within 2s of post"},
           {"every wc within 0s of post",
            "column 17: a time of 1ns or more is expected here"},
           {"every wc within 0.1ns of post",
            "column 17: a time of 1ns or more is expected here"},
           {"every wc within 1.2.3s of post",
            "column 17: a number has one point"},
           {"every wc within 99999999999s of post",
            "column 17: this time is too long"},
           {"every wc within 2s",
            "column 19: of is expected here: every wc "
            "within 2s of post"},
           {"repeated == 0 and",
            "column 18: a counter (rxe-user stat), "
            "wc(STATUS) or a number is expected here"},
           {"\xc3\xa4\xc3\xb6 == 0",
            "column 1: a counter (rxe-user stat), "
            "wc(STATUS) or a number is expected "
            "here"},
           {"repeated == 0 \xe2\x82\xac",
            "column 15: and, or, or the end is "
            "expected here"}}) {
    EXPECT_EQ(ErrorOf(text), error) << text;
  }
  EXPECT_TRUE(ErrorOf("wc(1) == 0")
                  .starts_with(
                      "column 4: a status is expected here, one of SUCCESS, "));
}

TEST(ParseExpectation, RefusesWhatIsAlwaysTheSame) {
  for (const auto& [text, error] :
       std::vector<std::pair<std::string, std::string>>{
           {"repeated >= 0", "column 1: repeated >= 0 is always true"},
           {"0 <= repeated", "column 1: 0 <= repeated is always true"},
           {"repeated < 0", "column 1: repeated < 0 is always false"},
           {"repeated == repeated",
            "column 1: repeated == repeated is always "
            "true"},
           {"repeated != retrans_pkts",
            "column 1: repeated != retrans_pkts is "
            "always false"},
           {"wc(SUCCESS) <= wc(*)",
            "column 1: wc(SUCCESS) <= wc(*) is always "
            "true"},
           {"wc(SUCCESS) > wc(*)",
            "column 1: wc(SUCCESS) > wc(*) is always "
            "false"},
           {"send_wc(SUCCESS) > wc(SUCCESS)",
            "column 1: send_wc(SUCCESS) > wc(SUCCESS) is always false"},
           {"naks == 1 and not repeated >= 0",
            "column 19: repeated >= 0 is always true"},
           {"repeated < 5 or repeated > 4",
            "column 1: repeated < 5 or repeated > 4 is always true"},
           {"naks == 0 or (repeated == 1 and repeated == 2)",
            "column 14: (repeated == 1 and repeated == 2) is always false"},
           {"naks > repeated and repeated > naks",
            "column 1: naks > repeated and repeated > naks is always false"},
           {"every wc within 1s of post or not every wc within 2s of post", ""},
           {"every wc within 2s of post or not every wc within 1s of post",
            "column 1: every wc within 2s of post or not every wc within 1s of "
            "post is always true"}}) {
    EXPECT_EQ(ErrorOf(text),
              error.empty() ? "" : error + ", whatever the program does")
        << text;
  }
  for (const char* good :
       {"repeated > 4 and repeated < 6", "naks > repeated and naks < 3",
        "wc(SUCCESS) == wc(*)", "repeated <= 0", "repeated < 1",
        "wc(*) > wc(SUCCESS)", "not (repeated > 0 or naks > 0)",
        "repeated != 0"}) {
    EXPECT_EQ(ErrorOf(good), "");
  }
}

TEST(ParseExpectation, HasLimits) {
  EXPECT_EQ(ErrorOf(std::string(kLongestExpectation + 1, 'a')),
            "column 1: it is longer than 4096 characters");
  const auto deep = [](size_t levels) {
    return std::string(levels, '(') + "naks == 0" + std::string(levels, ')');
  };
  EXPECT_EQ(ErrorOf(deep(kDeepestExpectation - 1)), "");
  EXPECT_EQ(ErrorOf(deep(kDeepestExpectation)),
            "column 65: more than 64 levels of not and parentheses");
  EXPECT_EQ(ErrorOf(deep(2000)),
            "column 65: more than 64 levels of not and parentheses");
  std::string nots;
  for (int i = 0; i < 800; ++i) nots += "not ";
  EXPECT_EQ(ErrorOf(nots + "naks == 0"),
            "column 257: more than 64 levels of not and parentheses");
  // With many values, the condition is parsed, and only its comparisons are
  // checked.
  std::string many = "naks == 0";
  for (const std::string_view name : ExpectedCounters()) {
    many += " and " + std::string(name) + " < 1000000";
  }
  EXPECT_EQ(ErrorOf(many), "");
}

// No text crashes or hangs the parser, and the text of an accepted expectation
// can be parsed again.
TEST(ParseExpectation, StandsAnyText) {
  const std::vector<std::string> words = {"repeated",
                                          "naks",
                                          "wc",
                                          "send_wc",
                                          "recv_wc",
                                          "(",
                                          ")",
                                          "*",
                                          "==",
                                          "<",
                                          ">=",
                                          "!=",
                                          "0",
                                          "1",
                                          "20",
                                          "and",
                                          "or",
                                          "not",
                                          "every",
                                          "of",
                                          "within",
                                          "post",
                                          "2s",
                                          "SUCCESS",
                                          "=",
                                          "&&",
                                          "1.5",
                                          "ms",
                                          "\xff",
                                          "\x01",
                                          " ",
                                          "",
                                          "\n",
                                          "'",
                                          "\"",
                                          "<![CDATA",
                                          "REM_ACCESS_ERR"};
  std::mt19937 random(51);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    // Few texts of random words are expressions, so every second text begins
    // with one.
    if (random() % 2 == 0) text = "naks <= 20 or wc(REM_ACCESS_ERR) == 1 ";
    const size_t count = random() % 14;
    for (size_t w = 0; w < count; ++w) {
      text += words[random() % words.size()];
      if (random() % 4 != 0) text += " ";
    }
    if (random() % 4 == 0 && !text.empty()) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    ExpectationError error;
    const auto expectation = ParseExpectation(text, &error);
    if (!expectation) {
      EXPECT_GE(error.column, 1u);
      EXPECT_LE(error.column, text.size() + 1) << text;
      EXPECT_FALSE(error.message.empty()) << text;
      EXPECT_EQ(TextOf(error).find('\n'), std::string::npos);
      continue;
    }
    ++accepted;
    EXPECT_TRUE(ParseExpectation(expectation->text, &error))
        << expectation->text;
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace rxe_user_cli
