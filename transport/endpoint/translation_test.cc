// Address translation between peers.
#include "transport/endpoint/translation.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "transport/testing/wire_peer.h"
#include "wire/icrc.h"

namespace transport {
namespace {

using enum wire::Operation;
using Bytes = std::vector<uint8_t>;

wire::IpAddress Address(const char* text) {
  return *wire::IpAddress::Parse(text);
}

// One line per reported translation.
struct Log final : TranslationSink {
  void OnTranslation(const Translation& t) override {
    lines.push_back(t.peer.ToString() + ":" + std::to_string(t.source_port) +
                    " at " + t.seen.address.ToString() + ":" +
                    std::to_string(t.seen.port) +
                    (t.taken ? " taken" : " dropped"));
  }
  std::vector<wire::IpAddress> KnownPeers(const Via&) override { return peers; }
  std::vector<std::string> lines;
  std::vector<wire::IpAddress> peers;
};

class TranslationTest : public ::testing::Test {
 protected:
  static constexpr uint16_t kOurPort = wire::kRoceUdpPort;

  void Start(bool take) {
    peer.endpoint.WatchTranslations(&log, take);
    peer.Connect();
  }
  // A packet that the peer sent from `port` and that arrives from `seen`.
  Disposition DeliverFrom(const wire::Headers& headers, const char* seen,
                          uint16_t seen_port, uint16_t port = kOurPort,
                          size_t payload = 0) {
    peer.datagram.source_port = port;
    const Bytes packet = peer.Build(headers, payload);
    const Datagram before = peer.datagram;
    peer.datagram.source = Address(seen);
    peer.datagram.source_port = seen_port;
    const Disposition disposition = peer.Deliver(packet);
    peer.datagram = before;
    return disposition;
  }
  std::string GoesTo() {
    const Flow* const flow = peer.qp->link().flow;
    return flow->av.destination.ToString() + ":" +
           std::to_string(flow->destination_port);
  }
  uint64_t told() const { return peer.endpoint.counters().translated_dropped; }

  Log log;
  WirePeer peer;
};

TEST_F(TranslationTest, IsReportedAndDropped) {
  Start(false);
  const wire::Headers write = peer.Write(kWriteOnly, 100, 0, 4, true);
  EXPECT_EQ(DeliverFrom(write, "192.0.2.7", 0xc123, 0xc123, 4),
            Disposition::kBadIcrc);
  EXPECT_EQ(log.lines, std::vector<std::string>{
                           "10.0.0.2:49443 at 192.0.2.7:49443 dropped"});
  EXPECT_EQ(told(), 1u);
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(GoesTo(), "10.0.0.2:4791");
  // One check per millisecond.
  DeliverFrom(write, "192.0.2.7", 0xc123, 0xc123, 4);
  EXPECT_EQ(told(), 1u);
  peer.now += kMillisecond;
  DeliverFrom(write, "192.0.2.7", 0xc123, 0xc123, 4);
  EXPECT_EQ(told(), 2u);
}

TEST_F(TranslationTest, ThePeersOwnPortIsFound) {
  Start(false);
  const wire::Headers write = peer.Write(kWriteOnly, 100, 0, 4);
  EXPECT_EQ(DeliverFrom(write, "192.0.2.7", 1024, 0xc0de, 4),
            Disposition::kBadIcrc);
  peer.now += kMillisecond;
  // Its port is translated, but not its address.
  EXPECT_EQ(DeliverFrom(write, "10.0.0.2", 1024, 0xc0de, 4),
            Disposition::kBadIcrc);
  EXPECT_EQ(log.lines, (std::vector<std::string>{
                           "10.0.0.2:49374 at 192.0.2.7:1024 dropped",
                           "10.0.0.2:49374 at 10.0.0.2:1024 dropped"}));
}

TEST_F(TranslationTest, OtherPacketsAreNotReported) {
  Start(false);
  const auto look = [&](const wire::Headers& headers, size_t payload) {
    peer.now += kMillisecond;
    EXPECT_EQ(DeliverFrom(headers, "192.0.2.7", 0xc123, 0xc123, payload),
              Disposition::kBadIcrc);
  };
  look(peer.Write(kWriteOnly, 100 + 0x100000, 0, 4), 4);  // outside the window
  look(peer.Request(kAcknowledge, 5000), 0);  // of nothing outstanding
  wire::Headers other = peer.Write(kWriteOnly, 100, 0, 4);
  other.bth.dest_qpn = 0x99;
  look(other, 4);
  peer.datagram.source = Address("10.0.0.3");  // not the peer's known address
  look(peer.Write(kWriteOnly, 100, 0, 4), 4);
  EXPECT_TRUE(log.lines.empty());
  EXPECT_EQ(told(), 0u);
}

TEST_F(TranslationTest, DamageIsRarelyTakenForTranslation) {
  Start(false);
  Bytes packet = peer.Build(peer.Write(kWriteOnly, 100, 0, 4), 4);
  std::mt19937 random(1);
  for (int i = 0; i < 1 << 16; ++i) {
    wire::StoreIcrc(packet.data() + packet.size() - wire::kIcrcSize,
                    static_cast<uint32_t>(random()));
    peer.datagram.source = Address("192.0.2.7");
    peer.now += kMillisecond;
    // One in 2^16 is right for some IP ID.
    peer.Deliver(packet);
    peer.datagram.source = peer.attributes.av.destination;
  }
  EXPECT_LE(told(), 6u) << "0.5 expected";
}

TEST_F(TranslationTest, IsAcceptedAndAnsweredAtItsSource) {
  Start(true);
  EXPECT_EQ(DeliverFrom(peer.Write(kWriteOnly, 100, 0, 4, true), "192.0.2.7",
                        1024, kOurPort, 4),
            Disposition::kDelivered);
  EXPECT_EQ(GoesTo(), "192.0.2.7:1024");
  // WirePeer checks that the ICRC is still for the addresses that both know.
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
  // From now on it is verified like any other peer.
  EXPECT_EQ(DeliverFrom(peer.Write(kWriteOnly, 101, 0, 4, true), "192.0.2.7",
                        1024, kOurPort, 4),
            Disposition::kDelivered);
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
  EXPECT_EQ(log.lines,
            std::vector<std::string>{"10.0.0.2:4791 at 192.0.2.7:1024 taken"});
  EXPECT_EQ(peer.endpoint.counters().translated_peers, 1u);
  EXPECT_EQ(peer.endpoint.counters()
                .dropped[static_cast<size_t>(Disposition::kBadIcrc)],
            0u);
}

TEST_F(TranslationTest, ThePortAloneMayBeTranslated) {
  Start(true);
  EXPECT_EQ(DeliverFrom(peer.Write(kWriteOnly, 100, 0, 4, true), "10.0.0.2",
                        1024, kOurPort, 4),
            Disposition::kDelivered);
  EXPECT_EQ(GoesTo(), "10.0.0.2:1024");
}

// An unexpected packet does not prove the peer's address.
TEST_F(TranslationTest, OnlyAPacketWithinTheWindowIsAccepted) {
  Start(true);
  for (const uint32_t psn : {100u + 0x100000, 50u}) {
    EXPECT_EQ(DeliverFrom(peer.Write(kWriteOnly, psn, 0, 4), "192.0.2.7", 1024,
                          kOurPort, 4),
              Disposition::kBadIcrc);
  }
  EXPECT_EQ(GoesTo(), "10.0.0.2:4791");
  EXPECT_TRUE(log.lines.empty());
}

// A packet whose ICRC is right for its source does not prove that its source is
// the peer: any host can send such a packet.
TEST_F(TranslationTest, AnotherHostIsNotThePeer) {
  Start(true);
  peer.datagram.source = Address("192.0.2.7");
  EXPECT_EQ(peer.Deliver(peer.Write(kWriteOnly, 100, 0, 4), 4),
            Disposition::kDelivered);
  EXPECT_EQ(peer.qp->counters().dropped_source, 1u);
  EXPECT_EQ(GoesTo(), "10.0.0.2:4791");
}

// A translator forgets idle peers and assigns them new ports. The rules are
// those of a port change (transport/qp/peer_port.h).
TEST_F(TranslationTest, AnotherPortIsAcceptedAfterSilence) {
  Start(true);
  DeliverFrom(peer.Write(kWriteOnly, 100, 0, 4), "192.0.2.7", 1024, kOurPort,
              4);
  const wire::Headers next = peer.Write(kWriteOnly, 101, 0, 4, true);
  DeliverFrom(next, "198.51.100.1", 1025, kOurPort, 4);
  EXPECT_EQ(GoesTo(), "192.0.2.7:1024");
  EXPECT_EQ(peer.qp->counters().dropped_port, 1u);
  peer.now += 100 * kMillisecond;
  DeliverFrom(next, "198.51.100.1", 1025, kOurPort, 4);  // claims it
  EXPECT_EQ(GoesTo(), "192.0.2.7:1024");
  peer.now += 100 * kMillisecond;
  DeliverFrom(next, "198.51.100.1", 1025, kOurPort, 4);
  EXPECT_EQ(GoesTo(), "198.51.100.1:1025");
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
}

TEST_F(TranslationTest, ChecksOfAFloodAreLimited) {
  Start(true);
  Bytes bad = peer.Build(peer.Write(kWriteOnly, 100, 0, 4), 4);
  bad.back() ^= 1;
  for (int i = 0; i < 64; ++i) peer.Deliver(bad);
  const wire::Headers write = peer.Write(kWriteOnly, 100, 0, 4);
  EXPECT_EQ(DeliverFrom(write, "192.0.2.7", 1024, kOurPort, 4),
            Disposition::kBadIcrc);
  peer.now += kMillisecond;
  EXPECT_EQ(DeliverFrom(write, "192.0.2.7", 1024, kOurPort, 4),
            Disposition::kDelivered);
}

// Packets that no queue pair would accept use up no checks: an attacker who
// knows neither a PSN nor a Q_Key cannot keep translated peers out.
TEST_F(TranslationTest, AFloodOfUnacceptablePacketsUsesUpNoChecks) {
  Start(true);
  struct : StraySink {
    void OnStray(const Datagram&, uint32_t) override { ++count; }
    int count = 0;
  } strays;
  Bytes outside = peer.Build(peer.Write(kWriteOnly, 100 + 0x100000, 0, 4), 4);
  wire::Headers other = peer.Write(kWriteOnly, 100, 0, 4);
  other.bth.dest_qpn = 0x99;
  Bytes unknown = peer.Build(other, 4);
  for (Bytes* const bad : {&outside, &unknown}) {
    bad->back() ^= 1;
    GroBatch batch;
    batch.source = Address("192.0.2.66");
    batch.destination = peer.datagram.destination;
    batch.source_port = kOurPort;
    batch.bytes = *bad;
    batch.segment_size = bad->size();
    for (int i = 0; i < 100; ++i) {
      peer.endpoint.OnGroBatch(batch, peer.now, &strays);
    }
  }
  EXPECT_EQ(strays.count, 64);
  EXPECT_EQ(DeliverFrom(peer.Write(kWriteOnly, 100, 0, 4), "192.0.2.7", 1024,
                        kOurPort, 4),
            Disposition::kDelivered);
  EXPECT_EQ(GoesTo(), "192.0.2.7:1024");
}

TEST_F(TranslationTest, TheAddressMayBeKnownInAdvance) {
  Start(true);
  peer.qp->SetVia({.address = Address("192.0.2.7"), .port = 1024});
  EXPECT_EQ(GoesTo(), "192.0.2.7:1024");
  EXPECT_EQ(DeliverFrom(peer.Write(kWriteOnly, 100, 0, 4, true), "192.0.2.7",
                        1024, kOurPort, 4),
            Disposition::kDelivered);
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
}

TEST_F(TranslationTest, OverIpv6) {
  peer.attributes.av.source = peer.datagram.destination =
      Address("2001:db8::1");
  peer.attributes.av.destination = peer.datagram.source = Address("fd00::2");
  Start(true);
  EXPECT_EQ(DeliverFrom(peer.Write(kWriteOnly, 100, 0, 4, true), "2001:db8::7",
                        1024, kOurPort, 4),
            Disposition::kDelivered);
  EXPECT_EQ(GoesTo(), "2001:db8::7:1024");
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
}

// UD packets from any sender. The 40 bytes before the payload name it.
class TranslatedDatagramTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kQpn = 0x77;
  static constexpr uint32_t kQkey = 0x1234;

  void Start(bool take, const char* here) {
    here_ = Address(here);
    endpoint_.WatchTranslations(&log, take);
    QpConfig config;
    config.type = QpType::kUd;
    config.qpn = kQpn;
    config.pd = WirePeer::kPd;
    config.capacity = {.max_send_wr = 4,
                       .max_recv_wr = 4,
                       .max_send_sge = 1,
                       .max_recv_sge = 1,
                       .max_inline_data = 0};
    config.memory = &memory_;
    config.send_cq = &send_cq_;
    config.recv_cq = &recv_cq_;
    qp_ = MakeQueuePair(endpoint_, config);
    QpAttributes attributes;
    attributes.qkey = kQkey;
    constexpr uint32_t kMasks[] = {kQpState | kQpPkeyIndex | kQpPort | kQpQkey,
                                   kQpState};
    attributes.state = QpState::kInit;
    ASSERT_EQ(qp_->Modify(attributes, kMasks[0], now_), 0);
    attributes.state = QpState::kRtr;
    ASSERT_EQ(qp_->Modify(attributes, kMasks[1], now_), 0);
    region_ = &memory_.Add(0x1000, 4096, WirePeer::kPd, kAccessLocalWrite);
    const Sge sge = {region_->va, 1024, region_->lkey};
    ASSERT_EQ(qp_->PostReceive({1, {&sge, 1}}, now_), 0);
  }
  // A packet that `sender` sent from port 4791.
  // `ip_id` is 0 for one that was not sent in a burst; `index` is its position
  // in the batch that it was received in.
  Disposition DeliverFrom(const char* sender, const char* seen,
                          uint16_t seen_port, uint32_t qkey = kQkey,
                          uint16_t ip_id = 0, uint16_t index = 0) {
    wire::Headers headers;
    headers.bth.opcode = wire::MakeOpcode(wire::Transport::kUd, kSendOnly);
    headers.bth.dest_qpn = kQpn;
    headers.deth = {.qkey = qkey, .src_qpn = 0x99};
    Bytes packet(wire::kMaxHeaderSize);
    packet.resize(wire::EmitHeaders(headers, packet.data()));
    packet.resize(packet.size() + 8 + wire::kIcrcSize);
    wire::IcrcFlow(Address(sender), here_, wire::kRoceUdpPort,
                   wire::kRoceUdpPort)
        .Store(packet, ip_id);
    Datagram datagram;
    datagram.bytes = packet;
    datagram.segment_index = index;
    datagram.source = Address(seen);
    datagram.destination = here_;
    datagram.source_port = seen_port;
    return endpoint_.OnDatagram(datagram, now_ += kMillisecond);
  }

  Log log;
  Time now_ = kSecond;
  wire::IpAddress here_;
  FakeMemory memory_;
  FakeMemory::Region* region_ = nullptr;
  RecordingCq send_cq_;
  RecordingCq recv_cq_;
  Endpoint endpoint_;
  std::unique_ptr<QueuePair> qp_;
};

TEST_F(TranslatedDatagramTest, ItsOwnAddressIsSolvedFor) {
  Start(true, "203.0.113.9");
  EXPECT_EQ(DeliverFrom("10.1.2.3", "192.0.2.7", 1024),
            Disposition::kDelivered);
  EXPECT_EQ(log.lines,
            std::vector<std::string>{"10.1.2.3:4791 at 192.0.2.7:1024 taken"});
}

// A receiver whose kernel or network card merges no packets, or merges others
// than were sent together, gets the packets of a burst at other positions.
TEST_F(TranslatedDatagramTest, EachPacketOfABurstIsAccepted) {
  Start(true, "203.0.113.9");
  EXPECT_EQ(DeliverFrom("10.1.2.3", "192.0.2.7", 1024),
            Disposition::kDelivered);
  log.peers = {Address("10.1.2.3")};
  for (uint16_t id = 1; id < 128; ++id) {
    ASSERT_EQ(DeliverFrom("10.1.2.3", "192.0.2.7", 1024, kQkey, id),
              Disposition::kDelivered)
        << id;
    ASSERT_EQ(DeliverFrom("10.1.2.3", "192.0.2.7", 1024, kQkey, id, 3),
              Disposition::kDelivered)
        << id;
  }
  EXPECT_EQ(DeliverFrom("10.1.2.3", "192.0.2.7", 1024, kQkey, 128),
            Disposition::kBadIcrc);
  // Only the port is translated.
  EXPECT_EQ(DeliverFrom("192.0.2.7", "192.0.2.7", 1025, kQkey, 5),
            Disposition::kDelivered);
}

TEST_F(TranslatedDatagramTest, OnlyItsPortMayBeTranslated) {
  Start(true, "203.0.113.9");
  EXPECT_EQ(DeliverFrom("192.0.2.7", "192.0.2.7", 1024),
            Disposition::kDelivered);
  EXPECT_EQ(log.lines,
            std::vector<std::string>{"192.0.2.7:4791 at 192.0.2.7:1024 taken"});
}

TEST_F(TranslatedDatagramTest, IsAcceptedFromAPrivateAddressWithTheQkey) {
  Start(true, "203.0.113.9");
  EXPECT_EQ(DeliverFrom("198.51.100.3", "192.0.2.7", 1024),
            Disposition::kBadIcrc);
  EXPECT_EQ(DeliverFrom("10.1.2.3", "192.0.2.7", 1024, kQkey + 1),
            Disposition::kBadIcrc);
  EXPECT_TRUE(log.lines.empty());
}

TEST_F(TranslatedDatagramTest, IsReportedAndDropped) {
  Start(false, "203.0.113.9");
  EXPECT_EQ(DeliverFrom("10.1.2.3", "192.0.2.7", 1024), Disposition::kBadIcrc);
  EXPECT_EQ(log.lines, std::vector<std::string>{
                           "10.1.2.3:4791 at 192.0.2.7:1024 dropped"});
}

TEST_F(TranslatedDatagramTest, OverIpv6TheSenderMustBeKnown) {
  Start(true, "2001:db8::9");
  EXPECT_EQ(DeliverFrom("fd00::2", "2001:db8::7", 1024), Disposition::kBadIcrc);
  log.peers = {Address("fd00::1"), Address("fd00::2")};
  EXPECT_EQ(DeliverFrom("fd00::2", "2001:db8::7", 1024),
            Disposition::kDelivered);
  EXPECT_EQ(log.lines,
            std::vector<std::string>{"fd00::2:4791 at 2001:db8::7:1024 taken"});
}

TEST(PrivateV4Test, Ranges) {
  for (const char* text : {"10.0.0.1", "172.16.0.1", "172.31.255.255",
                           "192.168.1.1", "100.64.0.1", "169.254.1.1"}) {
    EXPECT_TRUE(IsPrivateV4(Address(text))) << text;
  }
  for (const char* text : {"11.0.0.1", "172.32.0.1", "192.169.1.1",
                           "100.128.0.1", "8.8.8.8", "fd00::1"}) {
    EXPECT_FALSE(IsPrivateV4(Address(text))) << text;
  }
}

}  // namespace
}  // namespace transport
