// Faults of received packets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "rxe_user/faults/fault_port_fixture.h"
#include "transport/base/rare_event.h"

namespace rxe_user {
namespace {

TEST_F(FaultPortTest, AnUntouchedBatchIsPassedOnAsItIs) {
  Open("drop rx nth=5");
  Arrive(10, 3);
  const auto batches = port_->Receive(true);
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0].bytes.data(), arrived_.data());
  EXPECT_EQ(batches[0].bytes.size(), arrived_.size());
}

TEST_F(FaultPortTest, RulesForOneDirectionLeaveTheOtherAlone) {
  Open("drop tx");
  Arrive(10, 3);
  const GroBatch* const passed = port_->Receive(true).data();
  EXPECT_EQ(passed, inner_->received.data());
  Open("drop rx");
  EXPECT_EQ(port_->Begin(flow_), &inner_->burst);
}

TEST_F(FaultPortTest, DropsExactlyOneReceivedPacket) {
  for (uint32_t n = 1; n <= 4; ++n) {
    observer_.shown.clear();
    Open("drop rx nth=" + std::to_string(n));
    Arrive(10, 4, 8);
    const std::vector<Sent> got = Receive();
    Psns expected = {10, 11, 12, 13};
    expected.erase(expected.begin() + (n - 1));
    EXPECT_EQ(PsnsOf(got), expected);
    ExpectGood(got);
    EXPECT_EQ(PsnsHit(), Psns{9 + n});
    ExpectShownAsArrived();
  }
  const std::vector<RecordedEvent> events = recorder_.Events();
  ASSERT_EQ(events.size(), 1u);  // equal ones are counted
  EXPECT_EQ(events[0].event.kind, transport::RareEventKind::kFault);
  EXPECT_EQ(events[0].event.psn, 10u);
  EXPECT_EQ(events[0].event.qpn, kQpn);
  EXPECT_EQ(events[0].event.value, 1u);
  EXPECT_EQ(events[0].count, 4u);
}

TEST_F(FaultPortTest, DuplicatesAndMarksAReceivedPacket) {
  Open("duplicate rx nth=2; ce rx nth=2|3");
  Arrive(10, 3);
  const std::vector<Sent> got = Receive();
  EXPECT_EQ(PsnsOf(got), (Psns{10, 11, 11, 12}));
  ExpectGood(got);
  // Rule 2 counted the packet of rule 1.
  EXPECT_EQ(got[0].traffic_class, 2);
  EXPECT_EQ(got[2].traffic_class, 2);
  EXPECT_EQ(got[3].traffic_class, 3);
  EXPECT_EQ(PsnsHit(), (Psns{11, 12}));
}

TEST_F(FaultPortTest, CorruptsOneBitOfAReceivedPacket) {
  Open("corrupt payload rx nth=2");
  Arrive(10, 3);
  const std::vector<Sent> got = Receive();
  ASSERT_EQ(got.size(), 3u);
  EXPECT_TRUE(IsGood(got[0]));
  EXPECT_FALSE(IsGood(got[1]));
  EXPECT_TRUE(IsGood(got[2]));
  EXPECT_EQ(got[1].bytes[wire::kBthSize], 1);
  Open("corrupt byte=20 resealed rx nth=2");
  Arrive(10, 3);
  const std::vector<Sent> resealed = Receive();
  ExpectGood(resealed);
  EXPECT_EQ(resealed[1].bytes[20], 1);
  observer_.shown.erase(observer_.shown.begin(), observer_.shown.begin() + 3);
  ExpectShownAsArrived();
}

TEST_F(FaultPortTest, DelaysAReceivedPacket) {
  Open("delay 5ms rx nth=2");
  Arrive(10, 3);
  EXPECT_EQ(PsnsOf(Receive()), (Psns{10, 12}));
  now += 5 * kMillisecond - 1;
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  now += 1;
  const std::vector<Sent> late = Receive();
  EXPECT_EQ(PsnsOf(late), Psns{11});
  ExpectGood(late);
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  EXPECT_EQ(PsnsHit(), Psns{11});
}

// Observers are told of the fault at once, and see the packet later.
TEST_F(FaultPortTest, AHeldReceivedPacketIsReportedAtOnce) {
  for (const char* const rule : {"delay 5ms rx nth=2", "reorder 9 rx nth=2"}) {
    observer_ = Observer();
    Open(rule);
    Arrive(10, 3);
    EXPECT_EQ(PsnsOf(Receive()), (Psns{10, 12}));
    EXPECT_EQ(observer_.held, Psns{11}) << rule;
    EXPECT_EQ(PsnsHit(), Psns{}) << rule;
    now += 10 * kMillisecond;
    EXPECT_EQ(PsnsOf(Receive()), Psns{11});
    EXPECT_EQ(observer_.held, Psns{11}) << rule;
    EXPECT_EQ(PsnsHit(), Psns{11}) << rule;
    EXPECT_EQ(observer_.shown.back().held, 111u) << rule;
  }
  for (const char* const rule : {"drop rx nth=2", "ce rx", "delay 5ms tx"}) {
    observer_ = Observer();
    Open(rule);
    Arrive(10, 3);
    (void)Receive();
    Send(10, 3);
    EXPECT_EQ(observer_.held, Psns{}) << rule;
  }
}

TEST_F(FaultPortTest, TheTimerIsReadableWhenAPacketIsDue) {
  Open("delay 1ns rx nth=1; delay 3600s rx nth=2");
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  now = t.tv_sec * transport::kSecond + t.tv_nsec - transport::kSecond;
  EXPECT_FALSE(TimerIsReadable());
  Arrive(10, 2);
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  EXPECT_TRUE(TimerIsReadable());
  now += 1;
  EXPECT_EQ(PsnsOf(Receive()), Psns{10});
  EXPECT_FALSE(TimerIsReadable());
}

TEST_F(FaultPortTest, ReordersAReceivedPacket) {
  Open("reorder 2 rx nth=2");
  Arrive(10, 5);
  const std::vector<Sent> got = Receive();
  EXPECT_EQ(PsnsOf(got), (Psns{10, 12, 13, 11, 14}));
  ExpectGood(got);
  // If no packets overtake it, it leaves after a time.
  Open("reorder 2 rx nth=2");
  Arrive(10, 3);
  EXPECT_EQ(PsnsOf(Receive()), (Psns{10, 12}));
  now += FaultPort::kReorderWait;
  EXPECT_EQ(PsnsOf(Receive()), Psns{11});
}

TEST_F(FaultPortTest, WhatIsHeldIsLostWithTheLink) {
  Open("delay 2ms rx nth=1; link down rx nth=2 for=5ms");
  Arrive(10, 2);
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  now += 2 * kMillisecond;
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  ASSERT_EQ(observer_.shown.size(), 2u);
  EXPECT_EQ(observer_.shown[0].rule, 2u);
  EXPECT_EQ(observer_.shown[1].rule, 1u);
  EXPECT_TRUE(observer_.shown[1].dropped);
  EXPECT_EQ(observer_.shown[1].held, 110u);
  ExpectShownAsArrived();
}

// The outage ends at its time, although Tick was not called yet.
TEST_F(FaultPortTest, WhatIsHeldUntilTheLinkIsUpAgain) {
  Open("delay 5ms rx nth=1; link down rx nth=2 for=5ms");
  Arrive(10, 2);
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  now += 5 * kMillisecond;
  EXPECT_TRUE(faults_->link_is_down());
  EXPECT_EQ(PsnsOf(Receive()), Psns{10});
}

TEST_F(FaultPortTest, InvalidPacketsArePassedOn) {
  Open("drop rx");
  const std::vector<uint8_t> garbage = {1, 2, 3};
  GroBatch batch;
  batch.bytes = garbage;
  batch.segment_size = 100;
  GroBatch empty;
  empty.segment_size = 1;
  inner_->arriving = {batch, empty};
  EXPECT_EQ(port_->Receive(true).size(), 2u);
}

}  // namespace
}  // namespace rxe_user
