#include "transport/rc/missing_responses.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace transport {
namespace {

using State = MissingResponses::State;

// "10-12 asked, 15-16 due".
std::string Text(const MissingResponses& missing) {
  std::string text;
  for (const MissingResponses::Range& range : missing.ranges()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", range.first, "-",
                    range.end,
                    range.state == State::kWaiting ? " waiting"
                    : range.state == State::kDue   ? " due"
                                                   : " asked");
  }
  return text;
}

class MissingResponsesTest : public ::testing::Test {
 protected:
  // [10, 20) of the request at 10 is missing, and is requested.
  void AskForTen() {
    missing.AnsweredTo(10);
    ASSERT_TRUE(missing.AddMissing(10, 20, 10, 0));
    missing.AnsweredTo(30);
    EXPECT_EQ(missing.Expire(0), 10u);
    missing.NoteAsked(10, 20, 100, 0, 0);
  }
  // Learns that packets are late.
  void LearnLateness() {
    AskForTen();
    for (uint64_t seq = 10; seq < 20; ++seq) missing.Take(seq, 0);
    missing.NoteCopy(10, 0, 0);
    ASSERT_EQ(missing.reorder_wait(), 16 * kMicrosecond);
  }

  // `seq`, which follows all that is known, is missing and is requested. It
  // arrives at once, and again after `later`.
  void ArriveTwice(uint64_t seq, Time round_trip, Time later) {
    missing.AnsweredTo(seq);
    ASSERT_TRUE(missing.AddMissing(seq, seq + 1, seq, now));
    now = missing.NextDeadline();
    ASSERT_EQ(missing.Expire(now), 1u);
    missing.NoteAsked(seq, seq + 1, 10'000, round_trip, now);
    missing.Take(seq, now);
    now += later;
    missing.NoteCopy(seq, round_trip, now);
  }

  Time now = 0;  // of ArriveTwice
  MissingResponses missing;
};

TEST_F(MissingResponsesTest, KnowsWhatIsMissing) {
  missing.AnsweredTo(10);
  EXPECT_TRUE(missing.empty());
  EXPECT_EQ(missing.first(), 10u);
  ASSERT_TRUE(missing.AddMissing(12, 15, 10, 0));
  missing.AnsweredTo(20);
  EXPECT_EQ(missing.first(), 12u);
  EXPECT_EQ(missing.known_to(), 20u);
  EXPECT_EQ(missing.missing(), 3u);
  EXPECT_FALSE(missing.IsMissing(11));
  EXPECT_TRUE(missing.IsMissing(12));
  EXPECT_TRUE(missing.IsMissing(14));
  EXPECT_FALSE(missing.IsMissing(15));
  EXPECT_EQ(missing.NextMissing(10), 12u);
  EXPECT_EQ(missing.NextMissing(13), 13u);
  EXPECT_EQ(missing.NextMissing(15), 20u);
  EXPECT_EQ(missing.NextMissing(25), 25u);
  EXPECT_EQ(missing.MissingEnd(13), 15u);
  EXPECT_EQ(missing.LastMissingEnd(12), 0u);
  EXPECT_EQ(missing.LastMissingEnd(14), 14u);
  EXPECT_EQ(missing.LastMissingEnd(20), 15u);
  for (uint64_t seq = 12; seq < 15; ++seq) missing.Take(seq, 0);
  EXPECT_TRUE(missing.empty());
  EXPECT_EQ(missing.first(), 20u);
}

TEST_F(MissingResponsesTest, TakingBreaksRanges) {
  AskForTen();
  missing.Take(10, 0);
  missing.Take(19, 0);
  EXPECT_EQ(Text(missing), "11-19 waiting");  // 19 arrives behind it
  missing.Expire(0);
  missing.NoteAsked(11, 19, 100, 0, 0);
  missing.Take(14, 0);
  EXPECT_EQ(Text(missing), "11-14 waiting, 15-19 asked");
}

TEST_F(MissingResponsesTest, SeveralRangesRequestedAtOnce) {
  AskForTen();
  missing.Take(15, 0);
  missing.NoteAsked(10, 20, 200, 0, 0);
  EXPECT_EQ(Text(missing), "10-15 asked, 16-20 asked");
  missing.Take(16, 0);
  EXPECT_EQ(Text(missing), "10-15 waiting, 17-20 asked");
}

TEST_F(MissingResponsesTest, LaterAnswersShowALoss) {
  AskForTen();
  missing.NoteAnswered(99, 0);
  EXPECT_EQ(Text(missing), "10-20 asked");
  missing.NoteAnswered(100, 0);
  EXPECT_EQ(Text(missing), "10-20 waiting");
}

TEST_F(MissingResponsesTest, OneRangeOfARequestAtATime) {
  missing.AnsweredTo(10);
  ASSERT_TRUE(missing.AddMissing(10, 11, 10, 0));
  ASSERT_TRUE(missing.AddMissing(12, 13, 10, 0));
  ASSERT_TRUE(missing.AddMissing(20, 21, 20, 0));
  missing.Expire(0);
  ASSERT_NE(missing.NextDue(), nullptr);
  EXPECT_EQ(missing.NextDue()->first, 10u);
  missing.NoteAsked(10, 11, 100, 0, 0);
  ASSERT_NE(missing.NextDue(), nullptr);
  EXPECT_EQ(missing.NextDue()->first, 20u);
  missing.NoteAsked(20, 21, 100, 0, 0);
  EXPECT_EQ(missing.NextDue(), nullptr);
  missing.Take(10, 0);
  ASSERT_NE(missing.NextDue(), nullptr);
  EXPECT_EQ(missing.NextDue()->first, 12u);
  EXPECT_EQ(missing.asked(), 1u);
}

TEST_F(MissingResponsesTest, PartOfARangeIsRequested) {
  missing.AnsweredTo(10);
  ASSERT_TRUE(missing.AddMissing(10, 20, 10, 0));
  missing.Expire(0);
  missing.NoteAsked(10, 14, 100, 0, 0);
  EXPECT_EQ(Text(missing), "10-14 asked, 14-20 due");
  EXPECT_EQ(missing.NextDue(), nullptr);
}

TEST_F(MissingResponsesTest, WaitsWherePacketsAreLate) {
  LearnLateness();
  missing.AnsweredTo(30);
  ASSERT_TRUE(missing.AddMissing(30, 31, 30, 1000));
  EXPECT_EQ(missing.NextDeadline(), 1000 + 16 * kMicrosecond);
  EXPECT_EQ(missing.Expire(999 + 16 * kMicrosecond), 0u);
  EXPECT_EQ(missing.Expire(1000 + 16 * kMicrosecond), 1u);
  EXPECT_EQ(missing.NextDeadline(), kNever);
}

TEST_F(MissingResponsesTest, TheWaitIsBoundedAndForgotten) {
  uint64_t seq = 100;
  for (; seq < 110; ++seq) ArriveTwice(seq, 0, 0);
  EXPECT_EQ(missing.reorder_wait(), 500 * kMicrosecond);
  for (int i = 0; i < 500; ++i) missing.NoteAsked(10, 11, 100, 0, now);
  EXPECT_EQ(missing.reorder_wait(), 0);
  // A copy that arrives long after the request shows nothing.
  ArriveTwice(seq, 0, 11 * kMillisecond);
  EXPECT_EQ(missing.reorder_wait(), 0);
}

// The wait is at most a round trip, and a copy may be as late.
TEST_F(MissingResponsesTest, TheWaitFollowsTheRoundTrip) {
  constexpr Time kRoundTrip = 40 * kMillisecond;
  uint64_t seq = 100;
  Time before = 0;
  for (; seq < 104; ++seq) {
    ArriveTwice(seq, kRoundTrip, 2 * kRoundTrip);
    EXPECT_GT(missing.reorder_wait(), before);
    before = missing.reorder_wait();
  }
  EXPECT_LE(before, kRoundTrip);
  EXPECT_GT(before, kRoundTrip * 8 / 10);
  ArriveTwice(seq++, kRoundTrip, 5 * kRoundTrip);
  EXPECT_LT(missing.reorder_wait(), before);
  // The wait follows the round trip however long that is.
  for (; seq < 120; ++seq) ArriveTwice(seq, 60 * kSecond, 0);
  EXPECT_EQ(missing.reorder_wait(), 200 * kMillisecond);
}

// A range that was requested once more because of silence may be answered
// twice.
TEST_F(MissingResponsesTest, ACopyAfterASilenceShowsNothing) {
  AskForTen();
  missing.NoteAsked(10, 20, 100, 0, 0);
  for (uint64_t seq = 10; seq < 20; ++seq) missing.Take(seq, 0);
  missing.NoteCopy(10, 0, 0);
  EXPECT_EQ(missing.reorder_wait(), 0);
  // A number that was not known to be missing may be answered twice, too.
  missing.NoteAsked(30, 31, 100, 0, 0);
  missing.AnsweredTo(31);
  missing.NoteCopy(30, 0, 0);
  EXPECT_EQ(missing.reorder_wait(), 0);
}

TEST_F(MissingResponsesTest, RoomIsBounded) {
  missing.AnsweredTo(0);
  for (uint64_t i = 0; i < MissingResponses::kMaxRanges; ++i) {
    ASSERT_TRUE(missing.AddMissing(10 * i, 10 * i + 3, 0, 0));
  }
  const uint64_t known = missing.known_to();
  EXPECT_FALSE(missing.AddMissing(known + 1, known + 2, 0, 0));
  EXPECT_EQ(missing.known_to(), known);
  EXPECT_FALSE(missing.Distrust(5, 0, 0));
  EXPECT_FALSE(missing.HasRoomFor(11));
  EXPECT_TRUE(missing.HasRoomFor(10));
  EXPECT_TRUE(missing.HasRoomFor(12));
  for (uint64_t seq = 0; seq < 3; ++seq) missing.Take(seq, 0);
  EXPECT_TRUE(missing.HasRoomFor(11));
  missing.Take(11, 0);
  EXPECT_EQ(missing.ranges().size(), MissingResponses::kMaxRanges);
}

TEST_F(MissingResponsesTest, WhatIsNotTrustedIsMissingAgain) {
  AskForTen();
  ASSERT_TRUE(missing.Distrust(25, 10, 0));
  EXPECT_EQ(Text(missing), "10-20 asked, 25-26 waiting");
}

}  // namespace
}  // namespace transport
