// A FaultPort in front of a port that records what is sent, on a clock of the
// test.
#ifndef RXE_USER_FAULTS_FAULT_PORT_FIXTURE_H_
#define RXE_USER_FAULTS_FAULT_PORT_FIXTURE_H_

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rxe_user/faults/fault_port.h"
#include "rxe_user/observe/recorder.h"
#include "rxe_user/testing/socketless_port.h"
#include "transport/faults/rule_parser.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace rxe_user {

using transport::Burst;
using transport::Flow;
using transport::GroBatch;
using transport::kMillisecond;
using transport::ObservedPacket;
using transport::Time;
using wire::MakeOpcode;
using wire::Operation;
using wire::Transport;

inline constexpr uint32_t kQpn = 0x51;
inline constexpr size_t kPayload = 64;

// The clock of the port under test, which only tests move. Its times are so
// late on CLOCK_MONOTONIC that the timer never expires by itself.
inline Time now = 0;
inline Time TestClock() { return now; }

struct Sent {
  std::vector<uint8_t> bytes;
  uint16_t index = 0;  // in its burst: its IP identification
  uint8_t traffic_class = 0;
  uint8_t hop_mark = 0;

  uint32_t psn() const { return wire::LoadBe24(bytes.data() + 9); }
};

// Records what is sent, and delivers what the tests give it.
class FakePort final : public SocketlessPort {
 public:
  std::span<const GroBatch> Receive(bool) override {
    received = std::exchange(arriving, {});
    return received;
  }
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
  bool blocked() const override { return is_blocked; }
  bool must_retry() const override { return is_blocked; }

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
  Psns PsnsHit() const {
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

}  // namespace rxe_user

#endif  // RXE_USER_FAULTS_FAULT_PORT_FIXTURE_H_
