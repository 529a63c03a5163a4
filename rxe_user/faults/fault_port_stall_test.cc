// Stalls on command.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rxe_user/faults/fault_port_fixture.h"

namespace rxe_user {
namespace {

// A stall holds both directions, from the matching packet on, and keeps their
// order.
TEST_F(FaultPortTest, NothingPassesDuringAStall) {
  for (const bool receive_begins : {true, false}) {
    observer_.shown.clear();
    Open(std::string("stall 5ms nth=2 ") + (receive_begins ? "rx" : "tx"));
    if (receive_begins) {
      Arrive(10, 3);
      EXPECT_EQ(PsnsOf(Receive()), Psns{10});
      Send(20, 3);
      EXPECT_EQ(PsnsOf(TakeSent()), Psns{});
    } else {
      Send(20, 3);
      EXPECT_EQ(PsnsOf(TakeSent()), Psns{20});
      Arrive(10, 3);
      EXPECT_EQ(PsnsOf(Receive()), Psns{});
    }
    now += 5 * kMillisecond - 1;
    Arrive(13, 2);
    EXPECT_EQ(PsnsOf(Receive()), Psns{});
    Send(23, 1);
    EXPECT_EQ(PsnsOf(TakeSent()), Psns{});
    now += 1;
    Send(24, 1);  // does not overtake
    EXPECT_EQ(PsnsOf(TakeSent()), Psns{});
    Arrive(15, 1);
    const std::vector<Sent> got = Receive();
    const std::vector<Sent> sent = TakeSent();
    EXPECT_EQ(PsnsOf(got), receive_begins ? (Psns{11, 12, 13, 14, 15})
                                          : (Psns{10, 11, 12, 13, 14, 15}));
    EXPECT_EQ(PsnsOf(sent), receive_begins ? (Psns{20, 21, 22, 23, 24})
                                           : (Psns{21, 22, 23, 24}));
    ExpectGood(got);
    ExpectGood(sent);
    EXPECT_EQ(PsnsHit(), Psns{receive_begins ? 11u : 21u});
    // The stall is over.
    Arrive(16, 2);
    EXPECT_EQ(PsnsOf(Receive()), (Psns{16, 17}));
    Send(25, 2);
    EXPECT_EQ(PsnsOf(TakeSent()), (Psns{25, 26}));
    now += kMillisecond;
  }
}

TEST_F(FaultPortTest, APacketThatMatchesMakesAStallLonger) {
  Open("stall 5ms rx nth=1|2");
  Arrive(10, 1);
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  now += 3 * kMillisecond;
  Arrive(11, 1);
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  now += 5 * kMillisecond - 1;
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  now += 1;
  EXPECT_EQ(PsnsOf(Receive()), (Psns{10, 11}));
}

// A rule for a call matches no packet, but its stall holds packets all the
// same.
TEST_F(FaultPortTest, ACallBeginsAStall) {
  now = ProcessFaults::Now();  // the clock of calls
  Open("stall 1s call=ibv_reg_mr");
  Arrive(10, 1);
  EXPECT_EQ(PsnsOf(Receive()), Psns{10});
  EXPECT_NE(faults_->DecideCall("ibv_reg_mr", std::nullopt).rule, nullptr);
  Arrive(11, 2);
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  Send(20, 2);
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{});
  now += 60 * transport::kSecond;
  EXPECT_EQ(PsnsOf(Receive()), (Psns{11, 12}));
  EXPECT_EQ(PsnsOf(TakeSent()), (Psns{20, 21}));
}

// A delay that ends during a stall, and a packet that is sent twice.
TEST_F(FaultPortTest, OtherActionsDuringAStall) {
  Open(
      "delay 2ms rx nth=1; stall 5ms rx nth=2; duplicate rx nth=3; "
      "drop rx nth=4");
  Arrive(10, 5);
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  now += 2 * kMillisecond;
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  now += 3 * kMillisecond;
  const std::vector<Sent> got = Receive();
  EXPECT_EQ(PsnsOf(got), (Psns{11, 12, 12, 14, 10}));
  ExpectGood(got);
}

// The device is one for the process, so all its lanes stall.
TEST_F(FaultPortTest, AStallIsForAllLanes) {
  Open("stall 5ms rx nth=1");
  auto inner = std::make_unique<FakePort>();
  FakePort* const other_inner = inner.get();
  const std::unique_ptr<Port> other =
      *FaultPort::Create(std::move(inner), faults_.get(), &TestClock);
  Arrive(10, 1);
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  Arrive(20, 1);
  other_inner->arriving = std::exchange(inner_->arriving, {});
  EXPECT_EQ(other->Receive(true).size(), 0u);
  now += 5 * kMillisecond;
  EXPECT_EQ(other->Receive(true).size(), 1u);
  EXPECT_EQ(PsnsOf(Receive()), Psns{10});
}

TEST_F(FaultPortTest, TheTimerIsReadableAtTheEndOfAStall) {
  Open("stall 1ns rx nth=1");
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  now = t.tv_sec * transport::kSecond + t.tv_nsec - transport::kSecond;
  EXPECT_FALSE(TimerIsReadable());
  Arrive(10, 2);
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  EXPECT_TRUE(TimerIsReadable());
  now += 1;
  EXPECT_EQ(PsnsOf(Receive()), (Psns{10, 11}));
  EXPECT_FALSE(TimerIsReadable());
}

// The socket was full when a stall began. Packets that waited for it used to
// leave when it had room again, during the stall.
TEST_F(FaultPortTest, WhatWaitsForTheSocketIsStalledToo) {
  Open("stall 5ms rx nth=1");
  Burst* const burst = port_->Begin(flow_);
  ASSERT_NE(burst, nullptr);
  inner_->is_blocked = true;
  const std::vector<uint8_t> packet = Packet(11);
  std::copy(packet.begin(), packet.end(), burst->Reserve(packet.size()));
  burst->Commit();
  port_->Queue();
  EXPECT_TRUE(port_->blocked());
  Arrive(50, 1);
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  inner_->is_blocked = false;
  port_->Flush();
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{});
  EXPECT_FALSE(port_->blocked());
  Send(12, 1);
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{});
  now += 5 * kMillisecond;
  EXPECT_EQ(PsnsOf(Receive()), Psns{50});
  const std::vector<Sent> sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{11, 12}));
  ExpectGood(sent);
}

TEST_F(FaultPortTest, ARemovedStallEnds) {
  OpenWithoutRules();
  AddRules("stall 1s rx nth=1");
  Arrive(50, 2);
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  Send(10, 1);
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{});
  std::vector<FaultRuleStatus> removed;
  EXPECT_EQ(faults_->Remove({}, &removed), std::nullopt);
  Send(11, 1);
  // The timer wakes a process that waits, although no packet arrives.
  EXPECT_TRUE(TimerIsReadable());
  Arrive(52, 1);
  EXPECT_EQ(PsnsOf(Receive()), (Psns{50, 51, 52}));
  EXPECT_EQ(PsnsOf(TakeSent()), (Psns{10, 11}));
}

}  // namespace
}  // namespace rxe_user
