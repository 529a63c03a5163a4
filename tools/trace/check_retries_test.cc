// The rules for requests that are sent again: retry counts and timeouts.
#include <gtest/gtest.h>

#include <cstdint>

#include "tools/trace/check_fixture.h"
#include "wire/aeth.h"

namespace trace {
namespace {

// A requester that sends PSN 10 again and again, each time after `wait`.
Capture Repeating(int repeats, int64_t wait) {
  Capture c;
  c.Request(Operation::kSendOnly, 8, 8);
  c.Request(Operation::kSendOnly, 9, 8);
  c.Answer(kAck, 8);  // shows the requester's queue pair
  for (int i = 0; i <= repeats; ++i) {
    c.Request(Operation::kSendOnly, 9, 8).time =
        (i + 10) * kMillisecond + (i + 1) * wait;
    c.Request(Operation::kSendOnly, 10, 8).time =
        (i + 10) * kMillisecond + (i + 1) * wait;
  }
  return c;
}

TEST(CheckTest, MoreRepeatsThanRetryCntAllows) {
  EXPECT_EQ(Repeating(7, 0).Check(), Broken());  // retry_cnt is unknown
  EXPECT_EQ(Repeating(2, 0).Check({.retry_count = 3}), Broken());
  EXPECT_EQ(Repeating(3, 0).Check({.retry_count = 3}),
            Broken{"retry-count 10"});
  // A recording contains it.
  Capture c;
  c.AddConnected(/*timeout=*/1, /*retry_count=*/1, /*rnr_retry=*/1);
  for (int i = 0; i < 2; ++i) c.Request(Operation::kSendOnly, 10, 8);
  EXPECT_EQ(c.Check(), Broken());
  c.Request(Operation::kSendOnly, 10, 8);
  EXPECT_EQ(c.Check(), Broken{"retry-count 3"});
}

TEST(CheckTest, AnAnswerBeginsTheRetriesAnew) {
  Capture c;
  for (uint32_t psn = 10; psn < 30; psn += 2) {
    c.Request(Operation::kSendOnly, psn, 8);
    c.Request(Operation::kSendOnly, psn, 8);
    c.Answer(kAck, psn);
    c.Request(Operation::kSendOnly, psn + 1, 8);
    c.Answer(kSequenceNak, psn + 1);
    c.Request(Operation::kSendOnly, psn + 1, 8);
    c.Answer(kAck, psn + 1);
  }
  EXPECT_EQ(c.Check({.retry_count = 1}), Broken());
}

TEST(CheckTest, MoreRepeatsThanRnrRetryAllows) {
  for (const uint8_t rnr_retry : {uint8_t{2}, uint8_t{7}}) {
    Capture c;
    c.AddConnected(14, 7, rnr_retry);
    c.Request(Operation::kSendOnly, 10, 8);
    for (int i = 0; i < 2; ++i) {
      c.Answer(wire::MakeRnrSyndrome(1), 10);
      c.Request(Operation::kSendOnly, 10, 8);
    }
    EXPECT_EQ(c.Check(), Broken());
    c.Answer(wire::MakeRnrSyndrome(1), 10);
    c.Request(Operation::kSendOnly, 10, 8);
    // 7 means no limit.
    EXPECT_EQ(c.Check(), rnr_retry == 7 ? Broken() : Broken{"retry-count 7"});
  }
}

TEST(CheckTest, ARepeatBeforeTheAckTimeout) {
  // 8.4 ms.
  EXPECT_EQ(Repeating(2, 9 * kMillisecond).Check({.timeout = 11}), Broken());
  EXPECT_EQ(Repeating(1, 5 * kMillisecond).Check({.timeout = 11}),
            Broken{"early-repeat 6"});
  EXPECT_EQ(Repeating(1, 5 * kMillisecond).Check(), Broken());
  EXPECT_EQ(Repeating(1, 5 * kMillisecond).Check({.timeout = 0}),
            (Broken{"early-repeat 4", "early-repeat 6"}));
}

TEST(CheckTest, ARepeatThatNeedNotWait) {
  Capture c;
  c.Request(Operation::kSendOnly, 10, 8);
  c.Request(Operation::kSendOnly, 11, 8);
  c.Answer(kAck, 10);
  c.Answer(kSequenceNak, 11);
  c.Request(Operation::kSendOnly, 11, 8);
  c.Read(12, 100);
  c.Request(Operation::kSendOnly, 13, 8);
  c.Answer(kAck, 13);  // the response to the READ is missing
  c.Read(12, 100);
  EXPECT_EQ(c.Check({.timeout = 14}), Broken());
  // A probe, which the recording shows.
  Capture probe;
  probe.AddConnected(14, 0, 7);
  probe.Request(Operation::kSendOnly, 10, 8);
  rxe_user::trace::TimerEvent timer;
  timer.kind = static_cast<uint8_t>(rxe_user::trace::TimerKind::kProbe);
  const uint64_t id = probe.Add(timer, kRequester);
  probe.Request(Operation::kSendOnly, 10, 8).cause = id;
  EXPECT_EQ(probe.Check(), Broken());
  probe.recording.packets.back().cause = 0;
  EXPECT_EQ(probe.Check(), (Broken{"retry-count 2", "early-repeat 2"}));
}

}  // namespace
}  // namespace trace
