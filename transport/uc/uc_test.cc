// Unreliable connections. Reports are in uc_loop_test.cc.
#include <cerrno>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "transport/congestion/path.h"
#include "transport/qp/peer_port.h"
#include "transport/testing/uc_fixture.h"
#include "wire/packet.h"
#include "wire/psn.h"

namespace transport {
namespace {

class UcTest : public UcFixture {};

TEST_F(UcTest, EachOperation) {
  ASSERT_EQ(Receive(1, 1000), 0);
  ASSERT_EQ(Receive(2, 1000, 1000), 0);
  ASSERT_EQ(Receive(3, 0), 0);
  ASSERT_EQ(Send(10, 1000), 0);
  ASSERT_EQ(
      Post({.wr_id = 11, .opcode = SendOpcode::kSendWithImm, .imm_be = 5}, 100),
      0);
  ASSERT_EQ(Write(12, 600, 5000), 0);
  ASSERT_EQ(Post({.wr_id = 13,
                  .opcode = SendOpcode::kRdmaWriteWithImm,
                  .imm_be = 6,
                  .remote_addr = kVa + 7000,
                  .rkey = b.region->rkey},
                 300),
            0);
  ASSERT_EQ(Send(14, 0), 0);
  const std::vector<Bytes> packets = All();
  EXPECT_EQ(packets.size(), 4u + 1 + 3 + 2 + 1);
  EXPECT_EQ(a.Sent(), "10 ok 0; 11 ok 0; 12 ok 0; 13 ok 0; 14 ok 0");
  for (const Bytes& packet : packets) {
    wire::PacketView view;
    ASSERT_EQ(wire::PacketView::Parse(packet, &view), wire::ParseError::kOk);
    EXPECT_EQ(view.transport(), wire::Transport::kUc);
    EXPECT_FALSE(view.bth().ack_req);
  }
  Deliver(packets);
  EXPECT_EQ(b.Received(), "1 ok 1000; 2 ok 100 imm 5; 3 ok 300 imm 6");
  EXPECT_TRUE(Arrived(0, 1000));
  EXPECT_TRUE(Arrived(1000, 100));
  EXPECT_TRUE(Arrived(5000, 600));
  EXPECT_TRUE(Arrived(7000, 300));
  // There was no receive for the last one: dropped silently.
  EXPECT_EQ(b.qp->counters().dropped_message, 1u);
  EXPECT_FALSE(b.endpoint.HasTransmit());
  EXPECT_EQ(b.endpoint.NextTimeout(), kNever);
  EXPECT_EQ(b.qp->state(), QpState::kRts);
  const QpReport sent = a.qp->Report();
  EXPECT_EQ(sent.send_psn, (kPsn + 11) & wire::kPsnMask);
  EXPECT_EQ(sent.unacked_psn, sent.send_psn);
  EXPECT_EQ(b.qp->Report().expected_psn, sent.send_psn);
}

// A lost packet drops its message only; a receive that it had taken goes to the
// next message.
TEST_F(UcTest, LossDropsTheMessage) {
  for (size_t lost = 0; lost < 9; ++lost) {
    SCOPED_TRACE(lost);
    for (uint64_t i = 0; i < 3; ++i) {
      ASSERT_EQ(Receive(i, 700, 1000 * i), 0);
      ASSERT_EQ(Send(10 + i, 700, 100 * i), 0);
    }
    std::vector<Bytes> packets = All();
    ASSERT_EQ(packets.size(), 9u);
    packets.erase(packets.begin() + static_cast<ptrdiff_t>(lost));
    Deliver(packets);
    EXPECT_EQ(b.Received(), "0 ok 700; 1 ok 700");
    const uint64_t gone = lost / 3;
    EXPECT_TRUE(Arrived(0, 700, gone == 0 ? 100 : 0));
    EXPECT_TRUE(Arrived(1000, 700, gone == 2 ? 100 : 200));
    // The receive that is left.
    ASSERT_EQ(Send(20, 10), 0);
    Deliver(All());
    EXPECT_EQ(b.Received(), "2 ok 10");
    EXPECT_EQ(a.Sent(), "10 ok 0; 11 ok 0; 12 ok 0; 20 ok 0");
  }
}

TEST_F(UcTest, DuplicatesAndLatePacketsAreDropped) {
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(Receive(i, 600, 1000 * i), 0);
  ASSERT_EQ(Send(10, 600), 0);
  ASSERT_EQ(Send(11, 100), 0);
  ASSERT_EQ(Send(12, 100), 0);
  const std::vector<Bytes> p = All();
  ASSERT_EQ(p.size(), 5u);
  // Duplicates and late packets: within a message, at its end, and of a message
  // of one packet.
  for (size_t i : {0, 0, 1, 0, 2, 2, 4, 3, 4}) Deliver(p[i]);
  EXPECT_EQ(b.Received(), "0 ok 600; 1 ok 100");
  EXPECT_TRUE(Arrived(0, 600));
}

TEST_F(UcTest, WrongRequestsAreDropped) {
  // Longer than the receive, which goes to the next message.
  ASSERT_EQ(Receive(1, 300), 0);
  ASSERT_EQ(Send(10, 600), 0);
  // Beyond the region; with a wrong key.
  ASSERT_EQ(Write(11, 600, kMemory - 500), 0);
  ASSERT_EQ(Post({.wr_id = 12,
                  .opcode = SendOpcode::kRdmaWrite,
                  .remote_addr = kVa,
                  .rkey = 0x999},
                 600),
            0);
  ASSERT_EQ(Send(13, 300), 0);
  Deliver(All());
  EXPECT_EQ(b.Received(), "1 ok 300");
  EXPECT_EQ(b.qp->state(), QpState::kRts);
  EXPECT_FALSE(b.endpoint.HasTransmit());
  EXPECT_TRUE(b.events.Take().empty());
  for (size_t i = kMemory - 500; i < kMemory; ++i) {
    ASSERT_EQ(b.region->bytes[i], 0);
  }
}

TEST_F(UcTest, ReceiveThatCannotBeWrittenEndsTheQueuePair) {
  const Sge bad = {kVa, 100, 0x999};
  ASSERT_EQ(b.qp->PostReceive({1, {&bad, 1}}, b.now), 0);
  ASSERT_EQ(Receive(2, 100), 0);
  ASSERT_EQ(Send(10, 100), 0);
  Deliver(All());
  EXPECT_EQ(b.Received(), "1 status 4; 2 status 5");
  EXPECT_EQ(b.qp->state(), QpState::kErr);
  EXPECT_FALSE(b.endpoint.HasTransmit());
}

TEST_F(UcTest, BadLocalKeyStopsTheSendQueueOnly) {
  const Sge bad = {kVa, 600, 0x999};
  ASSERT_EQ(Send(10, 100), 0);
  ASSERT_EQ(a.qp->PostSend({.wr_id = 11, .sges = {&bad, 1}}, a.now), 0);
  ASSERT_EQ(Send(12, 100), 0);
  ASSERT_EQ(Receive(1, 100), 0);
  ASSERT_EQ(Receive(2, 100), 0);
  Deliver(All());
  EXPECT_EQ(a.Sent(), "10 ok 0; 11 status 4; 12 status 5");
  EXPECT_EQ(a.qp->state(), QpState::kSqe);
  ASSERT_EQ(Send(13, 100), 0);
  EXPECT_EQ(a.Sent(), "13 status 5");
  ASSERT_EQ(a.Modify(QpState::kRts), 0);
  ASSERT_EQ(Send(14, 100), 0);
  Deliver(All());
  EXPECT_EQ(a.Sent(), "14 ok 0");
  EXPECT_EQ(b.Received(), "1 ok 100; 2 ok 100");
}

// By opcodes that are not in the specification: 0x36, 0x37.
TEST_F(UcTest, SendWithInvalidate) {
  FakeMemory::Region& window = b.memory.Add(0x900000, 64, kPd, 0);
  ASSERT_EQ(Receive(1, 5000), 0);
  ASSERT_EQ(Receive(2, 5000), 0);
  ASSERT_EQ(Post({.wr_id = 10,
                  .opcode = SendOpcode::kSendWithInvalidate,
                  .flags = kSendSignaled,
                  .invalidate_rkey = window.rkey},
                 600),
            0);
  const auto packets = All();
  ASSERT_EQ(packets.size(), 3u);
  EXPECT_EQ(packets[2][0], 0x36);
  Deliver(packets);
  const std::vector<Completion> received = b.receives.Take();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_len, 600u);
  EXPECT_EQ(received[0].flags, uint32_t{kWcWithInvalidate});
  EXPECT_EQ(received[0].imm_be_or_rkey, window.rkey);
  EXPECT_FALSE(window.valid);
  // A SEND that may not invalidate the key is dropped.
  ASSERT_EQ(Post({.wr_id = 11,
                  .opcode = SendOpcode::kSendWithInvalidate,
                  .invalidate_rkey = window.rkey},
                 5),
            0);
  const auto again = All();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0][0], 0x37);
  Deliver(again);
  EXPECT_EQ(b.Received(), "");
  EXPECT_EQ(b.qp->state(), QpState::kRts);
}

TEST_F(UcTest, RejectsUnsupportedOperations) {
  for (const SendOpcode opcode :
       {SendOpcode::kRdmaRead, SendOpcode::kCompareSwap, SendOpcode::kFetchAdd,
        SendOpcode::kFlush, SendOpcode::kAtomicWrite}) {
    EXPECT_EQ(Post({.opcode = opcode}, 8), EINVAL);
    EXPECT_EQ(a.qp->CheckSend({.opcode = opcode}), EINVAL);
  }
  EXPECT_TRUE(All().empty());
}

TEST_F(UcTest, DrainsAtTheEndOfAMessage) {
  ASSERT_EQ(Send(10, 100'000), 0);
  ASSERT_EQ(Send(11, 100), 0);
  EXPECT_FALSE(Burst().empty());
  a.attributes.en_sqd_async_notify = true;
  a.attributes.state = QpState::kSqd;
  ASSERT_EQ(a.qp->Modify(a.attributes, kQpState | kQpEnSqdAsyncNotify, a.now),
            0);
  EXPECT_TRUE(a.qp->attributes().sq_draining);
  EXPECT_TRUE(a.events.Take().empty());
  All();
  EXPECT_EQ(a.Sent(), "10 ok 0");
  EXPECT_FALSE(a.qp->attributes().sq_draining);
  EXPECT_EQ(a.events.Take(), std::vector<QpEvent>{QpEvent::kSqDrained});
  ASSERT_EQ(a.Modify(QpState::kRts), 0);
  All();
  EXPECT_EQ(a.Sent(), "11 ok 0");
}

// One window per interval, a smaller one after a CNP.
TEST_F(UcTest, ThePathSetsThePace) {
  const auto seconds_for = [this](int messages) {
    const Time start = a.now;
    for (int i = 0; i < messages; ++i) {
      EXPECT_EQ(Write(0, 64 * 1024, 0), 0);
      All();
    }
    EXPECT_EQ(Write(0, 1, 0), 0);
    All();
    return a.now - start;
  };
  const Time expected = 16 * 64 * 1024 * Path::kPaceInterval /
                        static_cast<Time>(Path::kInitialWindow);
  const Time undisturbed = seconds_for(16);
  EXPECT_GT(undisturbed, expected);
  EXPECT_LT(undisturbed, 3 * expected);
  wire::Headers cnp;
  cnp.bth.opcode = wire::kOpcodeCnp;
  cnp.bth.becn = true;
  cnp.bth.dest_qpn = a.qp->qpn();
  const Time interval_before = a.qp->path()->window();
  wire::PacketView view;
  Bytes packet(wire::kBthSize + wire::kCnpPayloadSize + wire::kIcrcSize);
  wire::EmitHeaders(cnp, packet.data());
  ASSERT_EQ(wire::PacketView::Parse(packet, &view), wire::ParseError::kOk);
  const Datagram datagram;
  a.qp->OnPacket(
      {.packet = &view, .datagram = &datagram, .origin = Origin::kPeerAddress},
      a.now);
  EXPECT_LT(a.qp->path()->window(), interval_before);
  EXPECT_EQ(a.qp->counters().cnps_received, 1u);
}

// A packet from the peer's address with another port is dropped, unless the
// peer has been silent for a while and two such packets in turn are expected
// ones.
TEST_F(UcTest, AnotherPort) {
  constexpr uint16_t kPort = 0xc001;
  constexpr uint16_t kOther = 0x8888;
  for (int i = 0; i < 8; ++i) ASSERT_EQ(Receive(i, 100, i * 100), 0);
  for (int i = 0; i < 64; ++i) ASSERT_EQ(Send(0, 4), 0);
  const std::vector<Bytes> packets = All();
  ASSERT_EQ(packets.size(), 64u);
  Deliver(packets[0]);
  EXPECT_EQ(b.Received(), "0 ok 4");
  for (int i = 1; i < 64; ++i) DeliverFrom(kOther, packets[i]);
  EXPECT_EQ(b.qp->counters().dropped_port, 63u);
  EXPECT_EQ(b.Received(), "");
  DeliverFrom(kPort, packets[1]);
  EXPECT_EQ(b.Received(), "1 ok 4");

  // Too far ahead, and late.
  b.now += PeerPort::kSilence;
  Bytes ahead = packets[2];
  wire::StoreBe24(ahead.data() + 9, wire::PsnAdd(kPsn, 2 + 1024));
  DeliverFrom(kOther, ahead);
  b.now += 2 * PeerPort::kSilence;
  DeliverFrom(kOther, packets[0]);
  EXPECT_EQ(b.qp->counters().dropped_port, 65u);
  b.now += 4 * PeerPort::kSilence - 1;
  DeliverFrom(kOther, packets[5]);
  EXPECT_EQ(b.Received(), "");
  b.now += 1;
  DeliverFrom(kOther, packets[5]);
  EXPECT_EQ(b.Received(), "");
  b.now += PeerPort::kSilence;
  DeliverFrom(kOther, packets[6]);
  EXPECT_EQ(b.Received(), "2 ok 4");
  DeliverFrom(kPort, packets[7]);
  EXPECT_EQ(b.Received(), "");
}

// A stranger at the peer's address that sends before the peer looks like a peer
// after many losses. The peer's first packets then identify the peer.
TEST_F(UcTest, AnEarlierStrangerDoesNotBlockThePeer) {
  constexpr uint16_t kOther = 0x8888;
  uint64_t dropped = 0;
  for (const uint32_t ahead : {0x300000u, 0xfe0000u, 2000u}) {
    for (int i = 0; i < 9; ++i) ASSERT_EQ(Receive(i, 100, i * 100), 0);
    for (int i = 0; i < 4; ++i) ASSERT_EQ(Send(0, 4), 0);
    const std::vector<Bytes> packets = All();
    ASSERT_EQ(packets.size(), 4u);
    const auto forged = [&](uint32_t i) {
      Bytes packet = packets[0];
      wire::StoreBe24(packet.data() + 9, wire::PsnAdd(kPsn, ahead + i));
      return packet;
    };
    for (int i = 0; i < 3; ++i) DeliverFrom(kOther, forged(i));
    EXPECT_EQ(b.Received(), "0 ok 4; 1 ok 4; 2 ok 4") << ahead;
    // The first one is lost.
    Deliver(packets[1]);
    Deliver(packets[2]);
    EXPECT_EQ(b.Received(), "3 ok 4; 4 ok 4") << ahead;
    // From then on the stranger is dropped, even with the peer's first PSNs.
    DeliverFrom(kOther, forged(3));
    DeliverFrom(kOther, packets[3]);
    EXPECT_EQ(b.Received(), "") << ahead;
    Deliver(packets[3]);
    EXPECT_EQ(b.Received(), "5 ok 4") << ahead;
    dropped += 2;
    EXPECT_EQ(b.qp->counters().dropped_port, dropped) << ahead;
    // Both start again.
    for (End* end : {&a, &b}) {
      ASSERT_EQ(end->Modify(QpState::kReset), 0);
      ASSERT_EQ(BringUp(*end->qp, end->attributes, end->now), 0);
    }
  }
}

// A peer whose first packets were lost reaches its first PSNs when they wrap.
TEST_F(UcTest, APeerHeardLateWrapsAround) {
  constexpr uint16_t kPort = 0xc001;
  for (int i = 0; i < 8; ++i) ASSERT_EQ(Receive(i, 2000, i * 2000), 0);
  ASSERT_EQ(Send(0, 4), 0);
  ASSERT_EQ(Send(1, 4), 0);
  ASSERT_EQ(Send(2, 3 * kMtu), 0);
  std::vector<Bytes> packets = All();
  ASSERT_EQ(packets.size(), 5u);
  const auto at = [&](size_t i, uint32_t psn) {
    wire::StoreBe24(packets[i].data() + 9, psn & wire::kPsnMask);
    return packets[i];
  };
  DeliverFrom(kPort, at(0, kPsn + 0x800000));
  DeliverFrom(kPort, at(1, kPsn + 0x800001));
  EXPECT_EQ(b.Received(), "0 ok 4; 1 ok 4");
  DeliverFrom(kPort, at(2, kPsn - 1));
  DeliverFrom(kPort, at(3, kPsn));
  DeliverFrom(kPort, at(4, kPsn + 1));
  EXPECT_EQ(b.Received(), "2 ok 768");
}

// A message arrives whole, in order and once, or not at all.
TEST_F(UcTest, LossDuplicationAndReorderingNeverTearAMessage) {
  std::mt19937 random(7);
  const auto percent = [&random](unsigned p) { return random() % 100 < p; };
  constexpr uint32_t kSlot = 4096;
  uint64_t next_id = 1;
  uint64_t last_id = 0;
  uint64_t delivered = 0;
  std::deque<uint64_t> slots;
  for (int round = 0; round < 500; ++round) {
    while (slots.size() < 32) {
      const uint64_t slot = next_id % 200;
      ASSERT_EQ(Receive(slot, kSlot, slot * kSlot), 0);
      slots.push_back(slot);
      ++next_id;
    }
    for (int i = 0; i < 4; ++i) {
      // A message starts with its number, which determines the rest.
      const uint64_t id = static_cast<uint64_t>(round) * 4 + i + 1;
      const uint32_t length = 8 + random() % (kSlot - 8);
      const uint64_t at = static_cast<uint64_t>(i) * kSlot;
      uint8_t* const bytes = a.region->bytes.data() + at;
      for (uint32_t k = 8; k < length; ++k) {
        bytes[k] = static_cast<uint8_t>(id * 31 + k);
      }
      std::memcpy(bytes, &id, 8);
      ASSERT_EQ(Send(id, length, at), 0);
    }
    std::vector<Bytes> packets;
    for (const Bytes& packet : All()) {
      if (percent(3)) continue;
      packets.push_back(packet);
      if (percent(2)) packets.push_back(packet);
    }
    for (size_t i = 1; i < packets.size(); ++i) {
      if (percent(2)) std::swap(packets[i], packets[i - 1]);
    }
    Deliver(packets);
    for (const Completion& c : b.receives.Take()) {
      ASSERT_EQ(c.status, WcStatus::kSuccess);
      ASSERT_EQ(c.wr_id, slots.front());
      slots.pop_front();
      const uint8_t* const bytes = b.region->bytes.data() + c.wr_id * kSlot;
      uint64_t id;
      std::memcpy(&id, bytes, 8);
      ASSERT_GT(id, last_id);
      last_id = id;
      ++delivered;
      for (uint32_t k = 8; k < c.byte_len; ++k) {
        ASSERT_EQ(bytes[k], static_cast<uint8_t>(id * 31 + k));
      }
    }
    ASSERT_EQ(a.sends.Take().size(), 4u);
  }
  EXPECT_GT(delivered, 800u);
  EXPECT_LT(delivered, 2000u);
}

}  // namespace
}  // namespace transport
