// The reports of a peer like ours (UcFlight), packet by packet.
#include <algorithm>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "transport/congestion/path.h"
#include "transport/testing/uc_fixture.h"
#include "transport/uc/uc_flight.h"
#include "wire/packet.h"
#include "wire/psn.h"

namespace transport {
namespace {

constexpr uint8_t kReport = 0x31;
// Cost of a packet of the path MTU, and the number of packets per request for a
// report.
constexpr uint64_t kCost = 256 + Path::kPacketOverhead;
constexpr size_t kAskEvery = Path::kInitialWindow / 4 / kCost;
constexpr size_t kWindow = Path::kInitialWindow / kCost;

class UcLoopTest : public UcFixture {
 protected:
  static bool Asks(const Bytes& packet) {
    return packet[8] == wire::kUcReportRequest;
  }
  static uint32_t PsnOf(const Bytes& packet) {
    return wire::LoadBe24(packet.data() + 9);
  }
  // Indices of the packets that request a report.
  static std::vector<size_t> Asking(const std::vector<Bytes>& packets) {
    std::vector<size_t> asking;
    for (size_t i = 0; i < packets.size(); ++i) {
      if (Asks(packets[i])) asking.push_back(i);
    }
    return asking;
  }

  // Posts a message of `packets` full packets.
  void WritePackets(size_t packets) {
    ASSERT_EQ(Write(0, static_cast<uint32_t>(packets * kMtu), 0), 0);
  }
  // All packets that a sends at once.
  std::vector<Bytes> Bursts() {
    std::vector<Bytes> all;
    for (;;) {
      const std::vector<Bytes> some = Burst();
      if (some.empty()) return all;
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  void DeliverPart(const std::vector<Bytes>& packets, size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) Deliver(packets[i]);
  }
  // The reports that b sends.
  std::vector<Bytes> Reports() { return BurstOf(b); }
  // b reports after `rtt`.
  void Report(Time rtt = 0) {
    const std::vector<Bytes> reports = Reports();
    ASSERT_EQ(reports.size(), 1u);
    a.now += rtt;
    Carry(b, a, reports[0]);
  }
  void CloseLoop() {
    WritePackets(kAskEvery);
    Deliver(All());
    Report(50 * kMicrosecond);
    ASSERT_EQ(a.qp->path()->smoothed_rtt(), 50 * kMicrosecond);
  }
  // A report of `psn` that b might have sent.
  Bytes Forged(uint32_t psn, uint8_t syndrome = 0x1f) const {
    wire::Headers headers;
    headers.bth.opcode = kReport;
    headers.bth.dest_qpn = a.qp->qpn();
    headers.bth.psn = psn;
    headers.aeth.syndrome = syndrome;
    Bytes packet(wire::kAcknowledgeSize);
    wire::EmitHeaders(headers, packet.data());
    return packet;
  }
  void CarryForged(const Bytes& packet, uint16_t port = 0xc001) {
    CarryFrom(port, b, a, packet);
  }
  uint64_t in_flight() const { return a.qp->path()->in_flight(); }
  Time Next() const { return a.endpoint.NextTimeout(); }
  // Runs the next timer of a.
  void RunTimer() {
    ASSERT_NE(Next(), kNever);
    a.now = std::max(a.now, Next());
    a.endpoint.OnTimer(a.now);
  }
};

TEST_F(UcLoopTest, RequestsOneReportPerQuarterOfTheWindow) {
  WritePackets(kWindow);
  const std::vector<Bytes> packets = All();
  ASSERT_EQ(packets.size(), kWindow);
  EXPECT_EQ(Asking(packets),
            (std::vector<size_t>{kAskEvery - 1, 2 * kAskEvery - 1,
                                 3 * kAskEvery - 1, 4 * kAskEvery - 1}));
  for (const Bytes& packet : packets) {
    EXPECT_TRUE(packet[8] == 0 || packet[8] == wire::kUcReportRequest);
  }
}

TEST_F(UcLoopTest, OneReportPerBatchForTheLastRequest) {
  WritePackets(2 * kAskEvery + 5);
  const std::vector<Bytes> packets = All();
  Deliver(packets);
  const std::vector<Bytes> reports = Reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(Reports().empty());
  EXPECT_EQ(reports[0].size(), 20u);
  wire::PacketView view;
  ASSERT_EQ(wire::PacketView::Parse(reports[0], &view), wire::ParseError::kOk);
  EXPECT_EQ(view.opcode(), kReport);
  EXPECT_STREQ(view.info().name, "UC_ACKNOWLEDGE");
  EXPECT_EQ(view.bth().dest_qpn, a.qp->qpn());
  EXPECT_EQ(view.bth().psn, wire::PsnAdd(kPsn, 2 * kAskEvery - 1));
  EXPECT_FALSE(view.bth().ack_req);
  EXPECT_EQ(view.aeth().syndrome, 0x1f);
  EXPECT_EQ(view.aeth().msn, 0u);
}

// Nothing counts in the window until the peer has reported; then everything
// does.
TEST_F(UcLoopTest, AReportClosesTheLoop) {
  WritePackets(kAskEvery);
  Deliver(All());
  EXPECT_EQ(in_flight(), 0u);
  EXPECT_EQ(Next(), kNever);
  Report(30 * kMicrosecond);
  EXPECT_EQ(a.qp->path()->smoothed_rtt(), 30 * kMicrosecond);

  WritePackets(2 * kWindow);
  const std::vector<Bytes> packets = Bursts();
  EXPECT_EQ(packets.size(), kWindow);
  EXPECT_EQ(in_flight(), Path::kInitialWindow);
  EXPECT_EQ(a.Sent(), "0 ok 0");  // from the first message
  // The first quarter arrives: another quarter is sent.
  const std::vector<size_t> asking = Asking(packets);
  ASSERT_GE(asking.size(), 4u);
  ASSERT_EQ(asking[0], kAskEvery - 1);
  EXPECT_EQ(asking.back(), kWindow - 1);
  DeliverPart(packets, 0, kAskEvery);
  Report(40 * kMicrosecond);
  EXPECT_EQ(in_flight(), Path::kInitialWindow * 3 / 4);
  EXPECT_EQ(Bursts().size(), kAskEvery);
  // The second report is lost; the third one covers both.
  DeliverPart(packets, kAskEvery, asking[1] + 1);
  EXPECT_EQ(Reports().size(), 1u);
  DeliverPart(packets, asking[1] + 1, asking[2] + 1);
  Report();
  EXPECT_EQ(in_flight(), (kWindow + kAskEvery - 1 - asking[2]) * kCost);
  EXPECT_TRUE(a.endpoint.HasTransmit());
}

// After a timeout all bytes are returned, and one packet at a time requests a
// report.
TEST_F(UcLoopTest, APeerThatStopsReportingIsPaced) {
  CloseLoop();
  for (int i = 0; i < 40; ++i) WritePackets(16);
  EXPECT_EQ(Bursts().size(), kWindow);
  const Time first = a.qp->path()->ProbeTimeout();
  EXPECT_EQ(Next(), a.now + first);
  for (int timeouts = 1; timeouts <= UcFlight::kMaxTimeouts; ++timeouts) {
    RunTimer();
    EXPECT_EQ(in_flight(), 0u);
    const std::vector<Bytes> packets = Bursts();
    ASSERT_EQ(packets.size(), 1u) << timeouts;
    EXPECT_TRUE(Asks(packets[0]));
    EXPECT_EQ(in_flight(), kCost);
    EXPECT_EQ(Next(), a.now + (first << timeouts));
  }
  RunTimer();
  // Only the pace limits from here on.
  const Time begin = a.now;
  size_t sent = 0;
  while (a.endpoint.HasTransmit() || Next() != kNever) {
    if (!a.endpoint.HasTransmit()) RunTimer();
    sent += Bursts().size();
    EXPECT_EQ(in_flight(), 0u);
  }
  EXPECT_EQ(sent, 40 * 16 - kWindow - UcFlight::kMaxTimeouts);
  EXPECT_GT(a.now - begin, Path::kPaceInterval);
  EXPECT_LT(a.now - begin, 3 * Path::kPaceInterval);
}

// Its bytes take the path's window, which may be small, from others.
TEST_F(UcLoopTest, ASilentPeerIsGivenUpSoonDespiteLongRoundTrips) {
  WritePackets(kAskEvery);
  Deliver(All());
  Report(10 * kSecond);  // the peer was stopped
  ASSERT_GT(a.qp->path()->ProbeTimeout(), kSecond);
  WritePackets(2 * kWindow);
  EXPECT_EQ(Bursts().size(), kWindow);
  const Time begin = a.now;
  for (int timeouts = 0; timeouts <= UcFlight::kMaxTimeouts; ++timeouts) {
    ASSERT_NE(in_flight(), 0u) << timeouts;
    RunTimer();
    EXPECT_EQ(in_flight(), 0u) << timeouts;
    Bursts();
  }
  EXPECT_EQ(in_flight(), 0u);
  EXPECT_LE(a.now - begin, 2 * kSecond);
}

TEST_F(UcLoopTest, ALateReportEndsTheSilence) {
  CloseLoop();
  WritePackets(2 * kWindow);
  const std::vector<Bytes> packets = Bursts();
  RunTimer();
  EXPECT_EQ(Bursts().size(), 1u);
  EXPECT_TRUE(Bursts().empty());
  // Bytes that were returned are not returned again.
  Deliver(packets);
  Report();
  EXPECT_EQ(in_flight(), kCost);
  EXPECT_GT(Bursts().size(), kWindow / 2);
}

// Hardware and the kernel's rxe: asked now and then, and always paced.
TEST_F(UcLoopTest, APeerThatNeverReportsIsPaced) {
  size_t asked = 0;
  const Time begin = a.now;
  for (int i = 0; i < 100; ++i) {
    WritePackets(kWindow);
    asked += Asking(All()).size();
    EXPECT_EQ(in_flight(), 0u);
    EXPECT_EQ(Next(), kNever);
  }
  const Time took = a.now - begin;
  EXPECT_GT(took, 90 * Path::kPaceInterval);
  EXPECT_LT(took, UcFlight::kAskInterval);
  EXPECT_EQ(asked, UcFlight::kMaxAsked);
  // Ever more rarely, but never stops.
  Time interval = UcFlight::kAskInterval;
  for (int i = 0; i < 20; ++i) {
    a.now += interval;
    asked = 0;
    for (int j = 0; j < 10; ++j) {
      WritePackets(kWindow);
      asked += Asking(All()).size();
    }
    EXPECT_EQ(asked, UcFlight::kMaxAsked) << i;
    if (i < UcFlight::kMaxDoublings) interval *= 2;
    a.now += interval / 2;
    WritePackets(kWindow);
    EXPECT_EQ(Asking(All()).size(), 0u) << i;
  }
  // After one report it is asked as often as at first.
  a.now += interval;
  WritePackets(kWindow);
  Deliver(All());
  Report();
  WritePackets(kWindow);
  EXPECT_GT(Asking(Bursts()).size(), 0u);
}

// The last packet requests a report if much is in flight. Otherwise the bytes
// are returned by timeout, and the next packet requests a report.
TEST_F(UcLoopTest, ATailWithoutARequest) {
  CloseLoop();
  WritePackets(3);
  EXPECT_TRUE(Asking(Bursts()).empty());
  EXPECT_EQ(in_flight(), 3 * kCost);
  RunTimer();
  EXPECT_EQ(in_flight(), 0u);
  EXPECT_EQ(Next(), kNever);
  WritePackets(kAskEvery + 2);
  const std::vector<Bytes> packets = Bursts();
  EXPECT_EQ(Asking(packets),
            (std::vector<size_t>{0, kAskEvery, kAskEvery + 1}));
  Deliver(packets);
  Report();
  EXPECT_EQ(in_flight(), 0u);
  EXPECT_EQ(Next(), kNever);
}

TEST_F(UcLoopTest, ForgedReportsAreDropped) {
  CloseLoop();
  WritePackets(kWindow);
  const std::vector<Bytes> packets = Bursts();
  const uint32_t asked = PsnOf(packets[kAskEvery - 1]);
  ASSERT_TRUE(Asks(packets[kAskEvery - 1]));
  const uint64_t before = in_flight();
  // In flight, but no request; already reported; never sent.
  CarryForged(Forged(wire::PsnAdd(asked, 1)));
  CarryForged(Forged(wire::PsnAdd(kPsn, kAskEvery - 1)));
  CarryForged(Forged(wire::PsnAdd(asked, 1000)));
  // A NAK.
  CarryForged(Forged(asked, 0x60));
  EXPECT_EQ(a.qp->counters().dropped_response, 4u);
  // From another port; from another host.
  CarryForged(Forged(asked), 0x9999);
  EXPECT_EQ(a.qp->counters().dropped_port, 1u);
  Bytes packet = Forged(asked);
  const wire::IpAddress other = *wire::IpAddress::Parse("10.0.0.3");
  wire::IcrcFlow(other, a.source, 0xc001, wire::kRoceUdpPort).Store(packet, 0);
  a.endpoint.OnDatagram({.bytes = packet,
                         .source = other,
                         .destination = a.source,
                         .source_port = 0xc001},
                        a.now);
  EXPECT_EQ(a.qp->counters().dropped_source, 1u);
  EXPECT_EQ(in_flight(), before);
  // The true report, and its duplicate.
  CarryForged(Forged(asked));
  EXPECT_EQ(in_flight(), before - kAskEvery * kCost);
  CarryForged(Forged(asked));
  EXPECT_EQ(a.qp->counters().dropped_response, 5u);
  EXPECT_EQ(in_flight(), before - kAskEvery * kCost);
}

TEST_F(UcLoopTest, ReportsGoOnlyToThePeerOnRequest) {
  WritePackets(2 * kAskEvery);
  const std::vector<Bytes> packets = All();
  const auto silent = [this] {
    return !b.endpoint.HasTransmit() && b.endpoint.NextTimeout() == kNever;
  };
  DeliverPart(packets, 0, kAskEvery - 1);
  EXPECT_TRUE(silent());
  // The mark alone, and AckReq alone, which rxe of old kernels sends.
  for (const uint8_t bits : {0x01, 0x80}) {
    Bytes packet = packets[kAskEvery - 1];
    packet[8] = bits;
    wire::StoreBe24(packet.data() + 9, wire::PsnAdd(kPsn, kAskEvery - 1));
    DeliverFrom(0x8888, packet);
    EXPECT_TRUE(silent());
  }
  DeliverFrom(0x8888, packets[kAskEvery - 1]);
  EXPECT_EQ(b.qp->counters().dropped_port, 3u);
  EXPECT_TRUE(silent());
  Bytes unmarked = packets[kAskEvery - 1];
  unmarked[8] = wire::kAckReqBit;
  DeliverFrom(0xc001, unmarked);
  EXPECT_TRUE(silent());
  // Neither duplicates nor late packets are answered.
  Deliver(packets[kAskEvery - 1]);
  EXPECT_EQ(b.qp->counters().duplicates, 1u);
  EXPECT_TRUE(silent());
  DeliverPart(packets, kAskEvery, packets.size());
  EXPECT_EQ(Reports().size(), 1u);
  EXPECT_TRUE(silent());
}

// Until the port is known, a packet far ahead may come from anyone.
TEST_F(UcLoopTest, AStrangerGetsNoReport) {
  WritePackets(kAskEvery);
  Bytes packet = All().back();
  wire::StoreBe24(packet.data() + 9, wire::PsnAdd(kPsn, 5000));
  DeliverFrom(0x8888, packet);
  EXPECT_FALSE(b.endpoint.HasTransmit());
}

TEST_F(UcLoopTest, LossesShrinkTheWindow) {
  CloseLoop();
  WritePackets(kWindow);
  std::vector<Bytes> packets = Bursts();
  packets.erase(packets.begin() + 3, packets.begin() + 5);
  Deliver(packets);
  const std::vector<Bytes> reports = Reports();
  ASSERT_EQ(reports.size(), 1u);
  wire::PacketView view;
  ASSERT_EQ(wire::PacketView::Parse(reports[0], &view), wire::ParseError::kOk);
  EXPECT_EQ(view.aeth().msn, 2u);
  a.now += kMillisecond;
  Carry(b, a, reports[0]);
  EXPECT_TRUE(a.qp->path()->has_lost());
  EXPECT_LT(a.qp->path()->window(), Path::kInitialWindow);
  EXPECT_EQ(in_flight(), 0u);
  // The next packets all arrive; the window grows to its former size.
  for (int i = 0; i < 100; ++i) {
    WritePackets(kWindow / 2);
    Deliver(Bursts());
    Report(kMillisecond);
  }
  EXPECT_EQ(a.qp->path()->window(), Path::kInitialWindow);
}

TEST_F(UcLoopTest, CongestionNotificationShrinksTheWindow) {
  CloseLoop();
  wire::Headers cnp;
  cnp.bth.opcode = wire::kOpcodeCnp;
  cnp.bth.becn = true;
  cnp.bth.dest_qpn = a.qp->qpn();
  Bytes packet(wire::kBthSize + wire::kCnpPayloadSize + wire::kIcrcSize);
  wire::EmitHeaders(cnp, packet.data());
  CarryForged(packet);
  const uint64_t window = a.qp->path()->window();
  EXPECT_LT(window, Path::kInitialWindow);
  WritePackets(2 * kWindow);
  EXPECT_EQ(Bursts().size(), window / kCost);
}

TEST_F(UcLoopTest, LeavingReturnsTheBytesInFlight) {
  // Another queue pair on the path waits for its window.
  QpConfig config = a.qp->config();
  config.qpn = 0x1112;
  std::unique_ptr<QueuePair> other = MakeQueuePair(a.endpoint, config);
  ASSERT_EQ(BringUp(*other, a.attributes, a.now), 0);
  const Path* const path = other->path();
  for (const QpState to : {QpState::kErr, QpState::kSqd, QpState::kReset}) {
    CloseLoop();
    WritePackets(kWindow);
    EXPECT_EQ(Bursts().size(), kWindow);
    EXPECT_EQ(path->in_flight(), Path::kInitialWindow);
    ASSERT_EQ(a.Modify(to), 0);
    EXPECT_EQ(path->in_flight(), 0u);
    EXPECT_EQ(Next(), kNever);
    ASSERT_EQ(a.Modify(QpState::kReset), 0);
    ASSERT_EQ(b.Modify(QpState::kReset), 0);
    a.attributes.state = b.attributes.state = QpState::kReset;
    ASSERT_EQ(BringUp(*a.qp, a.attributes, a.now), 0);
    ASSERT_EQ(BringUp(*b.qp, b.attributes, b.now), 0);
  }
  CloseLoop();
  WritePackets(kWindow);
  Bursts();
  EXPECT_EQ(path->in_flight(), Path::kInitialWindow);
  a.qp.reset();
  EXPECT_EQ(path->in_flight(), 0u);
}

// The new peer may not report. It is not sent a report that the old one
// requested.
TEST_F(UcLoopTest, AnotherPeerMayNotReport) {
  CloseLoop();
  // b has requested a report too.
  const Sge sge = {kVa, kAskEvery * kMtu, b.region->lkey};
  ASSERT_EQ(b.qp->PostSend({.opcode = SendOpcode::kRdmaWrite,
                            .sges = {&sge, 1},
                            .remote_addr = kVa,
                            .rkey = a.region->rkey},
                           b.now),
            0);
  while (!a.endpoint.HasTransmit()) {
    ASSERT_TRUE(b.endpoint.HasTransmit() || b.endpoint.NextTimeout() != kNever);
    if (!b.endpoint.HasTransmit()) {
      b.now = b.endpoint.NextTimeout();
      b.endpoint.OnTimer(b.now);
    }
    for (const Bytes& packet : BurstOf(b)) Carry(b, a, packet);
  }
  ASSERT_EQ(a.Modify(QpState::kSqd), 0);
  a.attributes.av.destination = *wire::IpAddress::Parse("10.0.0.3");
  ASSERT_EQ(a.qp->Modify(a.attributes, kQpAv, a.now), 0);
  EXPECT_TRUE(Burst().empty());
  ASSERT_EQ(a.Modify(QpState::kRts), 0);
  // It is paced, and asked as at first.
  for (int i = 0; i < 2; ++i) {
    WritePackets(kWindow);
    const std::vector<Bytes> packets = All();
    EXPECT_EQ(packets.size(), kWindow);
    EXPECT_EQ(Asking(packets).size(), 4u);
    EXPECT_EQ(in_flight(), 0u);
    EXPECT_EQ(Next(), kNever);
  }
  WritePackets(kWindow);
  EXPECT_TRUE(Asking(All()).empty());
}

// The same path may still mean another peer.
TEST_F(UcLoopTest, TheSameAddressVectorAgain) {
  CloseLoop();
  ASSERT_EQ(a.Modify(QpState::kSqd), 0);
  ASSERT_EQ(a.qp->Modify(a.attributes, kQpAv, a.now), 0);
  ASSERT_EQ(a.Modify(QpState::kRts), 0);
  WritePackets(3);
  Bursts();
  EXPECT_EQ(in_flight(), 0u);
  WritePackets(kAskEvery - 3);
  const std::vector<Bytes> packets = All();
  Deliver(packets);
  Report();
  WritePackets(kAskEvery);
  Bursts();
  EXPECT_EQ(in_flight(), kAskEvery * kCost);
}

TEST_F(UcLoopTest, ResetForgetsWhetherThePeerReports) {
  CloseLoop();
  ASSERT_EQ(a.Modify(QpState::kReset), 0);
  ASSERT_EQ(BringUp(*a.qp, a.attributes, a.now), 0);
  for (int i = 0; i < 2; ++i) {
    WritePackets(kWindow);
    EXPECT_EQ(Asking(All()).size(), 4u);
    EXPECT_EQ(in_flight(), 0u);
    EXPECT_EQ(Next(), kNever);
  }
}

// Absurd reports of the real peer count within bounds: the sender neither
// stalls nor exceeds the maximum window.
TEST_F(UcLoopTest, AbsurdReports) {
  CloseLoop();
  uint32_t missed = 0;
  uint8_t buffer = 0;
  for (int i = 0; i < 300; ++i) {
    WritePackets(kWindow);
    int turns = 0;
    while (a.qp->Report().send_queued != 0 || in_flight() != 0) {
      ASSERT_LT(++turns, 1000) << i;
      const std::vector<Bytes> packets = Bursts();
      EXPECT_LE(in_flight(), Path::kMaxWindow + kCost);
      const std::vector<size_t> asking = Asking(packets);
      if (asking.empty()) RunTimer();
      for (const size_t at : asking) {
        // Every possible receive buffer size, and losses of every size.
        Bytes answer = Forged(PsnOf(packets[at]), buffer++ % 32);
        missed += 1u << i % 24;
        wire::StoreBe24(answer.data() + wire::kBthSize + 1,
                        missed & wire::kPsnMask);
        a.now += 10 * kMicrosecond;
        CarryForged(answer);
        EXPECT_GE(a.qp->path()->window(), kCost);
        EXPECT_LE(a.qp->path()->window(), Path::kMaxWindow);
      }
    }
  }
  EXPECT_EQ(a.qp->counters().dropped_response, 0u);
  EXPECT_EQ(a.qp->state(), QpState::kRts);
}

// The window grows beyond its initial value up to what the peer's receive
// buffer holds.
TEST_F(UcLoopTest, TheReceiveBufferBoundsTheWindow) {
  const struct {
    uint64_t buffer;
    uint8_t syndrome;
    uint64_t window;
  } kCases[] = {{1023, 0x1f, Path::kInitialWindow},
                {425'984, 0x08, Path::kInitialWindow},
                {1 << 20, 0x0a, (1 << 20) * 2 / 5},
                {2 * 8 << 20, 0x0e, Path::kMaxWindow}};
  for (const auto& [buffer, syndrome, window] : kCases) {
    EXPECT_EQ(UcFlight::Report(buffer, 0).syndrome, syndrome);
  }
  b.endpoint.NoteReceiveBuffer(16 << 20);
  b.endpoint.NoteReceiveBuffer(0);
  b.endpoint.NoteReceiveBuffer(1 << 20);
  b.endpoint.NoteReceiveBuffer(2 << 20);
  CloseLoop();
  for (int i = 0; i < 200; ++i) {
    WritePackets(a.qp->path()->window() / kCost);
    Deliver(Bursts());
    Report(kMillisecond);
  }
  EXPECT_EQ(a.qp->path()->window(), (1u << 20) * 2 / 5);
}

// Both ends send: neither reports nor requests starve.
TEST_F(UcLoopTest, ReportsAndRequestsDoNotStarve) {
  CloseLoop();
  const Sge sge = {kVa, 256 * kMtu, b.region->lkey};
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(b.qp->PostSend({.wr_id = 1,
                              .opcode = SendOpcode::kRdmaWrite,
                              .flags = kSendSignaled,
                              .sges = {&sge, 1},
                              .remote_addr = kVa,
                              .rkey = a.region->rkey},
                             b.now),
              0);
  }
  WritePackets(kWindow);
  Deliver(Bursts());
  size_t bursts = 0;
  for (bool answered = false; !answered; ++bursts) {
    const std::vector<Bytes> packets = BurstOf(b);
    ASSERT_FALSE(packets.empty());
    answered = packets.back()[0] == kReport;
    for (const Bytes& packet : packets) Carry(b, a, packet);
  }
  EXPECT_LE(bursts, 2u);
  EXPECT_EQ(in_flight(), 0u);
}

}  // namespace
}  // namespace transport
