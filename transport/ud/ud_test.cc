// Unreliable datagrams: hosts with queue pairs; the test is the network.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/congestion/path.h"
#include "transport/qp/destinations.h"
#include "transport/queue_pairs.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/fake_memory.h"
#include "transport/testing/recorders.h"
#include "wire/bytes.h"
#include "wire/ethernet.h"
#include "wire/grh.h"
#include "wire/packet.h"
#include "wire/psn.h"

namespace transport {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr PdId kPd = 7;
constexpr uint64_t kVa = 0x10000;
constexpr size_t kMemory = 1 << 20;
constexpr uint32_t kMtu = 1024;
constexpr uint32_t kPsn = 0xfffffe;  // wraps soon
constexpr uint32_t kQkey = 0x11111111;
constexpr uint32_t kMaxTsoHeader = 64;
constexpr uint64_t kReceives = kMemory / 2;  // offset of the receives in memory

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

TEST_F(UdTest, EachOperation) {
  ASSERT_EQ(b.Receive(1, 1064), 0);
  ASSERT_EQ(b.Receive(2, 1064), 0);
  ASSERT_EQ(b.Receive(3, 40), 0);
  ASSERT_EQ(a.Send(10, b, 1000), 0);
  const AddressVector to = a.To(b);
  ASSERT_EQ(a.Post({.wr_id = 11,
                    .opcode = SendOpcode::kSendWithImm,
                    .flags = kSendSolicited,
                    .imm_be = 5,
                    .remote_qpn = b.qp->qpn(),
                    .remote_qkey = kQkey},
                   to, 101, 7),
            0);
  ASSERT_EQ(a.Send(12, b, 0), 0);
  const std::vector<Sent> packets = All(a);
  ASSERT_EQ(packets.size(), 3u);
  uint32_t psn = kPsn;
  for (const Sent& sent : packets) {
    wire::PacketView view;
    ASSERT_EQ(wire::PacketView::Parse(sent.bytes, &view),
              wire::ParseError::kOk);
    EXPECT_EQ(view.transport(), wire::Transport::kUd);
    EXPECT_EQ(view.bth().dest_qpn, 34u);
    EXPECT_EQ(view.bth().psn, psn);
    EXPECT_FALSE(view.bth().ack_req);
    EXPECT_EQ(view.deth().qkey, kQkey);
    EXPECT_EQ(view.deth().src_qpn, 17u);
    psn = wire::PsnAdd(psn, 1);
  }
  EXPECT_EQ(a.Sent(), "10 ok; 11 ok; 12 ok");
  Deliver(packets);
  EXPECT_EQ(b.Received(),
            "1 ok 1040 from 17; 2 ok 141 from 17 imm 5; 3 ok 40 from 17");
  EXPECT_TRUE(std::equal(a.region->bytes.begin(),
                         a.region->bytes.begin() + 1000,
                         b.At(1).begin() + wire::kGrhSize));
  EXPECT_TRUE(std::equal(a.region->bytes.begin() + 7,
                         a.region->bytes.begin() + 108,
                         b.At(2).begin() + wire::kGrhSize));
  EXPECT_EQ(b.At(2)[141], 0);
  // No acknowledgement.
  EXPECT_FALSE(b.endpoint.HasTransmit());
  EXPECT_EQ(b.endpoint.NextTimeout(), kNever);
  EXPECT_EQ(a.qp->counters().requests[0], 3u);
  const QpReport report = a.qp->Report();
  EXPECT_EQ(report.type, QpType::kUd);
  EXPECT_EQ(report.destination, b.address);
  EXPECT_EQ(report.send_psn, psn);
}

TEST_F(UdTest, TheIpHeaderPrecedesThePayload) {
  ASSERT_EQ(b.Receive(1, 200), 0);
  AddressVector to = a.To(b);
  to.traffic_class = 0x2c;
  to.hop_limit = 9;
  ASSERT_EQ(a.Post({.remote_qpn = 34, .remote_qkey = kQkey}, to, 100), 0);
  Exchange();
  EXPECT_EQ(b.Received(), "1 ok 140 from 17");
  wire::Grh grh;
  ASSERT_TRUE(wire::ParseGrh(b.At(1).data(), &grh));
  EXPECT_EQ(grh.source, a.address);
  EXPECT_EQ(grh.destination, b.address);
  EXPECT_EQ(grh.traffic_class, 0x2c);
  EXPECT_EQ(grh.hop_limit, 9);
}

TEST_F(UdTest, ACompletionReportsTheIpVersion) {
  const auto kind_at = [](Host& from, Host& to) {
    EXPECT_EQ(to.Receive(1, 200), 0);
    EXPECT_EQ(from.Send(10, to, 100), 0);
    for (const Sent& sent : All(from)) {
      EXPECT_EQ(Deliver(to, sent), Disposition::kDelivered);
    }
    const std::vector<Completion> sent = from.sends.Take();
    const std::vector<Completion> received = to.receives.Take();
    EXPECT_EQ(sent.size(), 1u);
    EXPECT_EQ(received.size(), 1u);
    if (sent.size() != 1 || received.size() != 1) return -1;
    EXPECT_EQ(sent[0].service_level, 0);
    return int{received[0].service_level};
  };
  EXPECT_EQ(kind_at(a, b), 0xa);
  Host d{68, "fd00::1"};
  Host e{85, "fd00::2"};
  for (Host* host : {&d, &e}) {
    ASSERT_EQ(BringUp(*host->qp, host->attributes, host->now), 0);
  }
  EXPECT_EQ(kind_at(d, e), 0x9);
}

TEST_F(UdTest, HeaderAndPayloadFillTheSgeList) {
  const uint32_t key = b.region->lkey;
  const Sge sges[] = {{kVa + kReceives + 2048, 30, key},
                      {kVa + kReceives + 4096, 1000, key}};
  ASSERT_EQ(b.qp->PostReceive({1, sges}, b.now), 0);
  ASSERT_EQ(a.Send(10, b, 100), 0);
  Exchange();
  EXPECT_EQ(b.Received(), "1 ok 140 from 17");
  EXPECT_EQ(b.At(1)[20], 0x45);
  EXPECT_EQ(b.At(1)[30], 0);
  EXPECT_EQ(std::memcmp(b.At(2).data() + 10, a.region->bytes.data(), 100), 0);
}

TEST_F(UdTest, QKeys) {
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_EQ(b.Receive(i, 200), 0);
  const AddressVector to = a.To(b);
  const auto send = [&](uint64_t wr_id, uint32_t qkey) {
    EXPECT_EQ(a.Post({.wr_id = wr_id, .remote_qpn = 34, .remote_qkey = qkey},
                     to, 100),
              0);
    Exchange();
  };
  send(10, kQkey + 1);
  EXPECT_EQ(b.Received(), "");
  EXPECT_EQ(b.qp->counters().dropped_qkey, 1u);
  // A Q_Key with the high bit is replaced by the queue pair's own.
  send(11, 0xffffffff);
  EXPECT_EQ(b.Received(), "1 ok 140 from 17");
  a.attributes.qkey = 0x22222222;
  ASSERT_EQ(a.Modify(QpState::kRts, kQpQkey), 0);
  send(12, 0x80000000);
  EXPECT_EQ(b.Received(), "");
  send(13, kQkey);
  EXPECT_EQ(b.Received(), "2 ok 140 from 17");
  // On the wire the high bit has no meaning.
  b.attributes.qkey = 0x80010000;
  ASSERT_EQ(b.Modify(QpState::kRts, kQpQkey), 0);
  a.attributes.qkey = 0x80010000;
  ASSERT_EQ(a.Modify(QpState::kRts, kQpQkey), 0);
  send(14, 0x80010000);
  EXPECT_EQ(b.Received(), "3 ok 140 from 17");
  EXPECT_EQ(a.Sent(), "10 ok; 11 ok; 12 ok; 13 ok; 14 ok");
}

TEST_F(UdTest, OtherPacketsAreDropped) {
  ASSERT_EQ(b.Receive(1, 200), 0);
  ASSERT_EQ(a.Send(10, b, 100), 0);
  const Sent good = All(a).at(0);
  const auto changed = [&good](size_t at, uint8_t value) {
    Sent sent = good;
    sent.bytes[at] = value;
    wire::IcrcFlow(sent.av.source, sent.av.destination, sent.av.source_port,
                   wire::kRoceUdpPort)
        .Store(sent.bytes, 0);
    return sent;
  };
  EXPECT_EQ(Deliver(b, changed(0, 0x24)), Disposition::kDelivered);  // UC
  EXPECT_EQ(b.qp->counters().dropped_type, 1u);
  EXPECT_EQ(Deliver(b, changed(3, 0xfe)), Disposition::kDelivered);
  EXPECT_EQ(b.qp->counters().dropped_pkey, 1u);
  Sent damaged = good;
  damaged.bytes[30] ^= 1;
  EXPECT_EQ(Deliver(b, damaged), Disposition::kBadIcrc);
  EXPECT_EQ(b.Received(), "");
  EXPECT_EQ(Deliver(b, good), Disposition::kDelivered);
  EXPECT_EQ(b.Received(), "1 ok 140 from 17");
  EXPECT_EQ(Deliver(b, good), Disposition::kDelivered);
  EXPECT_EQ(b.qp->counters().out_of_buffer, 1u);
  // Longer than the port's MTU.
  ASSERT_EQ(b.Receive(2, 2048), 0);
  Host jumbo(99, "10.0.0.9");
  jumbo.config.qpn = 100;
  jumbo.config.port_mtu = 4096;
  const auto large = MakeQueuePair(jumbo.endpoint, jumbo.config);
  ASSERT_EQ(BringUp(*large, jumbo.attributes, jumbo.now), 0);
  const AddressVector to = jumbo.To(b);
  const Sge sge = {kVa, kMtu + 1, jumbo.region->lkey};
  ASSERT_EQ(large->PostSend({.sges = {&sge, 1},
                             .ah = &to,
                             .remote_qpn = 34,
                             .remote_qkey = kQkey},
                            jumbo.now),
            0);
  Deliver(All(jumbo));
  EXPECT_EQ(b.qp->counters().dropped_message, 1u);
  EXPECT_EQ(b.Received(), "");
  EXPECT_EQ(b.qp->state(), QpState::kRts);
}

TEST_F(UdTest, ReceivesThatAreTooShort) {
  ASSERT_EQ(b.Receive(1, 139), 0);
  ASSERT_EQ(b.Receive(2, 140), 0);
  for (uint64_t i = 10; i < 12; ++i) ASSERT_EQ(a.Send(i, b, 100), 0);
  Exchange();
  EXPECT_EQ(b.Received(), "");
  EXPECT_EQ(b.At(1)[20], 0) << "nothing of it is placed";
  EXPECT_EQ(b.qp->counters().dropped_message, 2u);
  ASSERT_EQ(a.Send(12, b, 99), 0);
  ASSERT_EQ(a.Send(13, b, 100), 0);
  Exchange();
  EXPECT_EQ(b.Received(), "1 ok 139 from 17; 2 ok 140 from 17");
  EXPECT_EQ(b.qp->state(), QpState::kRts);
  EXPECT_EQ(b.qp->counters().receive_errors, 0u);
}

TEST_F(UdTest, ReceiveThatCannotBeWrittenEndsTheQueuePair) {
  const Sge bad = {kVa, 200, 0x999};
  ASSERT_EQ(b.qp->PostReceive({1, {&bad, 1}}, b.now), 0);
  ASSERT_EQ(b.Receive(2, 200), 0);
  ASSERT_EQ(a.Send(10, b, 100), 0);
  Exchange();
  EXPECT_EQ(b.Received(), "1 status 4; 2 status 5");
  EXPECT_EQ(b.qp->state(), QpState::kErr);
}

TEST_F(UdTest, ErrorsOfSendsStopTheSendQueueOnly) {
  const Sge bad = {kVa, 600, 0x999};
  const AddressVector to = a.To(b);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(a.Send(10, b, kMtu), 0);
    if (round == 0) {
      ASSERT_EQ(a.Send(11, b, kMtu + 1), 0);
    } else {
      ASSERT_EQ(a.qp->PostSend({.wr_id = 11,
                                .sges = {&bad, 1},
                                .ah = &to,
                                .remote_qpn = 34,
                                .remote_qkey = kQkey},
                               a.now),
                0);
    }
    ASSERT_EQ(a.Send(12, b, 100), 0);
    ASSERT_EQ(b.Receive(1, 2048), 0);
    ASSERT_EQ(b.Receive(2, 2048), 0);
    ASSERT_EQ(a.Receive(5, 2048), 0);
    Exchange();
    EXPECT_EQ(a.Sent(), round == 0 ? "10 ok; 11 status 1; 12 status 5"
                                   : "10 ok; 11 status 4; 12 status 5");
    EXPECT_EQ(a.qp->state(), QpState::kSqe);
    EXPECT_TRUE(a.events.Take().empty());
    ASSERT_EQ(a.Send(13, b, 100), 0);
    EXPECT_EQ(a.Sent(), "13 status 5");
    // It still receives.
    ASSERT_EQ(b.Send(20, a, 10), 0);
    Exchange();
    EXPECT_EQ(a.Received(), "5 ok 50 from 34");
    ASSERT_EQ(a.Modify(QpState::kRts), 0);
    ASSERT_EQ(a.Send(14, b, 100), 0);
    Exchange();
    EXPECT_EQ(a.Sent(), "14 ok");
    EXPECT_EQ(b.Received(), "1 ok 1064 from 17; 2 ok 140 from 17");
  }
}

TEST_F(UdTest, RejectsUnsupportedOperations) {
  const AddressVector to = a.To(b);
  for (const SendOpcode opcode :
       {SendOpcode::kRdmaWrite, SendOpcode::kRdmaWriteWithImm,
        SendOpcode::kRdmaRead, SendOpcode::kCompareSwap, SendOpcode::kFetchAdd,
        SendOpcode::kSendWithInvalidate, SendOpcode::kLocalInvalidate,
        SendOpcode::kAtomicWrite}) {
    EXPECT_EQ(a.Post({.opcode = opcode, .remote_qpn = 34}, to, 8), EINVAL);
    EXPECT_EQ(a.qp->CheckSend({.opcode = opcode, .ah = &to}), EINVAL);
  }
  EXPECT_EQ(a.qp->PostSend({.remote_qpn = 34}, a.now), EINVAL);  // no address
  EXPECT_EQ(a.qp->CheckSend({.remote_qpn = 34}), EINVAL);
  EXPECT_EQ(a.Post({.remote_qpn = 1 << 24}, to, 8), EINVAL);
  EXPECT_TRUE(All(a).empty());
}

TEST_F(UdTest, SendsToItself) {
  ASSERT_EQ(a.Receive(1, 200), 0);
  ASSERT_EQ(a.Send(10, a, 100), 0);
  Exchange();
  EXPECT_EQ(a.Received(), "1 ok 140 from 17");
}

TEST_F(UdTest, SeveralSenders) {
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(b.Receive(i, 200), 0);
  ASSERT_EQ(a.Send(10, b, 100), 0);
  ASSERT_EQ(c.Send(11, b, 90), 0);
  ASSERT_EQ(b.Send(12, b, 80), 0);
  ASSERT_EQ(a.Send(13, b, 70), 0);
  Exchange();
  EXPECT_EQ(b.Received(),
            "0 ok 140 from 17; 1 ok 110 from 17; 2 ok 120 from 34; 3 ok 130 "
            "from 51");
}

// A burst has one destination; messages to several are sent in order.
TEST_F(UdTest, SeveralDestinations) {
  const Host* const to[] = {&b, &b, &c, &b, &a, &c, &c};
  for (uint64_t i = 0; i < std::size(to); ++i) {
    ASSERT_EQ(a.Send(i, *to[i], 100), 0);
  }
  std::string bursts;
  for (;;) {
    const std::vector<Sent> packets = NextBurst(a);
    if (packets.empty()) break;
    const AddressVector& av = packets[0].av;
    bursts += std::to_string(packets.size()) + " to " +
              av.destination.ToString() + "; ";
    for (const Sent& sent : packets) {
      EXPECT_EQ(sent.av, av);
    }
  }
  EXPECT_EQ(bursts,
            "2 to 10.0.0.2; 1 to 10.0.0.3; 1 to 10.0.0.2; 1 to 10.0.0.1; 2 to "
            "10.0.0.3; ");
  EXPECT_EQ(a.Sent(), "0 ok; 1 ok; 2 ok; 3 ok; 4 ok; 5 ok; 6 ok");
}

// More than kKept: each message still arrives at its destination.
TEST_F(UdTest, ManyDestinations) {
  constexpr uint32_t kHosts = 3 * Destinations::kKept;
  uint32_t psn = kPsn;
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < kHosts; ++i) {
      AddressVector to = a.To(b);
      to.destination =
          wire::IpAddress::FromV4(static_cast<uint32_t>(0x0a | (i + 256) << 8));
      ASSERT_EQ(a.Post({.wr_id = i, .remote_qpn = i, .remote_qkey = i}, to, 8),
                0);
    }
    const std::vector<Sent> packets = All(a);
    ASSERT_EQ(packets.size(), kHosts);
    for (uint32_t i = 0; i < kHosts; ++i) {
      wire::PacketView view;
      ASSERT_EQ(wire::PacketView::Parse(packets[i].bytes, &view),
                wire::ParseError::kOk);
      EXPECT_EQ(view.bth().dest_qpn, i);
      EXPECT_EQ(view.deth().qkey, i);
      EXPECT_EQ(view.bth().psn, psn);
      psn = wire::PsnAdd(psn, 1);
      EXPECT_EQ(packets[i].av.destination.v4_be(), 0x0au | (i + 256) << 8);
      EXPECT_TRUE(wire::IcrcFlow(a.address, packets[i].av.destination, 0xc001,
                                 wire::kRoceUdpPort)
                      .Verify(packets[i].bytes, packets[i].segment_index));
    }
    EXPECT_EQ(a.sends.Take().size(), kHosts);
  }
}

TEST(DestinationsTest, DeletesUnusedDestinations) {
  Endpoint endpoint;
  Destinations destinations(endpoint);
  std::vector<AddressVector> avs(Destinations::kKept);
  for (size_t i = 0; i < avs.size(); ++i) {
    EXPECT_FALSE(destinations.full());
    avs[i].destination = *wire::IpAddress::Parse("10.0.0.2");
    avs[i].source_port = static_cast<uint16_t>(i);
    EXPECT_EQ(destinations.Find(avs[i], {})->flow.av, avs[i]);
  }
  EXPECT_TRUE(destinations.full());
  Destination* const kept = destinations.Find(avs[3], {});
  destinations.Tidy([kept](const auto& in_use) { in_use(kept); });
  EXPECT_EQ(destinations.size(), 1u);
  EXPECT_EQ(destinations.Find(avs[3], {}), kept);
  // All of them share one path.
  EXPECT_EQ(destinations.Find(avs[4], {})->path, kept->path);
}

TEST_F(UdTest, Drains) {
  ASSERT_EQ(a.Send(10, b, 100), 0);
  a.attributes.en_sqd_async_notify = true;
  ASSERT_EQ(a.Modify(QpState::kSqd, kQpEnSqdAsyncNotify), 0);
  EXPECT_EQ(a.events.Take(), std::vector<QpEvent>{QpEvent::kSqDrained});
  EXPECT_FALSE(a.qp->attributes().sq_draining);
  ASSERT_EQ(a.Send(11, c, 100), 0);
  EXPECT_TRUE(All(a).empty());
  ASSERT_EQ(a.Modify(QpState::kRts), 0);
  EXPECT_EQ(All(a).size(), 2u);
  EXPECT_EQ(a.Sent(), "10 ok; 11 ok");
}

// --- Segments (ibv_wr_post(3), ibv_wr_send_tso).

// The packets' payloads after the header, concatenated.
Bytes Payload(const std::vector<Sent>& packets, size_t header) {
  Bytes data;
  for (const Sent& sent : packets) {
    wire::PacketView view;
    EXPECT_EQ(wire::PacketView::Parse(sent.bytes, &view),
              wire::ParseError::kOk);
    const std::span<const uint8_t> payload = view.payload();
    EXPECT_GE(payload.size(), header);
    data.insert(data.end(), payload.begin() + static_cast<long>(header),
                payload.end());
  }
  return data;
}

TEST_F(UdTest, EachSegmentIsADatagramWithTheHeader) {
  const Bytes header = {1, 2, 3, 4, 5, 6, 7};
  for (uint64_t i = 1; i <= 4; ++i) ASSERT_EQ(b.Receive(i, 1100), 0);
  ASSERT_EQ(a.SendSegmented(10, b, header, 900, 2500, kSendSolicited), 0);
  ASSERT_EQ(a.SendSegmented(11, b, header, 900, 0), 0);
  const std::vector<Sent> packets = All(a);
  ASSERT_EQ(packets.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    wire::PacketView view;
    ASSERT_EQ(wire::PacketView::Parse(packets[i].bytes, &view),
              wire::ParseError::kOk);
    EXPECT_EQ(view.bth().psn, wire::PsnAdd(kPsn, i));
    EXPECT_EQ(view.bth().solicited, i == 2) << i;
    EXPECT_EQ(view.deth().qkey, kQkey);
    EXPECT_TRUE(std::ranges::equal(view.payload().first(7), header));
  }
  const Bytes data = Payload(packets, header.size());
  ASSERT_EQ(data.size(), 2500u);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), a.region->bytes.begin()));
  const std::vector<Completion> sends = a.sends.Take();
  ASSERT_EQ(sends.size(), 2u);
  EXPECT_EQ(sends[0].opcode, WcOpcode::kTso);
  EXPECT_EQ(Host::Describe(sends), "10 ok; 11 ok");
  Deliver(packets);
  EXPECT_EQ(b.Received(),
            "1 ok 947 from 17; 2 ok 947 from 17; 3 ok 747 from 17; "
            "4 ok 47 from 17");
}

// IP over InfiniBand (RFC 4391) with TCP: each segment has its own lengths,
// numbers and checksums.
TEST_F(UdTest, SegmentsOfTcp) {
  Bytes header(kMaxTsoHeader - 20);
  header[0] = 0x08;  // EtherType IPv4
  uint8_t* const ip = header.data() + 4;
  ip[0] = 0x45;
  ip[9] = 6;
  uint8_t* const tcp = ip + 20;
  wire::StoreBe32(tcp + 4, 0xfffffc00);
  tcp[12] = 0x50;
  tcp[13] = 0x18;  // ACK, PSH
  ASSERT_EQ(a.SendSegmented(10, b, header, 900, 2500), 0);
  const std::vector<Sent> packets = All(a);
  ASSERT_EQ(packets.size(), 3u);
  uint32_t sequence = 0xfffffc00;
  for (size_t i = 0; i < 3; ++i) {
    wire::PacketView view;
    ASSERT_EQ(wire::PacketView::Parse(packets[i].bytes, &view),
              wire::ParseError::kOk);
    wire::EthernetFrame frame;
    ASSERT_TRUE(wire::ParseIp(view.payload(), 4, 0x0800, &frame));
    EXPECT_EQ(frame.end, view.payload().size());
    EXPECT_TRUE(wire::Ipv4ChecksumsAreGood(frame)) << i;
    EXPECT_EQ(wire::LoadBe16(frame.ip_header() + 4), i);
    EXPECT_EQ(wire::LoadBe32(frame.transport_header() + 4), sequence);
    EXPECT_EQ(frame.transport_header()[13], i == 2 ? 0x18 : 0x10);
    sequence += 900;
  }
  const Bytes data = Payload(packets, header.size());
  ASSERT_EQ(data.size(), 2500u);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), a.region->bytes.begin()));
}

TEST_F(UdTest, InvalidSegments) {
  EXPECT_EQ(a.SendSegmented(1, b, {1}, 0, 100), EINVAL);
  EXPECT_EQ(a.SendSegmented(1, b, {}, 10, 100), EINVAL);
  EXPECT_EQ(a.SendSegmented(1, b, Bytes(kMaxTsoHeader + 1), 10, 100), EINVAL);
  EXPECT_EQ(a.SendSegmented(1, b, {1}, 10, 60, kSendInline), EINVAL);
  std::unique_ptr<QueuePair> without = MakeQueuePair(c.endpoint, [this] {
    QpConfig config = c.config;
    config.qpn = 52;
    return config;
  }());
  ASSERT_EQ(BringUp(*without, c.attributes, c.now), 0);
  c.qp.swap(without);
  EXPECT_EQ(c.SendSegmented(1, b, {1}, 10, 100), EINVAL);
  c.qp.swap(without);

  // The header and a segment's payload exceed a datagram by one byte.
  const Bytes header(kMaxTsoHeader);
  ASSERT_EQ(a.SendSegmented(2, b, header, kMtu, kMtu - kMaxTsoHeader), 0);
  EXPECT_EQ(All(a).size(), 1u);
  ASSERT_EQ(a.SendSegmented(3, b, header, kMtu, kMtu - kMaxTsoHeader + 1), 0);
  EXPECT_TRUE(All(a).empty());
  EXPECT_EQ(a.Sent(), "2 ok; 3 status 1");
  EXPECT_EQ(a.qp->state(), QpState::kSqe);
  ASSERT_EQ(a.Modify(QpState::kRts), 0);
  // Memory that ends within the message.
  ASSERT_EQ(a.Post({.wr_id = 4,
                    .opcode = SendOpcode::kTso,
                    .remote_qpn = b.qp->qpn(),
                    .remote_qkey = kQkey,
                    .tso_header = header,
                    .tso_mss = 100},
                   a.To(b), 1000, kMemory - 450),
            0);
  ASSERT_EQ(a.Send(5, b, 1), 0);
  EXPECT_LE(All(a).size(), 5u);
  EXPECT_EQ(a.Sent(), "4 status 4; 5 status 5");
  EXPECT_EQ(a.qp->state(), QpState::kSqe);
  // The next message starts from the beginning.
  ASSERT_EQ(a.Modify(QpState::kRts), 0);
  ASSERT_EQ(a.SendSegmented(6, b, header, 100, 1000), 0);
  EXPECT_EQ(Payload(All(a), header.size()).size(), 1000u);
}

TEST_F(UdTest, ManySegmentsContinueInTheNextBurst) {
  const Bytes header = {9, 9, 9};
  ASSERT_EQ(a.SendSegmented(10, b, header, 100, 20'000), 0);
  ASSERT_EQ(a.Send(11, c, 5), 0);
  std::vector<Sent> packets = Burst(a);
  ASSERT_FALSE(packets.empty());
  ASSERT_LT(packets.size(), 200u);
  // Draining waits for the end of this message only.
  a.attributes.en_sqd_async_notify = true;
  ASSERT_EQ(a.Modify(QpState::kSqd, kQpEnSqdAsyncNotify), 0);
  EXPECT_TRUE(a.events.Take().empty());
  EXPECT_TRUE(a.qp->attributes().sq_draining);
  const std::vector<Sent> rest = All(a);
  EXPECT_EQ(a.events.Take(), std::vector<QpEvent>{QpEvent::kSqDrained});
  EXPECT_EQ(a.Sent(), "10 ok");
  packets.insert(packets.end(), rest.begin(), rest.end());
  EXPECT_EQ(packets.size(), 200u);
  const Bytes data = Payload(packets, header.size());
  ASSERT_EQ(data.size(), 20'000u);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), a.region->bytes.begin()));
  ASSERT_EQ(a.Modify(QpState::kRts), 0);
  EXPECT_EQ(All(a).size(), 1u);
  EXPECT_EQ(a.Sent(), "11 ok");
}

TEST_F(UdTest, StatesThatReceiveNothing) {
  ASSERT_EQ(a.Send(9, b, 1), 0);
  const Sent sent = All(a).at(0);
  EXPECT_EQ(a.Sent(), "9 ok");
  for (const QpState state : {QpState::kErr, QpState::kReset}) {
    ASSERT_EQ(b.Modify(state), 0);
    EXPECT_EQ(Deliver(b, sent), Disposition::kDelivered);
  }
  EXPECT_EQ(b.qp->counters().dropped_state, 2u);
  // Receives from RTR on; the Q_Key may be changed meanwhile.
  b.attributes.qkey = kQkey + 1;
  ASSERT_EQ(b.Modify(QpState::kInit, kQpPkeyIndex | kQpPort | kQpQkey), 0);
  ASSERT_EQ(b.Receive(1, 200), 0);
  b.attributes.qkey = kQkey;
  ASSERT_EQ(b.Modify(QpState::kRtr, kQpQkey), 0);
  EXPECT_EQ(Deliver(b, sent), Disposition::kDelivered);
  EXPECT_EQ(b.Received(), "1 ok 41 from 17");
  EXPECT_EQ(b.Send(1, a, 1), EINVAL);
  // With work queued, in SQD.
  ASSERT_EQ(a.Modify(QpState::kSqd), 0);
  ASSERT_EQ(a.Send(10, b, 1), 0);
  ASSERT_EQ(a.Modify(QpState::kErr), 0);
  EXPECT_EQ(a.Sent(), "10 status 5");
  EXPECT_TRUE(All(a).empty());
  ASSERT_EQ(a.Modify(QpState::kReset), 0);
  ASSERT_EQ(BringUp(*a.qp, a.attributes, a.now), 0);
  ASSERT_EQ(a.Send(11, b, 1), 0);
  EXPECT_EQ(All(a).size(), 1u);
}

// The completion queue overruns: no more completions, state ERR.
TEST_F(UdTest, LostCompletions) {
  a.sends.capacity = 0;
  ASSERT_EQ(a.Send(10, b, 1), 0);
  ASSERT_EQ(a.Send(11, b, 1), 0);
  All(a);
  EXPECT_EQ(a.qp->state(), QpState::kErr);
}

TEST_F(UdTest, ACongestionNotificationSlowsItsPath) {
  ASSERT_EQ(a.Send(10, b, 1), 0);
  EXPECT_EQ(All(a).size(), 1u);
  const uint64_t before = a.qp->path()->window();
  wire::Headers cnp;
  cnp.bth.opcode = wire::kOpcodeCnp;
  cnp.bth.becn = true;
  cnp.bth.dest_qpn = a.qp->qpn();
  Bytes packet(wire::kBthSize + wire::kCnpPayloadSize + wire::kIcrcSize);
  wire::EmitHeaders(cnp, packet.data());
  const auto from = [&](const Host& host) {
    Sent sent = {.bytes = packet, .av = host.To(a), .segment_index = 0};
    wire::IcrcFlow(sent.av.source, sent.av.destination, sent.av.source_port,
                   wire::kRoceUdpPort)
        .Store(sent.bytes, 0);
    EXPECT_EQ(Deliver(a, sent), Disposition::kDelivered);
  };
  from(c);
  EXPECT_EQ(a.qp->path()->window(), before);
  EXPECT_EQ(a.qp->counters().dropped_source, 1u);
  from(b);
  EXPECT_LT(a.qp->path()->window(), before);
}

}  // namespace
}  // namespace transport
