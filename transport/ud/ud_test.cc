// Unreliable datagrams: operations, addresses, destinations.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/congestion/path.h"
#include "transport/qp/destinations.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/ud_fixture.h"
#include "wire/grh.h"
#include "wire/packet.h"
#include "wire/psn.h"

namespace transport {
namespace {

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
  kept->in_use = true;
  destinations.DeleteUnused();
  EXPECT_EQ(destinations.size(), 1u);
  EXPECT_EQ(destinations.Find(avs[3], {}), kept);
  // All of them share one path.
  EXPECT_EQ(destinations.Find(avs[4], {})->path, kept->path);
  destinations.DeleteUnused();  // the mark was removed
  EXPECT_EQ(destinations.size(), 0u);
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
