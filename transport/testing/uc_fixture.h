// Two UC queue pairs; the test is the network between them.
#ifndef TRANSPORT_TESTING_UC_FIXTURE_H_
#define TRANSPORT_TESTING_UC_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/queue_pairs.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/fake_memory.h"
#include "transport/testing/recorders.h"
#include "wire/packet.h"

namespace transport {

class UcFixture : public ::testing::Test {
 protected:
  using Bytes = std::vector<uint8_t>;

  static constexpr PdId kPd = 7;
  static constexpr uint64_t kVa = 0x10000;
  static constexpr uint32_t kMtu = 256;
  static constexpr size_t kMemory = 1 << 20;
  static constexpr uint32_t kPsn = 0xfffffe;  // wraps soon

  struct End {
    End(uint32_t qpn, uint32_t peer, const char* from, const char* to)
        : source(*wire::IpAddress::Parse(from)),
          destination(*wire::IpAddress::Parse(to)) {
      region = &memory.Add(kVa, kMemory, kPd,
                           kAccessLocalWrite | kAccessRemoteWrite);
      QpConfig config;
      config.type = QpType::kUc;
      config.qpn = qpn;
      config.pd = kPd;
      config.capacity = {.max_send_wr = 64,
                         .max_recv_wr = 64,
                         .max_send_sge = 2,
                         .max_recv_sge = 2,
                         .max_inline_data = 64};
      config.memory = &memory;
      config.send_cq = &sends;
      config.recv_cq = &receives;
      config.events = &events;
      qp = MakeQueuePair(endpoint, config);
      attributes = ConnectionTo(peer, source, destination);
      attributes.path_mtu = kMtu;
      attributes.sq_psn = attributes.rq_psn = kPsn;
      attributes.av.source_port = 0xc001;
    }

    // "7 ok 16", "7 status 4"; joined by "; ".
    static std::string Describe(const std::vector<Completion>& all) {
      std::string text;
      for (const Completion& c : all) {
        if (!text.empty()) text += "; ";
        text += std::to_string(c.wr_id);
        if (c.status != WcStatus::kSuccess) {
          text += " status " + std::to_string(static_cast<int>(c.status));
          continue;
        }
        text += " ok " + std::to_string(c.byte_len);
        if ((c.flags & kWcWithImm) != 0) {
          text += " imm " + std::to_string(c.imm_be_or_rkey);
        }
      }
      return text;
    }
    std::string Sent() { return Describe(sends.Take()); }
    std::string Received() { return Describe(receives.Take()); }
    int Modify(QpState to) {
      attributes.state = to;
      return qp->Modify(attributes, kQpState, now);
    }

    Time now = kSecond;
    wire::IpAddress source;
    wire::IpAddress destination;
    FakeMemory memory;
    FakeMemory::Region* region = nullptr;
    RecordingCq sends;
    RecordingCq receives;
    RecordingEvents events;
    Endpoint endpoint;
    QpAttributes attributes;
    std::unique_ptr<QueuePair> qp;
  };

  UcFixture() {
    EXPECT_EQ(BringUp(*a.qp, a.attributes, a.now), 0);
    EXPECT_EQ(BringUp(*b.qp, b.attributes, b.now), 0);
    for (size_t i = 0; i < kMemory; ++i) {
      a.region->bytes[i] = static_cast<uint8_t>(i % 251);
    }
  }

  int Post(SendRequest request, uint32_t length, uint64_t offset = 0) {
    const Sge sge = {kVa + offset, length, a.region->lkey};
    request.flags |= kSendSignaled;
    request.sges = {&sge, 1};
    return a.qp->PostSend(request, a.now);
  }
  int Send(uint64_t wr_id, uint32_t length, uint64_t offset = 0) {
    return Post({.wr_id = wr_id, .opcode = SendOpcode::kSend}, length, offset);
  }
  int Write(uint64_t wr_id, uint32_t length, uint64_t to) {
    return Post({.wr_id = wr_id,
                 .opcode = SendOpcode::kRdmaWrite,
                 .remote_addr = kVa + to,
                 .rkey = b.region->rkey},
                length);
  }
  int Receive(uint64_t wr_id, uint32_t length, uint64_t offset = 0) {
    const Sge sge = {kVa + offset, length, b.region->lkey};
    return b.qp->PostReceive({wr_id, {&sge, 1}}, b.now);
  }

  // A burst of `from`, without waiting for timers.
  static std::vector<Bytes> BurstOf(End& from) {
    std::vector<Bytes> packets;
    std::vector<uint8_t> buffer(65507);
    OneBurst sink(buffer, 64);
    const transport::Burst* const burst =
        from.endpoint.PollTransmit(from.now, &sink);
    if (burst == nullptr) return packets;
    const std::span<const uint8_t> bytes = burst->bytes();
    for (size_t at = 0; at < bytes.size(); at += burst->segment_size()) {
      const auto part =
          bytes.subspan(at, std::min(burst->segment_size(), bytes.size() - at));
      packets.emplace_back(part.begin(), part.end());
    }
    return packets;
  }
  // A burst of a, without waiting for timers.
  std::vector<Bytes> Burst() { return BurstOf(a); }
  // All bursts of a, waiting for the path's pace.
  std::vector<Bytes> All() {
    std::vector<Bytes> packets;
    for (;;) {
      const std::vector<Bytes> some = Burst();
      packets.insert(packets.end(), some.begin(), some.end());
      if (!some.empty()) continue;
      const Time next = a.endpoint.NextTimeout();
      if (next == kNever) return packets;
      a.now = std::max(a.now, next);
      a.endpoint.OnTimer(a.now);
    }
  }
  static void Carry(const End& from, End& to, const Bytes& packet) {
    Datagram datagram;
    datagram.bytes = packet;
    datagram.source = from.source;
    datagram.destination = from.destination;
    datagram.source_port = from.attributes.av.source_port;
    // Tries all segment indices: only the burst knows the IP ID.
    for (uint16_t i = 0; i < 64; ++i) {
      datagram.segment_index = i;
      if (to.endpoint.OnDatagram(datagram, to.now) != Disposition::kBadIcrc) {
        return;
      }
    }
    FAIL() << "ICRC";
  }
  void Deliver(const Bytes& packet) { Carry(a, b, packet); }
  // Like Carry, sent from `port`.
  static void CarryFrom(uint16_t port, const End& from, End& to, Bytes packet) {
    wire::IcrcFlow(from.source, from.destination, port, wire::kRoceUdpPort)
        .Store(packet, 0);
    const Datagram datagram = {.bytes = packet,
                               .source = from.source,
                               .destination = from.destination,
                               .source_port = port};
    EXPECT_EQ(to.endpoint.OnDatagram(datagram, to.now),
              Disposition::kDelivered);
  }
  void DeliverFrom(uint16_t port, const Bytes& packet) {
    CarryFrom(port, a, b, packet);
  }
  void Deliver(const std::vector<Bytes>& packets) {
    for (const Bytes& packet : packets) Deliver(packet);
  }
  // Whether `bytes` of b's memory at `to` equal a's at `from`.
  bool Arrived(uint64_t to, size_t bytes, uint64_t from = 0) const {
    return std::memcmp(b.region->bytes.data() + to,
                       a.region->bytes.data() + from, bytes) == 0;
  }

  End a{0x1111, 0x2222, "10.0.0.1", "10.0.0.2"};
  End b{0x2222, 0x1111, "10.0.0.2", "10.0.0.1"};
};

}  // namespace transport

#endif  // TRANSPORT_TESTING_UC_FIXTURE_H_
