// Segments of one send (ibv_wr_post(3), ibv_wr_send_tso): each is a datagram.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "transport/queue_pairs.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/ud_fixture.h"
#include "wire/bytes.h"
#include "wire/ethernet.h"
#include "wire/packet.h"
#include "wire/psn.h"

namespace transport {
namespace {

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

}  // namespace
}  // namespace transport
