#include "rxe_user/observe/recorder.h"

#include "gtest/gtest.h"

namespace rxe_user {
namespace {

using transport::RareEvent;
using transport::RareEventKind;

RareEvent Event(RareEventKind kind, transport::Time time, uint32_t qpn = 5) {
  return {.time = time, .qpn = qpn, .kind = kind};
}

TEST(Recorder, FitsItsRing) {
  EXPECT_LE(Recorder::kEvents * sizeof(RecordedEvent), Recorder::kBytes);
  EXPECT_GE(Recorder::kEvents, 700u);
}

TEST(Recorder, KeepsTheNewest) {
  Recorder recorder;
  const size_t added = Recorder::kEvents + 10;
  for (size_t i = 0; i < added; ++i) {
    recorder.Add(Event(RareEventKind::kState, static_cast<int64_t>(i)));
  }
  const std::vector<RecordedEvent> events = recorder.Events();
  ASSERT_EQ(events.size(), Recorder::kEvents);
  EXPECT_EQ(recorder.lost(), 10u);
  EXPECT_EQ(events.front().event.time, 10);
  EXPECT_EQ(events.back().event.time, static_cast<int64_t>(added) - 1);
}

// An endless loop of one failure must not displace its beginning.
TEST(Recorder, CountsRepeatedEvents) {
  Recorder recorder;
  recorder.Add(Event(RareEventKind::kState, 1));
  for (int i = 0; i < 100'000; ++i) {
    recorder.Add(Event(RareEventKind::kRnrNakReceived, 2 + i));
    recorder.Add(Event(RareEventKind::kProbe, 2 + i, 6));
  }
  recorder.Add(Event(RareEventKind::kAckTimeout, 200'000));
  const std::vector<RecordedEvent> events = recorder.Events();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(recorder.lost(), 0u);
  EXPECT_EQ(events[1].event.kind, RareEventKind::kRnrNakReceived);
  EXPECT_EQ(events[1].event.time, 2);
  EXPECT_EQ(events[1].last, 100'001);
  EXPECT_EQ(events[1].count, 100'000u);
  EXPECT_EQ(events[2].event.qpn, 6u);
  EXPECT_EQ(events[3].count, 1u);
}

// Events with different reasons or values are not merged.
TEST(Recorder, KeepsDifferentEventsApart) {
  Recorder recorder;
  RareEvent event = Event(RareEventKind::kFatalNakSent, 1);
  event.value = 2;
  recorder.Add(event);
  event.value = 3;
  recorder.Add(event);
  event.reason = transport::Reason::kRemoteKey;
  recorder.Add(event);
  recorder.Add(Event(RareEventKind::kState, 2));
  recorder.Add(Event(RareEventKind::kState, 3));
  EXPECT_EQ(recorder.Events().size(), 5u);
}

}  // namespace
}  // namespace rxe_user
