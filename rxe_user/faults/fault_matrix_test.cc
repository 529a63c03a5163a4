// Every fault of packets, on the second packet of each opcode of each service,
// at either end. Exactly that packet is hit, and the program sees the same as
// if the network or the peer had done it.
//
// Two hosts on a virtual clock have the transport's endpoints and queue pairs,
// and between them and the network the port that applies the rules. Not tested,
// mostly since a service does not have it:
//   - DC: rnr, nak, no-ack of a CONNECT, which no connection executes.
//   - UC and UD: rnr, nak, no-ack, since nothing is answered.
//   - UD: messages of several packets, SEND with invalidate, WRITE, READ,
//     atomics. UC: READ, atomics.
//   - UC, UD and DC: FLUSH, ATOMIC WRITE.
// With UC and UD, a message that loses a packet is lost, and the sender does
// not know it. A datagram that is duplicated arrives twice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "rxe_user/faults/fault_port.h"
#include "rxe_user/faults/process_faults.h"
#include "rxe_user/testing/socketless_port.h"
#include "transport/dc/dc_lane.h"
#include "transport/endpoint/endpoint.h"
#include "transport/faults/rule_parser.h"
#include "transport/queue_pairs.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/fake_memory.h"
#include "transport/testing/recorders.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

using transport::Burst;
using transport::Completion;
using transport::GroBatch;
using transport::kMillisecond;
using transport::kNever;
using transport::kSecond;
using transport::ObservedPacket;
using transport::QpType;
using transport::SendOpcode;
using transport::Time;
using transport::WcStatus;

constexpr uint32_t kMtu = 256;
constexpr uint32_t kLong = 3 * kMtu;  // FIRST, MIDDLE, LAST
constexpr uint32_t kShort = 64;
constexpr transport::PdId kPd = 7;
constexpr uint64_t kKey = 5;  // of the DC target
constexpr uint32_t kSrqn = 3;
constexpr uint32_t kQkey = 0x1234;
constexpr uint32_t kSlot = 1024;  // of a receive; a datagram begins with 40
constexpr uint8_t kCongested = 3;

Time now = 0;
Time VirtualNow() { return now; }

struct Datagram {
  std::vector<uint8_t> bytes;
  transport::AddressVector av;
};

// The network as a host's port.
class WirePort final : public SocketlessPort {
 public:
  std::span<const GroBatch> Receive(bool) override {
    batches_.clear();
    arrived_ = std::exchange(arriving, {});
    for (const Datagram& datagram : arrived_) {
      batches_.push_back({.bytes = datagram.bytes,
                          .segment_size = datagram.bytes.size(),
                          .source = datagram.av.source,
                          .destination = datagram.av.destination,
                          .source_port = datagram.av.source_port,
                          .traffic_class = datagram.av.traffic_class,
                          .hop_limit = 64});
    }
    return batches_;
  }
  Burst* Begin(const transport::Flow& flow) override {
    burst_ = Burst(buffer_, 64);
    burst_.Begin(&flow);
    return &burst_;
  }
  void Queue() override {
    uint16_t index = 0;
    for (std::span<const uint8_t> rest = burst_.bytes(); !rest.empty();) {
      const auto bytes =
          rest.first(std::min(rest.size(), burst_.segment_size()));
      rest = rest.subspan(bytes.size());
      Datagram& datagram = sent.emplace_back();
      datagram.bytes.assign(bytes.begin(), bytes.end());
      datagram.av = burst_.flow()->av;
      // Like a network card that does not merge: every IP identification is 0.
      // A wrong ICRC stays wrong.
      const wire::IcrcFlow& icrc = burst_.flow()->icrc;
      if (icrc.Verify(datagram.bytes, index)) icrc.Store(datagram.bytes, 0);
      ++index;
    }
  }

  std::vector<Datagram> arriving;
  std::vector<Datagram> sent;

 private:
  std::vector<Datagram> arrived_;
  std::vector<GroBatch> batches_;
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(65536);
  Burst burst_{buffer_, 64};
};

// A packet as the port shows it to observers.
struct Shown {
  bool sent = false;
  std::string opcode;
  uint32_t psn = 0;
  bool is_request = false;
  uint32_t rule = 0;
  bool is_consequence = false;
  bool is_congested = false;
};

class Host final : public transport::DcLane,
                   public transport::XrcDomain,
                   private transport::EventSink,
                   private transport::PacketObserver {
 public:
  Host(const std::string& address, const std::string& rules)
      : address(*wire::IpAddress::Parse(address)),
        faults(Settings(rules), now),
        region(&memory.Add(0x10000, 1 << 16, kPd, ~0u)) {
    auto network = std::make_unique<WirePort>();
    wire = network.get();
    port = *FaultPort::Create(std::move(network), &faults, &VirtualNow);
    endpoint.Observe(port->Watch(this, nullptr));
  }
  ~Host() override {
    qp.reset();
    connections.reset();
  }

  void Make(QpType type, uint32_t qpn) {
    transport::QpConfig config;
    config.type = type;
    config.qpn = qpn;
    config.pd = kPd;
    config.memory = &memory;
    config.send_cq = &sends;
    config.recv_cq = &receives;
    config.events = this;
    config.may_refuse = true;
    config.memory_placement = true;
    config.srq = type == QpType::kDci ? nullptr : &srq;
    config.capacity = {.max_send_wr = 128, .max_send_sge = 1};
    if (type == QpType::kDct) config.capacity = {};
    if (type == QpType::kXrcTarget) {
      config.pd = 0;
      config.send_cq = config.recv_cq = nullptr;
      config.srq = nullptr;
      config.capacity = {};
      config.xrc = this;
    }
    qp = transport::MakeQueuePair(
        endpoint, config, 0, {},
        {.connections = connections.get(), .access_key = kKey});
    ASSERT_NE(qp, nullptr);
    faults.OnCreated(qpn);
  }
  void Connect(uint32_t peer_qpn, const wire::IpAddress& peer) {
    transport::QpAttributes to =
        transport::ConnectionTo(peer_qpn, address, peer);
    to.access_flags = ~0u & ~transport::kAccessMwBind;
    to.av.source_port = 0xc001;
    to.av.traffic_class = 2;  // ECN-capable
    to.path_mtu = kMtu;
    to.sq_psn = to.rq_psn = 0xfffff8;  // wraps
    to.qkey = kQkey;
    ASSERT_EQ(transport::BringUp(*qp, to, now), 0);
  }

  // One round: sends, and processes arrivals.
  bool Send() {
    while (endpoint.PollTransmit(now, port.get()) != nullptr) port->Queue();
    port->Flush();
    return !wire->sent.empty();
  }
  void Process() {
    for (const Datagram& datagram : wire->arriving) {
      wire::PacketView view;
      if (wire::PacketView::Parse(datagram.bytes, &view) ==
          wire::ParseError::kOk) {
        arrivals[view.info().name].push_back(view.bth().psn);
      }
    }
    for (const GroBatch& batch : port->Receive(true)) {
      endpoint.OnGroBatch(batch, now, nullptr);
    }
    endpoint.OnTimer(now);
  }

  // --- DcLane
  std::optional<uint32_t> AllocateNumber() override { return next_number_++; }
  void ReleaseNumber(uint32_t) override {}
  std::optional<uint16_t> SourcePort(
      const transport::AddressVector&,
      const transport::Received& connect) override {
    return connect.datagram->source_port;
  }
  uint32_t Random() override { return 0x1000 + next_number_; }

  // --- XrcDomain
  bool FindSrq(uint32_t srqn, transport::XrcSrq* out) override {
    if (srqn != kSrqn) return false;
    *out = {.pd = kPd, .receives = &srq, .cq = &receives};
    return true;
  }

  const wire::IpAddress address;
  ProcessFaults faults;
  transport::FakeMemory memory;
  transport::FakeMemory::Region* const region;
  transport::RecordingCq sends;
  transport::RecordingCq receives;
  transport::FakeSrq srq;
  std::vector<Shown> shown;
  // PSNs by opcode, in the order of arrival. `shown` has another order: of one
  // Receive, the dropped packets come first.
  std::map<std::string, std::vector<uint32_t>> arrivals;
  transport::Endpoint endpoint;
  std::unique_ptr<transport::DcConnections> connections =
      std::make_unique<transport::DcConnections>(endpoint, *this);
  WirePort* wire = nullptr;
  std::unique_ptr<Port> port;
  std::unique_ptr<transport::QueuePair> qp;

 private:
  static FaultSettings Settings(const std::string& text) {
    FaultSettings settings;
    if (text.empty()) return settings;
    const auto error = transport::faults::ParseRules(text, &settings.rules);
    EXPECT_FALSE(error.has_value()) << text << ": " << error->ToString();
    return settings;
  }
  // --- EventSink
  void OnQpEvent(transport::QueuePair&, transport::QpEvent) override {}
  std::optional<uint8_t> Refuse(
      const transport::RequestToExecute& request) override {
    return faults.Refuse(qp->qpn(), request);
  }
  // --- PacketObserver
  void OnPacket(const ObservedPacket& packet) override {
    wire::PacketView view;
    if (wire::PacketView::Parse(packet.bytes, &view) != wire::ParseError::kOk) {
      return;
    }
    const auto* const fault = packet.fault;
    shown.push_back(
        {.sent = packet.direction == transport::Direction::kTransmitted,
         .opcode = view.info().name,
         .psn = view.bth().psn,
         .is_request = view.info().is_request,
         .rule = fault != nullptr ? fault->rule : 0,
         .is_consequence = fault != nullptr && fault->is_consequence,
         .is_congested = (packet.traffic_class & kCongested) == kCongested});
  }
  // OnHeld does nothing: held packets are shown when they are delivered.

  uint32_t next_number_ = 0x800001;
};

struct Service {
  const char* name;
  QpType requester;
  QpType responder;
  bool is_reliable = true;
};
constexpr Service kServices[] = {
    {"RC", QpType::kRc, QpType::kRc},
    {"UC", QpType::kUc, QpType::kUc, false},
    {"UD", QpType::kUd, QpType::kUd, false},
    {"XRC", QpType::kXrcInitiator, QpType::kXrcTarget},
    {"DC", QpType::kDci, QpType::kDct},
};

// One kind of message.
struct Sample {
  SendOpcode opcode;
  uint32_t length;
};
std::vector<Sample> SamplesOf(const Service& service) {
  std::vector<Sample> samples = {{SendOpcode::kSend, kShort},
                                 {SendOpcode::kSendWithImm, kShort}};
  if (service.requester == QpType::kUd) return samples;
  const auto both = [&](SendOpcode opcode) {
    samples.push_back({opcode, kShort});
    samples.push_back({opcode, kLong});
  };
  samples.push_back({SendOpcode::kSend, kLong});
  samples.push_back({SendOpcode::kSendWithImm, kLong});
  both(SendOpcode::kRdmaWrite);
  both(SendOpcode::kRdmaWriteWithImm);
  both(SendOpcode::kSendWithInvalidate);
  if (!service.is_reliable) return samples;
  both(SendOpcode::kRdmaRead);
  samples.push_back({SendOpcode::kCompareSwap, 8});
  samples.push_back({SendOpcode::kFetchAdd, 8});
  if (service.requester == QpType::kDci) return samples;
  samples.push_back({SendOpcode::kAtomicWrite, 8});
  samples.push_back({SendOpcode::kFlush, 0});
  return samples;
}

// The result of a run.
struct Outcome {
  std::vector<Completion> sends;
  std::vector<Completion> receives;
  std::vector<Shown> shown[2];  // by host
  std::map<std::string, std::vector<uint32_t>> arrivals[2];
  std::vector<FaultRuleStatus> rules;
  std::vector<uint8_t> memory;  // of the responder
};

// How often each sample is sent.
constexpr int kRounds = 3;

Outcome Play(const Service& service, int ruled, const std::string& rules) {
  now = 1000 * kSecond;
  Host a("10.0.0.1", ruled == 0 ? rules : "");
  Host b("10.0.0.2", ruled == 1 ? rules : "");
  a.Make(service.requester, 0x11);
  b.Make(service.responder, 0x12);
  a.Connect(0x12, b.address);
  b.Connect(0x11, a.address);
  for (size_t i = 0; i < a.region->bytes.size(); ++i) {
    a.region->bytes[i] = static_cast<uint8_t>(i * 7 + i / 256);
  }
  const std::vector<Sample> samples = SamplesOf(service);
  transport::AddressVector av;
  av.source = a.address;
  av.destination = b.address;
  av.source_port = 0xc001;
  av.traffic_class = 2;
  uint64_t wr_id = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (const Sample& sample : samples) {
      const uint64_t at = ++wr_id * kSlot;
      b.srq.queue.push_back(
          {wr_id, kPd, {{b.region->va + at, kSlot, b.region->lkey}}});
      const transport::Sge sge = {a.region->va + at, sample.length,
                                  a.region->lkey};
      transport::SendRequest request;
      request.wr_id = wr_id;
      request.opcode = sample.opcode;
      request.flags = transport::kSendSignaled;
      if (sample.length != 0) request.sges = {&sge, 1};
      request.imm_be = static_cast<uint32_t>(wr_id);
      request.remote_addr = b.region->va + at;
      request.rkey = b.region->rkey;
      if (sample.opcode == SendOpcode::kSendWithInvalidate) {
        request.invalidate_rkey = b.memory.Add(0, 8, kPd, ~0u).rkey;
      }
      if (sample.opcode == SendOpcode::kFlush) {
        request.compare_add = 8;
        request.swap = transport::FlushOperand(
            {.placement_type = wire::kPlacementGlobalVisibility});
      } else {
        request.compare_add = 3;
        request.swap = 4;
      }
      request.remote_srqn = kSrqn;
      if (service.requester == QpType::kUd ||
          service.requester == QpType::kDci) {
        request.ah = &av;
        request.remote_qpn = 0x12;
        request.remote_qkey = kQkey;
        request.dc_access_key = kKey;
      }
      EXPECT_EQ(a.qp->PostSend(request, now), 0)
          << static_cast<int>(sample.opcode);
    }
  }
  // A datagram may arrive twice.
  b.srq.queue.push_back({0, kPd, {{b.region->va, kSlot, b.region->lkey}}});
  // Long enough for everything to end: timers are 67 ms apart, and held packets
  // leave within a few ms.
  const Time end = now + 3 * kSecond;
  for (int idle = 0; now < end && idle < 100;) {
    const bool some = a.Send() | b.Send();
    b.wire->arriving = std::exchange(a.wire->sent, {});
    a.wire->arriving = std::exchange(b.wire->sent, {});
    a.Process();
    b.Process();
    if (some) {
      idle = 0;
      now += 10 * transport::kMicrosecond;
      continue;
    }
    ++idle;
    now += kMillisecond;
  }
  return {.sends = a.sends.Take(),
          .receives = b.receives.Take(),
          .shown = {a.shown, b.shown},
          .arrivals = {a.arrivals, b.arrivals},
          .rules = (ruled == 0 ? a : b).faults.Status(),
          .memory = b.region->bytes};
}

struct Act {
  const char* text;
  const char* name;
};
constexpr Act kActs[] = {
    {"drop", "Drop"},         {"delay 3ms", "Delay"},
    {"duplicate", "Double"},  {"reorder 2", "Reorder"},
    {"corrupt psn", "Spoil"}, {"corrupt psn resealed", "Change"},
    {"ce", "Mark"},           {"no-ack", "NoAck"},
    {"rnr 1ms", "Rnr"},       {"nak PSN_SEQUENCE", "Gap"},
    {"nak REM_OP_ERR", "Nak"}};
bool Answers(const std::string& act) {
  return act.starts_with("no-ack") || act.starts_with("rnr") ||
         act.starts_with("nak");
}

class FaultMatrixTest
    : public testing::TestWithParam<std::tuple<Service, Act>> {};

TEST_P(FaultMatrixTest, HitsTheSecondPacketOfEachOpcode) {
  const auto& [service, act] = GetParam();
  const std::string action = act.text;
  const Outcome clean = Play(service, 0, "");
  const size_t messages = kRounds * SamplesOf(service).size();
  ASSERT_EQ(clean.sends.size(), messages);
  for (const Completion& done : clean.sends) {
    ASSERT_EQ(done.status, WcStatus::kSuccess);
  }
  int cells = 0;
  for (int host = 0; host < 2; ++host) {
    // By direction and opcode.
    std::map<std::pair<bool, std::string>, int> seen;
    std::set<std::string> requests;
    for (const Shown& packet : clean.shown[host]) {
      ++seen[{packet.sent, packet.opcode}];
      if (packet.is_request) requests.insert(packet.opcode);
    }
    for (const auto& [cell, count] : seen) {
      const auto& [sent, opcode] = cell;
      if (count < 2 || opcode == "CNP") continue;
      if (Answers(action) &&
          (host == 0 || sent || !service.is_reliable ||
           opcode == "DC_CONNECT" || !requests.contains(opcode))) {
        continue;
      }
      ++cells;
      const std::string rule =
          action + (sent ? " tx" : " rx") + " op=" + opcode + " qp=@1 nth=2";
      SCOPED_TRACE("host " + std::to_string(host) + ": " + rule);
      const Outcome outcome = Play(service, host, rule);
      ASSERT_EQ(outcome.rules.size(), 1u);
      EXPECT_EQ(outcome.rules[0].fired, 1u);

      // Exactly the second packet is hit.
      std::vector<uint32_t> passed;
      std::vector<uint32_t> hit;
      for (const Shown& packet : outcome.shown[host]) {
        if (packet.is_consequence) continue;
        const bool is_of_cell = packet.sent == sent && packet.opcode == opcode;
        if (is_of_cell) passed.push_back(packet.psn);
        if (packet.rule == 0) continue;
        EXPECT_TRUE(is_of_cell) << packet.opcode;
        EXPECT_EQ(packet.is_congested, action == "ce");
        hit.push_back(packet.psn);
      }
      const auto& order =
          sent ? passed : outcome.arrivals[host].find(opcode)->second;
      ASSERT_GE(order.size(), 2u);
      EXPECT_EQ(hit, std::vector<uint32_t>{order[1]});

      // What the program sees.
      ASSERT_EQ(outcome.sends.size(), messages);
      size_t failed = 0;
      for (const Completion& done : outcome.sends) {
        failed += done.status != WcStatus::kSuccess;
      }
      if (action == "nak REM_OP_ERR") {
        ASSERT_GT(failed, 0u);
        const Completion& first = outcome.sends[messages - failed];
        EXPECT_EQ(first.status, WcStatus::kRemoteOperationalError);
        for (size_t i = messages - failed + 1; i < messages; ++i) {
          EXPECT_EQ(outcome.sends[i].status, WcStatus::kFlushed);
        }
        continue;
      }
      EXPECT_EQ(failed, 0u);
      const size_t all = clean.receives.size();
      if (service.is_reliable) {
        EXPECT_EQ(outcome.receives.size(), all);
        EXPECT_EQ(outcome.memory, clean.memory);
      } else if (action == "drop" || action.starts_with("corrupt")) {
        EXPECT_LE(outcome.receives.size(), all);
        // With a changed PSN, the next packet may also be lost.
        const size_t lost = action == "corrupt psn resealed" ? 2 : 1;
        EXPECT_GE(outcome.receives.size() + lost, all);
      } else if (action == "duplicate") {
        const bool twice = service.requester == QpType::kUd;
        EXPECT_EQ(outcome.receives.size(), all + (twice ? 1 : 0));
      } else if (action == "ce") {
        EXPECT_EQ(outcome.receives.size(), all);
      }
    }
  }
  const bool has_none = Answers(action) && !service.is_reliable;
  EXPECT_EQ(cells == 0, has_none) << cells;
  RecordProperty("cells", cells);
}

INSTANTIATE_TEST_SUITE_P(Cells, FaultMatrixTest,
                         testing::Combine(testing::ValuesIn(kServices),
                                          testing::ValuesIn(kActs)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  std::get<1>(info.param).name;
                         });

}  // namespace
}  // namespace rxe_user
