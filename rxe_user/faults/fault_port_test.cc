#include "rxe_user/faults/fault_port.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rxe_user/observe/recorder.h"
#include "transport/faults/rule_parser.h"
#include "wire/aeth.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

using transport::Burst;
using transport::Flow;
using transport::GroBatch;
using transport::kMillisecond;
using transport::ObservedPacket;
using transport::Time;
using wire::MakeOpcode;
using wire::Operation;
using wire::Transport;

constexpr uint32_t kQpn = 0x51;
constexpr size_t kPayload = 64;

// The clock of the port under test, which only tests move. Its times are so
// late on CLOCK_MONOTONIC that the timer never expires by itself.
Time now = 0;
Time TestClock() { return now; }

struct Sent {
  std::vector<uint8_t> bytes;
  uint16_t index = 0;  // in its burst: its IP identification
  uint8_t traffic_class = 0;
  uint8_t hop_mark = 0;

  uint32_t psn() const { return wire::LoadBe24(bytes.data() + 9); }
};

// Records what is sent, and delivers what the tests give it.
class FakePort final : public Port {
 public:
  absl::Status AddReceiver(const LocalAddress&, int) override { return {}; }
  bool HasReceiver(const wire::IpAddress&) const override { return false; }
  void RemoveReceiver(const wire::IpAddress&) override {}
  absl::StatusOr<uint16_t> SourcePort(const LocalAddress&, uint32_t) override {
    return 0xc000;
  }
  absl::Status OpenSourcePort(const LocalAddress&, uint16_t) override {
    return {};
  }
  size_t CloseUnusedSenders(const ForEachUsed&) override { return 0; }
  std::vector<int> ReceiveDescriptors() const override { return {}; }
  std::span<const GroBatch> Receive(bool) override {
    received = std::exchange(arriving, {});
    return received;
  }
  bool more() const override { return false; }
  uint64_t TakeOverflow() override { return 0; }
  Burst* Begin(const Flow& flow) override {
    if (is_blocked) return nullptr;
    burst = Burst(buffer, max_segments);
    burst.Begin(&flow);
    burst.set_hop_mark(++last_mark);
    return &burst;
  }
  void Queue() override {
    ++bursts;
    const std::span<const uint8_t> bytes = burst.bytes();
    uint16_t index = 0;
    for (size_t at = 0; at < bytes.size(); at += burst.segment_size()) {
      const auto part =
          bytes.subspan(at, std::min(burst.segment_size(), bytes.size() - at));
      sent.push_back({{part.begin(), part.end()},
                      index++,
                      burst.flow()->av.traffic_class,
                      burst.hop_mark()});
    }
  }
  void Flush() override {}
  bool blocked() const override { return is_blocked; }
  bool must_retry() const override { return is_blocked; }
  const PortCounters& counters() const override { return counters_; }
  void AbandonInChild() override {}

  ~FakePort() override {
    if (sent_at_end != nullptr) *sent_at_end = sent;
  }

  std::vector<Sent>* sent_at_end = nullptr;
  std::vector<GroBatch> arriving;
  std::vector<GroBatch> received;
  std::vector<Sent> sent;
  bool is_blocked = false;
  int max_segments = 64;
  int bursts = 0;
  uint8_t last_mark = 0;
  std::vector<uint8_t> buffer = std::vector<uint8_t>(65536);
  Burst burst{buffer, 64};

 private:
  PortCounters counters_;
};

class Observer final : public transport::PacketObserver {
 public:
  struct Shown {
    std::vector<uint8_t> bytes;
    uint32_t rule = 0;
    bool dropped = false;
    uint8_t hop_limit = 0;
    uint64_t held = 0;
  };
  void OnPacket(const ObservedPacket& packet) override {
    shown.push_back({{packet.bytes.begin(), packet.bytes.end()},
                     packet.fault != nullptr ? packet.fault->rule : 0,
                     packet.fault != nullptr && packet.fault->dropped,
                     packet.hop_limit,
                     packet.fault != nullptr ? packet.fault->held : 0});
  }
  uint64_t OnHeld(const ObservedPacket& packet) override {
    held.push_back(wire::LoadBe24(&packet.bytes[9]));
    return 100 + held.back();
  }
  std::vector<Shown> shown;
  std::vector<uint32_t> held;  // PSNs
};

using Psns = std::vector<uint32_t>;

class FaultPortTest : public testing::Test {
 protected:
  FaultPortTest() : flow_(Av()) { now = 100 * transport::kSecond; }

  static transport::AddressVector Av() {
    transport::AddressVector av;
    av.source = *wire::IpAddress::Parse("192.0.2.1");
    av.destination = *wire::IpAddress::Parse("192.0.2.2");
    av.source_port = 0xc123;
    av.traffic_class = 2;
    return av;
  }

  void Open(const std::string& rules) {
    FaultSettings settings;
    const auto error = transport::faults::ParseRules(rules, &settings.rules);
    ASSERT_FALSE(error.has_value()) << error->ToString();
    faults_ = std::make_unique<ProcessFaults>(std::move(settings), now);
    faults_->OnCreated(kQpn);
    auto inner = std::make_unique<FakePort>();
    inner_ = inner.get();
    port_ = *FaultPort::Create(std::move(inner), faults_.get(), &TestClock);
    endpoint_observer_ = port_->Watch(&observer_, &recorder_);
  }

  // As `run --faults none`.
  void OpenWithoutRules() {
    Open("drop maybe");
    std::vector<FaultRuleStatus> removed;
    ASSERT_EQ(faults_->Remove({}, &removed), std::nullopt);
  }
  void AddRules(const std::string& rules) {
    std::vector<FaultRuleStatus> added;
    ASSERT_EQ(faults_->Add(rules, now, &added), std::nullopt);
  }

  static std::vector<uint8_t> Packet(uint32_t psn, size_t payload = kPayload) {
    wire::Headers headers;
    headers.bth.opcode = MakeOpcode(Transport::kRc, Operation::kWriteMiddle);
    headers.bth.dest_qpn = kQpn;
    headers.bth.psn = psn;
    std::vector<uint8_t> bytes(wire::kBthSize + payload + wire::kIcrcSize);
    wire::EmitHeaders(headers, bytes.data());
    return bytes;
  }

  // --- Receive.

  // Packets first, first + 1, ... arrive as one GRO batch, whose last packet
  // has `last` bytes of payload.
  void Arrive(uint32_t first, uint32_t count, size_t last = kPayload) {
    arrived_.clear();
    for (uint32_t i = 0; i < count; ++i) {
      std::vector<uint8_t> packet =
          Packet(first + i, i + 1 == count ? last : kPayload);
      flow_.icrc.Store(packet, static_cast<uint16_t>(i));
      arrived_.insert(arrived_.end(), packet.begin(), packet.end());
    }
    GroBatch batch;
    batch.bytes = arrived_;
    batch.segment_size = wire::kBthSize + kPayload + wire::kIcrcSize;
    batch.source = flow_.av.source;
    batch.destination = flow_.av.destination;
    batch.source_port = flow_.av.source_port;
    batch.traffic_class = flow_.av.traffic_class;
    inner_->arriving = {batch};
  }
  // Receives, and shows each packet to the observer, as the endpoint does.
  std::vector<Sent> Receive() {
    std::vector<Sent> packets;
    for (const GroBatch& batch : port_->Receive(true)) {
      uint16_t index = 0;
      for (size_t at = 0; at < batch.bytes.size(); at += batch.segment_size) {
        const auto part = batch.bytes.subspan(
            at, std::min(batch.segment_size, batch.bytes.size() - at));
        packets.push_back(
            {{part.begin(), part.end()}, index++, batch.traffic_class});
        ObservedPacket shown;
        shown.bytes = part;
        endpoint_observer_->OnPacket(shown);
      }
    }
    return packets;
  }

  // --- Transmit.

  // The last packet is from queue pair `last_qpn`.
  void Send(uint32_t first, uint32_t count, size_t last = kPayload,
            uint32_t last_qpn = kQpn) {
    Burst* const burst = port_->Begin(flow_);
    ASSERT_NE(burst, nullptr);
    for (uint32_t i = 0; i < count; ++i) {
      const std::vector<uint8_t> packet =
          Packet(first + i, i + 1 == count ? last : kPayload);
      uint8_t* const out = burst->Reserve(packet.size());
      ASSERT_NE(out, nullptr);
      std::copy(packet.begin(), packet.end(), out);
      burst->Commit();
    }
    for (uint32_t i = 0; i < count; ++i) {
      ObservedPacket shown;
      shown.direction = transport::Direction::kTransmitted;
      shown.segment_index = static_cast<uint16_t>(i);
      shown.hop_limit = 64 - burst->hop_mark();
      shown.qpn = i + 1 == count ? last_qpn : kQpn;
      endpoint_observer_->OnPacket(shown);
    }
    port_->Queue();
  }
  std::vector<Sent> TakeSent() { return std::exchange(inner_->sent, {}); }

  static Psns PsnsOf(const std::vector<Sent>& packets) {
    Psns psns;
    for (const Sent& packet : packets) psns.push_back(packet.psn());
    return psns;
  }
  bool IsGood(const Sent& packet) const {
    return flow_.icrc.Verify(packet.bytes, packet.index);
  }
  void ExpectGood(const std::vector<Sent>& packets) const {
    for (const Sent& packet : packets) {
      EXPECT_TRUE(IsGood(packet)) << packet.psn() << " at " << packet.index;
    }
  }
  // The packets that observers saw with rule 1.
  Psns Hit() const {
    Psns psns;
    for (const Observer::Shown& shown : observer_.shown) {
      if (shown.rule != 0) psns.push_back(wire::LoadBe24(&shown.bytes[9]));
    }
    return psns;
  }
  // All packets of the last Arrive, in any order.
  void ExpectShownAsArrived() const {
    std::vector<uint8_t> all;
    std::vector<Observer::Shown> shown = observer_.shown;
    std::ranges::sort(shown, {}, [](const Observer::Shown& packet) {
      return wire::LoadBe24(&packet.bytes[9]);
    });
    for (const Observer::Shown& packet : shown) {
      all.insert(all.end(), packet.bytes.begin(), packet.bytes.end());
    }
    EXPECT_EQ(all, arrived_);
  }
  bool TimerIsReadable() const {
    pollfd fd = {port_->ReceiveDescriptors().at(0), POLLIN, 0};
    return ::poll(&fd, 1, 0) == 1;
  }

  const Flow flow_;
  std::unique_ptr<ProcessFaults> faults_;
  FakePort* inner_ = nullptr;
  Observer observer_;
  Recorder recorder_;
  std::unique_ptr<Port> port_;
  transport::PacketObserver* endpoint_observer_ = nullptr;
  std::vector<uint8_t> arrived_;
};

// --- Receive.

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
    EXPECT_EQ(Hit(), Psns{9 + n});
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
  EXPECT_EQ(Hit(), (Psns{11, 12}));
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
  EXPECT_EQ(Hit(), Psns{11});
}

// Observers are told of the fault at once, and see the packet later.
TEST_F(FaultPortTest, AReceivedPacketThatIsHeldIsToldAtOnce) {
  for (const char* const rule : {"delay 5ms rx nth=2", "reorder 9 rx nth=2"}) {
    observer_ = Observer();
    Open(rule);
    Arrive(10, 3);
    EXPECT_EQ(PsnsOf(Receive()), (Psns{10, 12}));
    EXPECT_EQ(observer_.held, Psns{11}) << rule;
    EXPECT_EQ(Hit(), Psns{}) << rule;
    now += 10 * kMillisecond;
    EXPECT_EQ(PsnsOf(Receive()), Psns{11});
    EXPECT_EQ(observer_.held, Psns{11}) << rule;
    EXPECT_EQ(Hit(), Psns{11}) << rule;
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
  // Without packets that overtake it, it leaves after a time.
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
    EXPECT_EQ(Hit(), Psns{receive_begins ? 11u : 21u});
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

TEST_F(FaultPortTest, WhatIsNoPacketIsPassedOn) {
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

// --- Transmit.

TEST_F(FaultPortTest, ABurstWithoutAHitLeavesAsOne) {
  Open("drop tx nth=9");
  Send(10, 4, 8);
  EXPECT_EQ(inner_->bursts, 1);
  const std::vector<Sent> sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 11, 12, 13}));
  ExpectGood(sent);
  ASSERT_EQ(observer_.shown.size(), 4u);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(observer_.shown[i].bytes, sent[i].bytes);
}

TEST_F(FaultPortTest, DropsExactlyOneSentPacket) {
  for (uint32_t n = 1; n <= 4; ++n) {
    observer_.shown.clear();
    Open("drop tx nth=" + std::to_string(n));
    Send(10, 4, 8);
    Psns expected = {10, 11, 12, 13};
    expected.erase(expected.begin() + (n - 1));
    const std::vector<Sent> sent = TakeSent();
    EXPECT_EQ(PsnsOf(sent), expected);
    ExpectGood(sent);
    EXPECT_EQ(Hit(), Psns{9 + n});
    EXPECT_EQ(observer_.shown.size(), 4u);
  }
}

TEST_F(FaultPortTest, SegmentsThatTheInnerPortCannotTakeAreSentOneByOne) {
  Open("drop tx nth=2");
  inner_->max_segments = 1;
  Send(10, 4);
  const std::vector<Sent> sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 12, 13}));
  ExpectGood(sent);
}

TEST_F(FaultPortTest, DuplicatesCorruptsAndMarksASentPacket) {
  Open("duplicate tx nth=2");
  Send(10, 3);
  std::vector<Sent> sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 11, 11, 12}));
  ExpectGood(sent);
  EXPECT_EQ(sent[1].bytes, sent[2].bytes);
  Open("corrupt psn tx nth=2");
  Send(10, 3);
  sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 11 ^ 1, 12}));
  EXPECT_FALSE(IsGood(sent[1]));
  EXPECT_TRUE(IsGood(sent[0]) && IsGood(sent[2]));
  Open("corrupt psn resealed tx nth=2");
  Send(10, 3);
  sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 11 ^ 1, 12}));
  ExpectGood(sent);
  Open("ce tx nth=2");
  Send(10, 3);
  sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 11, 12}));
  ExpectGood(sent);
  EXPECT_EQ(sent[0].traffic_class, 2);
  EXPECT_EQ(sent[1].traffic_class, 3);
  EXPECT_EQ(sent[2].traffic_class, 2);
}

TEST_F(FaultPortTest, DelaysAndReordersASentPacket) {
  Open("delay 5ms tx nth=2");
  Send(10, 3);
  EXPECT_EQ(PsnsOf(TakeSent()), (Psns{10, 12}));
  now += 5 * kMillisecond;
  (void)Receive();
  std::vector<Sent> sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), Psns{11});
  ExpectGood(sent);
  Open("reorder 3 tx nth=2");
  Send(10, 3);
  Send(13, 3);
  sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 12, 13, 14, 11, 15}));
  ExpectGood(sent);
}

// A recording has the hop limit that each packet travels with, whichever rule
// hits it and whenever it leaves.
TEST_F(FaultPortTest, SentPacketsAreShownWithTheirHopLimits) {
  for (const std::string rule :
       {"delay 5ms", "reorder 3", "duplicate", "ce", "corrupt payload"}) {
    observer_.shown.clear();
    Open(rule + " tx nth=2");
    Send(10, 3);
    Send(13, 3);
    now += 5 * kMillisecond;
    (void)Receive();
    Send(16, 1);
    std::map<uint32_t, uint8_t> shown;
    for (const Observer::Shown& packet : observer_.shown) {
      shown[wire::LoadBe24(&packet.bytes[9])] = packet.hop_limit;
    }
    EXPECT_EQ(shown.size(), 7u) << rule;
    for (const Sent& packet : TakeSent()) {
      EXPECT_EQ(64 - packet.hop_mark, shown[packet.psn()])
          << rule << ", " << packet.psn();
    }
    // Different bursts have different hop limits.
    EXPECT_EQ(shown[10], shown[12]) << rule;
    EXPECT_NE(shown[10], shown[13]) << rule;
    EXPECT_NE(shown[13], shown[16]) << rule;
  }
}

// A burst may have the responses of one and the ACK of another (DC, XRC).
TEST_F(FaultPortTest, TwoQueuePairsShareABurst) {
  Open("drop tx qp=@1");
  faults_->OnCreated(kQpn + 1);
  Send(10, 3, kPayload, kQpn + 1);
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{12});
  Open("drop tx qp=@2");
  faults_->OnCreated(kQpn + 1);
  Send(10, 3, kPayload, kQpn + 1);
  EXPECT_EQ(PsnsOf(TakeSent()), (Psns{10, 11}));
}

TEST_F(FaultPortTest, NothingIsLostWhileSendsAreBlocked) {
  Open("ce tx nth=2");
  Burst* const burst = port_->Begin(flow_);
  for (uint32_t psn = 10; psn < 13; ++psn) {
    const std::vector<uint8_t> packet = Packet(psn);
    std::copy(packet.begin(), packet.end(), burst->Reserve(packet.size()));
    burst->Commit();
  }
  inner_->is_blocked = true;
  port_->Queue();
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{});
  inner_->is_blocked = false;
  EXPECT_TRUE(port_->blocked());
  EXPECT_EQ(port_->Begin(flow_), nullptr);
  port_->Flush();
  EXPECT_FALSE(port_->blocked());
  const std::vector<Sent> sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 11, 12}));
  ExpectGood(sent);
}

TEST_F(FaultPortTest, NoAckDropsWhatAcknowledgesTheRequest) {
  const auto acknowledge = [this](uint32_t psn) {
    Burst* const burst = port_->Begin(flow_);
    ASSERT_NE(burst, nullptr);
    wire::Headers headers;
    headers.bth.opcode = MakeOpcode(Transport::kRc, Operation::kAcknowledge);
    headers.bth.psn = psn;
    headers.aeth.syndrome = wire::MakeAckSyndrome(0);
    wire::EmitHeaders(headers, burst->Reserve(wire::kAcknowledgeSize));
    burst->Commit();
    ObservedPacket shown;
    shown.direction = transport::Direction::kTransmitted;
    shown.qpn = kQpn;
    endpoint_observer_->OnPacket(shown);
    port_->Queue();
  };
  Open("no-ack nth=2");
  Arrive(10, 3);
  EXPECT_EQ(PsnsOf(Receive()), (Psns{10, 11, 12}));
  EXPECT_EQ(Hit(), Psns{11});
  acknowledge(10);
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{10});
  acknowledge(12);
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{});
  // Observers see the ACK, with the rule, and know that it was not sent.
  EXPECT_EQ(Hit(), (Psns{11, 12}));
  EXPECT_TRUE(observer_.shown.back().dropped);
  EXPECT_EQ(faults_->Status()[0].fired, 1u);
  Arrive(11, 1);
  EXPECT_EQ(PsnsOf(Receive()), Psns{11});
  acknowledge(12);
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{12});
}

TEST_F(FaultPortTest, RefusedRequestsReachTheResponder) {
  Open("rnr nth=2; nak REM_OP_ERR nth=3; rnr 10.24ms nth=4");
  Arrive(10, 5);
  const std::vector<Sent> received = Receive();
  EXPECT_EQ(PsnsOf(received), (Psns{10, 11, 12, 13, 14}));
  ExpectGood(received);
  EXPECT_EQ(Hit(), (Psns{11, 12, 13}));
  const auto refuse = [this](uint32_t psn) {
    return faults_->Refuse(kQpn,
                           {.psn = psn, .requester = {}, .min_rnr_timer = 12});
  };
  EXPECT_EQ(refuse(10), std::nullopt);
  EXPECT_EQ(refuse(11), wire::MakeRnrSyndrome(12));
  EXPECT_EQ(refuse(11), std::nullopt);
  EXPECT_EQ(refuse(12),
            wire::MakeNakSyndrome(wire::NakCode::kRemoteOperational));
  EXPECT_EQ(refuse(13), wire::MakeRnrSyndrome(20));
  EXPECT_EQ(refuse(14), std::nullopt);
  EXPECT_TRUE(faults_->refuses());
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

TEST_F(FaultPortTest, RulesComeAndGo) {
  OpenWithoutRules();
  Send(10, 2);
  EXPECT_EQ(PsnsOf(TakeSent()), (Psns{10, 11}));
  AddRules("drop tx nth=2; drop rx nth=1; delay 1ms rx nth=2");
  Send(12, 2);
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{12});
  Arrive(50, 3);
  EXPECT_EQ(PsnsOf(Receive()), Psns{52});
  std::vector<FaultRuleStatus> removed;
  EXPECT_EQ(faults_->Remove({2, 4}, &removed), std::nullopt);
  EXPECT_EQ(removed.size(), 2u);
  EXPECT_NE(faults_->Remove({2}, &removed), std::nullopt);
  EXPECT_EQ(faults_->Remove({}, &removed), std::nullopt);
  // Held packets arrive when they are due.
  Arrive(53, 1);
  EXPECT_EQ(PsnsOf(Receive()), Psns{53});
  now += kMillisecond;
  EXPECT_EQ(PsnsOf(Receive()), Psns{51});
  Send(14, 3);
  const std::vector<Sent> sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{14, 15, 16}));
  ExpectGood(sent);
  EXPECT_EQ(inner_->bursts, 3);  // unchanged: one for each Send
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
  Arrive(52, 1);
  EXPECT_EQ(PsnsOf(Receive()), (Psns{50, 51, 52}));
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{10});
}

// The acknowledgement of the peer's last message may be among the held packets.
TEST_F(FaultPortTest, SendsWhatItHoldsWhenItIsClosed) {
  std::vector<Sent> sent;
  Open("delay 1s tx nth=1; reorder 5 tx nth=2");
  inner_->sent_at_end = &sent;
  Send(10, 3);
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{12});
  port_.reset();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 11}));
  ExpectGood(sent);
  Open("stall 1s tx nth=1");
  inner_->sent_at_end = &sent;
  Send(10, 3);
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{});
  port_.reset();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 11, 12}));
  ExpectGood(sent);
}

TEST_F(FaultPortTest, NothingIsSentInAChildOfFork) {
  std::vector<Sent> sent;
  Open("delay 1s tx");
  inner_->sent_at_end = &sent;
  Send(10, 3);
  port_->AbandonInChild();
  port_.reset();
  EXPECT_EQ(PsnsOf(sent), Psns{});
}

TEST_F(FaultPortTest, DropsWhatItHasNoRoomFor) {
  Open("delay 1s rx");
  for (size_t sent = 0; sent < FaultPort::kMostHeld; sent += 64) {
    Arrive(static_cast<uint32_t>(sent), 64);
    EXPECT_EQ(PsnsOf(Receive()), Psns{});
  }
  Arrive(1 << 20, 1);
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  now += transport::kSecond;
  EXPECT_EQ(Receive().size(), FaultPort::kMostHeld);
}

}  // namespace
}  // namespace rxe_user
