// READ responses after CNPs (ResponsePace): they slow down, never stop, and
// recover. Packets that need not wait for them do not.
#include <algorithm>
#include <string>

#include "gtest/gtest.h"
#include "transport/congestion/response_pace.h"
#include "transport/testing/responder_fixture.h"
#include "wire/psn.h"

namespace transport {
namespace {

using enum wire::Operation;

constexpr uint32_t kLong = 64 * 1024;  // bytes: 256 packets
constexpr uint32_t kLongPackets = kLong / WirePeer::kMtu;
constexpr uint64_t kPacketCost = 256 + 16 + Path::kPacketOverhead;

class ResponderPaceTest : public ResponderTest {
 protected:
  void Notify() {
    wire::Headers cnp;
    cnp.bth.opcode = wire::kOpcodeCnp;
    cnp.bth.becn = true;
    cnp.bth.dest_qpn = WirePeer::kQpn;
    peer.Deliver(cnp, wire::kCnpPayloadSize);
  }
  void Request(uint32_t bytes = kLong) {
    peer.Deliver(peer.Read(psn_, 0, bytes));
    psn_ = wire::PsnAdd(psn_, std::max(1u, bytes / WirePeer::kMtu));
  }
  // How many packets go out now.
  int Send() {
    const std::string lines = peer.Transmit();
    return static_cast<int>(std::count(lines.begin(), lines.end(), '['));
  }
  // How long it takes to send everything that was requested.
  Time Finish() {
    const Time start = peer.now;
    for (;;) {
      const int sent = Send();
      sent_ += sent;
      max_at_once_ = std::max(max_at_once_, sent);
      const Time next = peer.endpoint.NextTimeout();
      if (next == kNever) return peer.now - start;
      longest_pause_ = std::max(longest_pause_, next - peer.now);
      peer.now = next;
      peer.endpoint.OnTimer(peer.now);
    }
  }
  Time TimeOf(uint32_t bytes = kLong) {
    Request(bytes);
    return Finish();
  }
  // Delivers CNPs at the shortest interval at which each counts, and sends a
  // response before each.
  void Congest(int cnps) {
    for (int i = 0; i < cnps; ++i) {
      TimeOf(256);
      Notify();
      peer.now += Path::kNotificationInterval;
    }
  }
  uint64_t rate() const { return peer.qp->path()->responses().rate(); }

  uint32_t psn_ = 100;
  int sent_ = 0;
  int max_at_once_ = 0;
  Time longest_pause_ = 0;
};

TEST_F(ResponderPaceTest, WithoutCnpsTheyGoOutAtOnce) {
  for (int i = 0; i < 8; ++i) EXPECT_EQ(TimeOf(), 0);
  EXPECT_EQ(sent_, 8 * kLongPackets);
  EXPECT_EQ(rate(), 0u);
}

TEST_F(ResponderPaceTest, EachCnpSlowsThemDown) {
  TimeOf();
  uint64_t before = ResponsePace::kFullRate;
  for (int i = 0; i < 8; ++i) {
    Notify();
    EXPECT_LT(rate(), before) << i;
    before = rate();
    TimeOf(256);
    peer.now += Path::kNotificationInterval;
  }
  // Responses are sent at the present rate, which grows little meanwhile, and
  // in bursts.
  sent_ = max_at_once_ = 0;
  const auto slow = static_cast<Time>(kLongPackets * kPacketCost *
                                      ResponsePace::kInterval / rate());
  const auto max = static_cast<int>(2 * rate() / kPacketCost);
  const Time time = TimeOf();
  EXPECT_GT(time, slow / 2);
  EXPECT_LT(time, slow);
  EXPECT_EQ(sent_, static_cast<int>(kLongPackets));
  EXPECT_LE(max_at_once_, max);
}

// A CNP also counts in the middle of a response.
TEST_F(ResponderPaceTest, AResponseInProgressSlowsDown) {
  TimeOf();
  Notify();
  Request();
  const int first = Send();
  EXPECT_LT(first, static_cast<int>(kLongPackets));
  const uint64_t before = rate();
  peer.now = std::max(peer.endpoint.NextTimeout(),
                      peer.now + Path::kNotificationInterval);
  Notify();
  EXPECT_LT(rate(), before);
  EXPECT_GT(Finish(), 0);
  EXPECT_EQ(sent_ + first, 2 * static_cast<int>(kLongPackets));
}

TEST_F(ResponderPaceTest, AStormOfCnpsDoesNotStopThem) {
  TimeOf();
  Congest(60);
  sent_ = 0;
  Request();
  Time last = peer.now;  // when something was sent
  int storm = 0;
  while (sent_ < static_cast<int>(kLongPackets)) {
    const int sent = Send();
    sent_ += sent;
    if (sent != 0) last = peer.now;
    ASSERT_LE(peer.now - last, ResponsePace::kMaxPause);
    Notify();
    ++storm;
    peer.now += 10 * kMicrosecond;
    peer.endpoint.OnTimer(peer.now);
  }
  EXPECT_GT(storm, 1000);
  EXPECT_GE(rate(), ResponsePace::kMinRate);
  EXPECT_LT(rate(), ResponsePace::kFullRate / 100);
}

// CNPs without a response since the last one do not count.
TEST_F(ResponderPaceTest, OneCnpCountsForWhatWasSent) {
  TimeOf();
  Notify();
  const uint64_t once = rate();
  EXPECT_GT(once, 0u);
  for (int i = 0; i < 100; ++i) {
    peer.now += kMillisecond / 10;
    Notify();
  }
  EXPECT_EQ(rate(), once);
}

TEST_F(ResponderPaceTest, CnpsForWritesDoNotSlowDownResponses) {
  for (int i = 0; i < 20; ++i) {
    peer.Deliver(peer.Write(kWriteOnly, psn_++, 0, 16, true), 16);
    peer.Transmit();
    Notify();
    peer.now += kMillisecond;
  }
  EXPECT_EQ(rate(), 0u);
  EXPECT_EQ(TimeOf(), 0);
}

TEST_F(ResponderPaceTest, TheRateComesBack) {
  TimeOf();
  Congest(30);
  const Time slow = TimeOf();
  EXPECT_GT(slow, 2 * kMillisecond);
  const Time start = peer.now;
  Time last = slow;
  while (last != 0 && peer.now - start < kSecond) {
    last = TimeOf();
  }
  EXPECT_EQ(last, 0);
  EXPECT_EQ(rate(), 0u);
  EXPECT_GE(peer.now - start, 80 * kMillisecond);
}

TEST_F(ResponderPaceTest, AfterALongPauseTheyGoOutAtOnce) {
  TimeOf();
  Congest(30);
  peer.now += 2 * Dcqcn::kActive;
  EXPECT_EQ(TimeOf(), 0);
}

// A rate that is not used up has not been tried.
TEST_F(ResponderPaceTest, ARateThatIsNotUsedDoesNotGrow) {
  TimeOf();
  Congest(30);
  const uint64_t before = rate();
  for (int i = 0; i < 20; ++i) {
    peer.now += 2 * kMillisecond;
    EXPECT_EQ(TimeOf(256), 0);
  }
  EXPECT_EQ(rate(), before);
}

TEST_F(ResponderPaceTest, AResponderInRtrSlowsDown) {
  WirePeer other;
  other.Connect(QpState::kRtr);
  other.Deliver(other.Read(100, 0, kLong));
  other.Transmit();
  wire::Headers cnp;
  cnp.bth.opcode = wire::kOpcodeCnp;
  cnp.bth.dest_qpn = WirePeer::kQpn;
  other.Deliver(cnp, wire::kCnpPayloadSize);
  EXPECT_GT(other.qp->path()->responses().rate(), 0u);
  EXPECT_EQ(other.qp->path()->window(), Path::kInitialWindow);
}

// --- What does not wait.

class HeldResponseTest : public ResponderPaceTest {
 protected:
  // Nothing may be sent for a while.
  HeldResponseTest() {
    TimeOf();
    Congest(30);
    TimeOf();
    EXPECT_FALSE(peer.qp->path()->responses().MayBegin(peer.now));
  }
  std::string Number(uint32_t back) const {
    return std::to_string(wire::PsnAdd(psn_, -static_cast<int32_t>(back)));
  }
};

TEST_F(HeldResponseTest, WritesBeforeTheReadAreAcknowledged) {
  peer.Deliver(peer.Write(kWriteOnly, psn_++, 0, 16, true), 16);
  Request(256);
  EXPECT_EQ(peer.Transmit().find("ACK " + Number(2)), 0u);
  EXPECT_EQ(peer.Transmit(), "");
  peer.now = peer.endpoint.NextTimeout();
  peer.endpoint.OnTimer(peer.now);
  EXPECT_EQ(peer.Transmit().find("READ_ONLY " + Number(1)), 0u);
  EXPECT_EQ(peer.Transmit(), "");
}

TEST_F(HeldResponseTest, AtomicsBeforeTheReadAreAnswered) {
  SetWord(8, 5);
  peer.Deliver(peer.Atomic(kFetchAdd, psn_++, 8, 1));
  Request(256);
  EXPECT_EQ(peer.Transmit().find("ATOMIC " + Number(2)), 0u);
  EXPECT_EQ(peer.Transmit(), "");
}

// The order of responses is that of requests (IBA vol. 1, 9.7.5.1).
TEST_F(HeldResponseTest, WhatComesAfterTheReadWaits) {
  Request(256);
  SetWord(8, 5);
  peer.Deliver(peer.Atomic(kFetchAdd, psn_++, 8, 1));
  peer.Deliver(peer.Write(kWriteOnly, psn_++, 0, 16, true), 16);
  EXPECT_EQ(peer.Transmit(), "");
  peer.now = peer.endpoint.NextTimeout();
  peer.endpoint.OnTimer(peer.now);
  const std::string lines = peer.Transmit();
  EXPECT_EQ(lines.find("READ_ONLY " + Number(3)), 0u);
  EXPECT_LT(lines.find("ATOMIC " + Number(2)), lines.find("ACK " + Number(1)));
  EXPECT_NE(lines.find("ACK " + Number(1)), std::string::npos);
}

TEST_F(HeldResponseTest, ACnpIsAnsweredMeanwhile) {
  Request(256);
  peer.datagram.traffic_class = 3;
  peer.Deliver(peer.Write(kWriteOnly, psn_++, 0, 16), 16);
  EXPECT_EQ(peer.Transmit(), "CNP");
}

}  // namespace
}  // namespace transport
