// Hosts with a UD queue pair each; the test is the network.
#ifndef TRANSPORT_TESTING_UD_FIXTURE_H_
#define TRANSPORT_TESTING_UD_FIXTURE_H_

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/queue_pairs.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/fake_memory.h"
#include "transport/testing/recorders.h"
#include "wire/packet.h"

namespace transport {

using Bytes = std::vector<uint8_t>;

inline constexpr PdId kPd = 7;
inline constexpr uint64_t kVa = 0x10000;
inline constexpr size_t kMemory = 1 << 20;
inline constexpr uint32_t kMtu = 1024;
inline constexpr uint32_t kPsn = 0xfffffe;  // wraps soon
inline constexpr uint32_t kQkey = 0x11111111;
inline constexpr uint32_t kMaxTsoHeader = 64;
inline constexpr uint64_t kReceives =
    kMemory / 2;  // offset of the receives in memory

// A host with a queue pair.
struct Host {
  Host(uint32_t qpn, const char* address)
      : address(*wire::IpAddress::Parse(address)) {
    region = &memory.Add(kVa, kMemory, kPd, kAccessLocalWrite);
    config.type = QpType::kUd;
    config.qpn = qpn;
    config.pd = kPd;
    config.capacity = {.max_send_wr = 1024,
                       .max_recv_wr = 64,
                       .max_send_sge = 2,
                       .max_recv_sge = 2,
                       .max_inline_data = 64};
    config.port_mtu = kMtu;
    config.memory = &memory;
    config.send_cq = &sends;
    config.recv_cq = &receives;
    config.events = &events;
    qp = MakeQueuePair(endpoint, config, kMaxTsoHeader);
    attributes.qkey = kQkey;
    attributes.sq_psn = kPsn;
  }

  // "7 ok 56 from 17", "7 status 4"; joined by "; ".
  static std::string Describe(const std::vector<Completion>& all) {
    std::string text;
    for (const Completion& c : all) {
      if (!text.empty()) text += "; ";
      text += std::to_string(c.wr_id);
      if (c.status != WcStatus::kSuccess) {
        text += " status " + std::to_string(static_cast<int>(c.status));
        continue;
      }
      text += " ok";
      if (c.opcode != WcOpcode::kReceive) continue;
      text += " " + std::to_string(c.byte_len) + " from " +
              std::to_string(c.src_qpn);
      EXPECT_TRUE(c.flags & kWcGrh);
      if ((c.flags & kWcWithImm) != 0) {
        text += " imm " + std::to_string(c.imm_be_or_rkey);
      }
    }
    return text;
  }
  std::string Sent() { return Describe(sends.Take()); }
  std::string Received() { return Describe(receives.Take()); }
  int Modify(QpState to, uint32_t mask = 0) {
    attributes.state = to;
    return qp->Modify(attributes, kQpState | mask, now);
  }
  int Receive(uint64_t wr_id, uint32_t length) {
    const Sge sge = {kVa + kReceives + wr_id * 2048, length, region->lkey};
    return qp->PostReceive({wr_id, {&sge, 1}}, now);
  }
  std::span<const uint8_t> At(uint64_t wr_id) const {
    return std::span<const uint8_t>(region->bytes)
        .subspan(kReceives + wr_id * 2048, 2048);
  }

  AddressVector To(const Host& other) const {
    AddressVector av;
    av.source = address;
    av.destination = other.address;
    av.source_port = 0xc001;
    return av;
  }
  int Post(SendRequest request, const AddressVector& to, uint32_t length,
           uint64_t offset = 0) {
    const Sge sge = {kVa + offset, length, region->lkey};
    request.flags |= kSendSignaled;
    request.ah = &to;
    request.sges = {&sge, 1};
    return qp->PostSend(request, now);
  }
  int Send(uint64_t wr_id, const Host& to, uint32_t length) {
    return Post({.wr_id = wr_id,
                 .opcode = SendOpcode::kSend,
                 .remote_qpn = to.qp->qpn(),
                 .remote_qkey = kQkey},
                To(to), length);
  }

  // Sends `length` bytes from the start of memory in segments of `mss`.
  int SendSegmented(uint64_t wr_id, const Host& to, const Bytes& header,
                    uint16_t mss, uint32_t length, uint32_t flags = 0) {
    return Post({.wr_id = wr_id,
                 .opcode = SendOpcode::kTso,
                 .flags = flags,
                 .remote_qpn = to.qp->qpn(),
                 .remote_qkey = kQkey,
                 .tso_header = header,
                 .tso_mss = mss},
                To(to), length);
  }

  Time now = kSecond;
  wire::IpAddress address;
  FakeMemory memory;
  FakeMemory::Region* region = nullptr;
  RecordingCq sends;
  RecordingCq receives;
  RecordingEvents events;
  Endpoint endpoint;
  QpConfig config;
  QpAttributes attributes;
  std::unique_ptr<QueuePair> qp;
};

struct Sent {
  Bytes bytes;
  AddressVector av;
  uint16_t segment_index;
};

class UdTest : public ::testing::Test {
 protected:
  UdTest() {
    for (Host* host : {&a, &b, &c}) {
      EXPECT_EQ(BringUp(*host->qp, host->attributes, host->now), 0);
      for (size_t i = 0; i < kReceives; ++i) {
        host->region->bytes[i] = static_cast<uint8_t>(i % 251);
      }
    }
  }

  // The next burst of `from`; empty: it sends nothing now.
  static std::vector<Sent> Burst(Host& from) {
    std::vector<Sent> packets;
    std::vector<uint8_t> buffer(65507);
    OneBurst sink(buffer, 64);
    const transport::Burst* const burst =
        from.endpoint.PollTransmit(from.now, &sink);
    if (burst == nullptr) return packets;
    const std::span<const uint8_t> bytes = burst->bytes();
    uint16_t index = 0;
    for (size_t at = 0; at < bytes.size(); at += burst->segment_size()) {
      const auto part =
          bytes.subspan(at, std::min(burst->segment_size(), bytes.size() - at));
      packets.push_back(
          {{part.begin(), part.end()}, burst->flow()->av, index++});
    }
    return packets;
  }
  // The next burst, after waiting for the path's pace; empty: nothing to send.
  static std::vector<Sent> NextBurst(Host& from) {
    for (;;) {
      std::vector<Sent> packets = Burst(from);
      const Time next = from.endpoint.NextTimeout();
      if (!packets.empty() || next == kNever) return packets;
      from.now = std::max(from.now, next);
      from.endpoint.OnTimer(from.now);
    }
  }
  static std::vector<Sent> All(Host& from) {
    std::vector<Sent> packets;
    for (;;) {
      const std::vector<Sent> some = NextBurst(from);
      if (some.empty()) return packets;
      packets.insert(packets.end(), some.begin(), some.end());
    }
  }
  static Disposition Deliver(Host& to, const Sent& sent) {
    const Datagram datagram = {.bytes = sent.bytes,
                               .source = sent.av.source,
                               .destination = sent.av.destination,
                               .source_port = sent.av.source_port,
                               .traffic_class = sent.av.traffic_class,
                               .hop_limit = sent.av.hop_limit,
                               .segment_index = sent.segment_index};
    return to.endpoint.OnDatagram(datagram, to.now);
  }
  void Deliver(const std::vector<Sent>& packets) {
    for (const Sent& sent : packets) {
      for (Host* host : {&a, &b, &c}) {
        if (host->address != sent.av.destination) continue;
        EXPECT_EQ(Deliver(*host, sent), Disposition::kDelivered);
      }
    }
  }
  void Exchange() {
    for (Host* host : {&a, &b, &c}) Deliver(All(*host));
  }

  Host a{17, "10.0.0.1"};
  Host b{34, "10.0.0.2"};
  Host c{51, "10.0.0.3"};
};

}  // namespace transport

#endif  // TRANSPORT_TESTING_UD_FIXTURE_H_
