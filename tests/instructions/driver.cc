// Two endpoints of the transport back to back in one thread, to count
// instructions. See `run` in this folder.
//
//   driver SCENARIO     runs one; prints its messages and packets
//   driver --list
//
// Only Measure() is counted. Payload copies and CRC are excluded, because their
// cost depends on the processor, by which libraries choose their instructions.
// So the memory here copies nothing, and crc32_gzip_refl below replaces
// ISA-L's: it is zlib's, which `run` does not count.
#include <zlib.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/burst.h"
#include "transport/base/memory.h"
#include "transport/base/work.h"
#include "transport/dc/dc_connections.h"
#include "transport/dc/dc_lane.h"
#include "transport/endpoint/endpoint.h"
#include "transport/queue_pairs.h"
#include "transport/testing/bring_up.h"
#include "wire/icrc.h"

extern "C" uint32_t crc32_gzip_refl(uint32_t seed, const uint8_t* data,
                                    uint64_t size) {
  return static_cast<uint32_t>(crc32_z(seed, data, size));
}

namespace {

using transport::QpType;
using transport::SendOpcode;
using transport::Time;

constexpr transport::PdId kPd = 7;
constexpr uint32_t kLkey = 0x1100;
constexpr uint32_t kRkey = 0x2200;
constexpr uint64_t kVa = 0x700000000000;
constexpr uint64_t kBytes = 4 << 20;
constexpr uint16_t kSourcePort = 0xc001;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "driver: %s\n", what);
  std::exit(1);
}

// One region with one key of each kind. Its bytes are not read.
class OneRegion : public transport::Memory {
 public:
  transport::MemoryStatus Translate(const transport::MemoryAccess& access,
                                    transport::SpanList* out) override {
    if (access.key != (access.remote ? kRkey : kLkey)) {
      return transport::MemoryStatus::kBadKey;
    }
    if (access.va < kVa || access.va + access.length > kVa + kBytes) {
      return transport::MemoryStatus::kOutOfRange;
    }
    out->push_back({bytes_.get() + (access.va - kVa), access.length});
    return transport::MemoryStatus::kOk;
  }
  bool CopyFrom(uint8_t*, const uint8_t*, size_t, bool) override {
    return true;
  }
  bool CopyTo(uint8_t*, const uint8_t*, size_t, bool) override { return true; }
  bool CompareSwap(uint8_t*, uint64_t, uint64_t, uint64_t* old) override {
    *old = 0;
    return true;
  }
  bool FetchAdd(uint8_t*, uint64_t, uint64_t* old) override {
    *old = 0;
    return true;
  }
  transport::MemoryStatus Invalidate(const transport::Invalidation&) override {
    return transport::MemoryStatus::kBadKey;
  }

 private:
  std::unique_ptr<uint8_t[]> bytes_{new uint8_t[kBytes]()};
};

class CountingCq : public transport::CompletionSink {
 public:
  bool Push(const transport::Completion& completion) override {
    ++count_;
    bad_ += completion.status != transport::WcStatus::kSuccess;
    completion.slot.Free();
    return true;
  }
  uint64_t count() const {
    if (bad_ != 0) Die("a request failed");
    return count_;
  }

 private:
  uint64_t count_ = 0;
  uint64_t bad_ = 0;
};

class NoEvents : public transport::EventSink {
  void OnQpEvent(transport::QueuePair&, transport::QpEvent) override {}
};

// A shared receive queue that is never empty.
class EndlessReceives : public transport::ReceiveSource {
 public:
  bool Pop(transport::ReceiveWqe* out) override {
    *out = {0, kPd, {{kVa, kBytes, kLkey}}};
    return true;
  }
};

struct Scenario {
  const char* name;
  SendOpcode opcode;
  uint32_t length;    // bytes of a message
  uint32_t path_mtu;  // bytes
  uint32_t depth;     // messages posted together
  uint32_t rounds;    // repetitions
  QpType from = QpType::kRc;
  QpType to = QpType::kRc;
};

constexpr Scenario kScenarios[] = {
    {"send-64", SendOpcode::kSend, 64, 4096, 64, 16},
    {"send-64-alone", SendOpcode::kSend, 64, 4096, 1, 1024},
    {"send-64k", SendOpcode::kSend, 65536, 4096, 8, 16},
    {"write-64", SendOpcode::kRdmaWrite, 64, 4096, 64, 16},
    {"write-64-alone", SendOpcode::kRdmaWrite, 64, 4096, 1, 1024},
    {"write-4k", SendOpcode::kRdmaWrite, 4096, 4096, 64, 16},
    {"write-64k", SendOpcode::kRdmaWrite, 65536, 4096, 8, 16},
    {"write-64k-mtu-1024", SendOpcode::kRdmaWrite, 65536, 1024, 8, 4},
    {"write-1m", SendOpcode::kRdmaWrite, 1 << 20, 4096, 2, 4},
    {"read-64", SendOpcode::kRdmaRead, 64, 4096, 16, 64},
    {"read-64k", SendOpcode::kRdmaRead, 65536, 4096, 8, 16},
    {"fetch-add-alone", SendOpcode::kFetchAdd, 8, 4096, 1, 1024},
    {"dc-send-64", SendOpcode::kSend, 64, 4096, 64, 16, QpType::kDci,
     QpType::kDct},
    {"dc-send-64-alone", SendOpcode::kSend, 64, 4096, 1, 1024, QpType::kDci,
     QpType::kDct},
    {"dc-send-64k", SendOpcode::kSend, 65536, 4096, 8, 16, QpType::kDci,
     QpType::kDct},
    {"dc-write-64k", SendOpcode::kRdmaWrite, 65536, 4096, 8, 16, QpType::kDci,
     QpType::kDct},
};

class End : private transport::DcLane {
 public:
  End(QpType type, uint32_t qpn, const char* address)
      : address_(*wire::IpAddress::Parse(address)), next_number_(qpn + 1) {
    transport::QpConfig config;
    config.type = type;
    config.qpn = qpn;
    config.pd = kPd;
    config.capacity = {.max_send_wr = 128,
                       .max_recv_wr = type == QpType::kRc ? 128u : 0u,
                       .max_send_sge = 1,
                       .max_recv_sge = type == QpType::kRc ? 1u : 0u,
                       .max_inline_data = 0};
    if (type == QpType::kDct) config.srq = &receives_;
    config.memory = &memory_;
    config.send_cq = &sent_;
    config.recv_cq = &received_;
    config.events = &events_;
    qp_ = transport::MakeQueuePair(endpoint_, config, 0, {},
                                   {.connections = &connections_});
  }

  void Connect(const End& peer, uint32_t path_mtu) {
    transport::QpAttributes to =
        transport::ConnectionTo(peer.qp_->qpn(), address_, peer.address_);
    to.av.source_port = kSourcePort;
    to.path_mtu = path_mtu;
    to.sq_psn = to.rq_psn = 0x100;
    if (transport::BringUp(*qp_, to, 0) != 0) Die("modify");
    peer_ = to.av;
    peer_qpn_ = to.dest_qpn;
  }

  void Post(const Scenario& s, Time now) {
    const transport::Sge sge = {kVa, s.length, kLkey};
    transport::SendRequest request;
    request.opcode = s.opcode;
    request.flags = transport::kSendSignaled;
    request.sges = {&sge, 1};
    request.remote_addr = kVa;
    request.rkey = kRkey;
    request.ah = &peer_;  // of DC only, as is the next
    request.remote_qpn = peer_qpn_;
    if (qp_->PostSend(request, now) != 0) Die("post");
  }
  void PostReceive(const Scenario& s, Time now) {
    if (qp_->config().srq != nullptr) return;
    const transport::Sge sge = {kVa, s.length, kLkey};
    if (qp_->PostReceive({.wr_id = 0, .sges = {&sge, 1}}, now) != 0) {
      Die("post receive");
    }
  }

  // Sends everything that is due, one burst at a time like a port. Returns the
  // number of packets.
  uint64_t SendTo(End& peer, Time now) {
    uint64_t packets = 0;
    while (const transport::Burst* burst =
               endpoint_.PollTransmit(now, &sink_)) {
      transport::GroBatch batch;
      batch.bytes = burst->bytes();
      batch.segment_size = burst->segment_size();
      batch.source = address_;
      batch.destination = peer.address_;
      batch.source_port = burst->flow()->av.source_port;
      batch.hop_limit = 64;
      peer.endpoint_.OnGroBatch(batch, now, nullptr);
      packets += static_cast<uint64_t>(burst->segments());
    }
    for (const uint64_t dropped : peer.endpoint_.counters().dropped) {
      if (dropped != 0) Die("a packet was not delivered");
    }
    return packets;
  }
  void RunTimers(Time now) {
    if (endpoint_.NextTimeout() <= now) endpoint_.OnTimer(now);
  }
  uint64_t sent() const { return sent_.count(); }
  void CheckCounters() const {
    if (qp_->counters().retransmitted != 0) Die("something was sent twice");
  }

 private:
  // --- DcLane.
  std::optional<uint32_t> AllocateNumber() override { return next_number_++; }
  void ReleaseNumber(uint32_t /*number*/) override {}
  std::optional<uint16_t> SourcePort(
      const transport::AddressVector& /*target*/,
      const transport::Received& /*connect*/) override {
    return kSourcePort;
  }
  uint32_t Random() override { return ++random_; }

  wire::IpAddress address_;
  uint32_t next_number_;
  uint32_t random_ = 0;
  transport::AddressVector peer_;
  uint32_t peer_qpn_ = 0;
  OneRegion memory_;
  EndlessReceives receives_;
  CountingCq sent_;
  CountingCq received_;
  NoEvents events_;
  transport::Endpoint endpoint_;
  transport::DcConnections connections_{endpoint_, *this};
  std::unique_ptr<transport::QueuePair> qp_;
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(65507);
  transport::OneBurst sink_{buffer_, 64};
};

struct Run {
  explicit Run(const Scenario& s)
      : a(s.from, 0x0a0001, "10.0.0.1"), b(s.to, 0x0b0002, "10.0.0.2") {}

  End a;
  End b;
  Time now = 1000;
  uint64_t packets = 0;

  // Sends `rounds` times `depth` messages from a to b. A round ends when all
  // its completions have arrived.
  void Rounds(const Scenario& s, uint32_t rounds) {
    for (uint32_t round = 0; round < rounds; ++round) {
      if (s.opcode == SendOpcode::kSend) {
        for (uint32_t i = 0; i < s.depth; ++i) b.PostReceive(s, now);
      }
      const uint64_t wanted = a.sent() + s.depth;
      for (uint32_t i = 0; i < s.depth; ++i) a.Post(s, now);
      for (int turns = 0; a.sent() < wanted; ++turns) {
        if (turns == 1'000'000) Die("nothing moves");
        now += transport::kMicrosecond;
        packets += a.SendTo(b, now);
        packets += b.SendTo(a, now);
        a.RunTimers(now);
        b.RunTimers(now);
      }
    }
  }
};

}  // namespace

// The counted function; `run` passes its name to callgrind.
extern "C" __attribute__((noinline, visibility("default"))) void Measure(
    Run* run, const Scenario* scenario) {
  run->Rounds(*scenario, scenario->rounds);
}

// 1,000 times the cost of solving for the IP identification of a 4 KB packet,
// without the CRC.
extern "C" __attribute__((noinline, visibility("default"))) void
MeasureSolving() {
  uint32_t found = 0;
  for (uint32_t i = 0; i < 1000; ++i) {
    found += wire::SolveIpId(i * 2654435761u, 0, 0, 4096 + 12).has_value();
  }
  asm volatile("" : : "r"(found));
}

int main(int argc, char** argv) {
  const std::string name = argc == 2 ? argv[1] : "";
  if (name == "--list") {
    for (const Scenario& s : kScenarios) std::puts(s.name);
    std::puts("solve-ip-id");
    return 0;
  }
  if (name == "solve-ip-id") {
    wire::SolveIpId(1, 0, 0, 4096 + 12);  // tables
    MeasureSolving();
    std::puts("1000 1000");
    return 0;
  }
  for (const Scenario& s : kScenarios) {
    if (name != s.name) continue;
    auto run = std::make_unique<Run>(s);
    run->a.Connect(run->b, s.path_mtu);
    run->b.Connect(run->a, s.path_mtu);
    // Warm-up: the congestion window, and allocations that happen once.
    run->Rounds(s, s.rounds < 8 ? 2 : s.rounds / 4);
    run->packets = 0;
    Measure(run.get(), &s);
    run->a.CheckCounters();
    run->b.CheckCounters();
    std::printf("%u %" PRIu64 "\n", s.depth * s.rounds, run->packets);
    return 0;
  }
  std::fprintf(stderr, "usage: driver SCENARIO | --list\n");
  return 2;
}
