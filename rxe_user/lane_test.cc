// A lane between a port and a helper that the test plays, on a virtual clock:
// whoever leaves work must have somebody who does it.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <functional>
#include <vector>

#include "rxe_user/lane_impl.h"
#include "rxe_user/testing/node.h"
#include "transport/queue_pair.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

using transport::kMicrosecond;
using transport::kMillisecond;
using transport::kNever;
using transport::Time;

Time now = transport::kSecond;
Time Clock() { return now; }

class FakePort final : public Port {
 public:
  const char* name() const override { return "fake"; }
  absl::Status AddReceiver(const LocalAddress&, int) override {
    return absl::OkStatus();
  }
  bool HasReceiver(const wire::IpAddress&) const override { return true; }
  absl::StatusOr<uint16_t> SourcePort(const LocalAddress&, uint32_t) override {
    return 0xc000;
  }
  std::vector<int> ReceiveDescriptors() const override { return {}; }
  std::span<const transport::Train> Receive(bool) override {
    received_ = std::exchange(on_the_wire, {});
    if (received_.empty()) return std::exchange(arrivals, {});
    received_arrivals_.clear();
    for (const Datagrams& d : received_) {
      received_arrivals_.push_back({d.bytes, d.segment_size, d.source,
                                    d.destination, d.source_port, 0, 64});
    }
    return received_arrivals_;
  }
  bool more() const override { return false; }
  uint64_t TakeOverflow() override { return 0; }
  transport::Burst* NextBurst() override {
    return is_blocked ? nullptr : &burst_;
  }
  void Queue() override {
    packets.push_back(burst_.segments());
    if (peer != nullptr) {
      const transport::AddressVector& av = burst_.flow()->av;
      peer->on_the_wire.push_back(
          {{burst_.bytes().begin(), burst_.bytes().end()},
           burst_.segment_size(),
           av.source,
           av.destination,
           av.source_port});
    }
    if (block_next) is_blocked = true;
    now += send_cost;
  }
  void Flush() override {
    if (!block_next) is_blocked = false;
  }
  bool blocked() const override { return is_blocked; }
  const PortCounters& counters() const override { return counters_; }
  void AbandonInChild() override {}

  struct Datagrams {
    std::vector<uint8_t> bytes;
    size_t segment_size;
    wire::IpAddress source, destination;
    uint16_t source_port;
  };

  std::span<const transport::Train> arrivals;
  FakePort* peer = nullptr;           // gets what is sent here
  std::deque<Datagrams> on_the_wire;  // what the peer has sent
  std::vector<int> packets;           // of each burst that was sent
  Time send_cost = 0;                 // how long sending a burst takes
  bool block_next = false;
  bool is_blocked = false;

 private:
  std::deque<Datagrams> received_;
  std::vector<transport::Train> received_arrivals_;
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(65507);
  transport::Burst burst_{buffer_, 128};
  PortCounters counters_;
};

class FakeHelper final : public LaneHelper {
 public:
  void Wake() override { ++wakes; }
  void AddSocket(int, int, bool) override {}
  void Arm(int, bool on) override {
    ++arms;
    armed = on;
  }
  int wakes = 0;
  int arms = 0;  // calls, each of which is a system call
  bool armed = false;
};

class FakeSlot final : public Slot {
 public:
  uint8_t number() const override { return 5; }
  absl::StatusOr<int> OpenAddress(const wire::IpAddress&, uint32_t) override {
    return -1;
  }
  int fd() const override { return -1; }
  void OnReadable(const std::function<void(const Stray&)>&) override {}
  void Forward(const Stray& stray) override {
    forwarded.emplace_back(stray.bytes.begin(), stray.bytes.end());
  }
  std::vector<std::vector<uint8_t>> forwarded;
};

struct SpyCq final : EventCq {
  bool Push(const transport::Completion& completion) override {
    on_push();
    return EventCq::Push(completion);
  }
  std::function<void()> on_push = [] {};
};

// A lane with a connected queue pair.
class End : public transport::EventSink {
 public:
  void Open(uint32_t qpn, uint32_t peer_qpn, const char* address,
            const char* peer_address) {
    auto fake = std::make_unique<FakePort>();
    port = fake.get();
    lane.Open(std::move(fake), &slot, &helper, 0);
    transport::QpConfig config;
    config.qpn = qpn;
    config.capacity = {256, 16, 1, 1, 0};
    config.memory = &memory_;
    config.send_cq = &cq;
    config.recv_cq = &cq;
    config.events = this;
    config.signal_all = true;
    const Lane::Guard guard(lane);
    qp = std::make_unique<transport::QueuePair>(lane.endpoint(), config);
    transport::QpAttributes a;
    using namespace transport;  // NOLINT: attribute masks
    a.state = QpState::kInit;
    a.access_flags = 0xf;
    ASSERT_EQ(
        qp->Modify(a, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags, now),
        0);
    a.state = QpState::kRtr;
    a.path_mtu = 1024;
    a.dest_qpn = peer_qpn;
    a.av.source = *wire::IpAddress::Parse(address);
    a.av.destination = *wire::IpAddress::Parse(peer_address);
    ASSERT_EQ(qp->Modify(a,
                         kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn |
                             kQpMaxDestRdAtomic | kQpMinRnrTimer,
                         now),
              0);
    a.state = QpState::kRts;
    a.timeout = 20;  // 4 s: not within these tests
    a.retry_cnt = 7;
    ASSERT_EQ(qp->Modify(a,
                         kQpState | kQpTimeout | kQpRetryCnt | kQpRnrRetry |
                             kQpSqPsn | kQpMaxQpRdAtomic,
                         now),
              0);
  }
  ~End() override {
    {
      const Lane::Guard guard(lane);
      qp.reset();
    }
    lane.Close();
  }
  void OnQpEvent(transport::QueuePair&, transport::QpEvent) override {}

  // A WRITE of the number of WRITEs so far, to the inbox of `to`.
  void Post() {
    const Lane::Guard guard(lane);
    PostLocked();
  }
  void PostLocked() {
    ++outbox_[0];
    const transport::Sge sge = {reinterpret_cast<uint64_t>(outbox_), 64, 1};
    transport::SendRequest request;
    request.opcode = transport::SendOpcode::kRdmaWrite;
    request.sges = {&sge, 1};
    request.remote_addr = reinterpret_cast<uint64_t>(to->inbox);
    request.rkey = 1;
    ASSERT_EQ(qp->PostSend(request, now), 0);
    lane.Posted(now, 1, 64);
  }

  // What the helper thread would do by now: it wakes when it is told to, when
  // it has said that it would, and for what arrives while the lane is armed.
  void LetHelperRun() {
    while (helper.wakes != wakes_seen_ || now >= helper_until_ ||
           (helper.armed && !port->on_the_wire.empty())) {
      wakes_seen_ = helper.wakes;
      ++helper_turns;
      helper_until_ = lane.HelperTurn();
    }
  }
  int helper_turns = 0;
  End* to = this;
  uint64_t inbox[8] = {};

  SpyCq cq;
  FakeSlot slot;
  FakeHelper helper;
  LaneImpl lane{Clock};
  FakePort* port = nullptr;
  std::unique_ptr<transport::QueuePair> qp;

 private:
  OpenMemory memory_;
  uint64_t outbox_[8] = {};
  int wakes_seen_ = 0;
  Time helper_until_ = kNever;
};

class LaneTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kQpn = 0x051234;
  static constexpr uint32_t kPeerQpn = 0x052222;

  void SetUp() override {
    end_.Open(kQpn, kPeerQpn, "10.0.0.1", "10.0.0.2");
    port_ = end_.port;
  }
  // `peer` becomes the other end, on the same wire.
  void Join(End* peer) {
    peer->Open(kPeerQpn, kQpn, "10.0.0.2", "10.0.0.1");
    port_->peer = peer->port;
    peer->port->peer = port_;
  }
  void Post() { end_.Post(); }
  int PacketsSent() const {
    int sum = 0;
    for (const int packets : port_->packets) sum += packets;
    return sum;
  }
  // The helper looks while the application polls.
  void GoOnWatch() {
    lane_.Progress();
    lane_.HelperTurn();
    ASSERT_FALSE(helper_.armed);
  }

  End end_;
  FakeSlot& slot_ = end_.slot;
  FakeHelper& helper_ = end_.helper;
  LaneImpl& lane_ = end_.lane;
  FakePort* port_ = nullptr;
};

TEST_F(LaneTest, SendsAtOnceWhenIdle) {
  EXPECT_TRUE(helper_.armed);
  EXPECT_EQ(helper_.wakes, 0);
  Post();
  EXPECT_EQ(PacketsSent(), 1);
  // Somebody has to know of the timeout.
  EXPECT_EQ(helper_.wakes, 1);
  EXPECT_LT(lane_.HelperTurn(), kNever);
  EXPECT_TRUE(helper_.armed);
  // From now on the helper comes in time by itself.
  for (int i = 0; i < 10; ++i) Post();
  EXPECT_EQ(PacketsSent(), 11);
  EXPECT_EQ(helper_.wakes, 1);
}

TEST_F(LaneTest, GathersPostsWhileTheHelperWatches) {
  Post();
  GoOnWatch();
  const size_t bursts = port_->packets.size();
  const int before = PacketsSent();
  const int wakes = helper_.wakes;
  lane_.Progress();
  for (int i = 0; i < 20; ++i) Post();
  EXPECT_EQ(lane_.counters().posts_gathered, 20u);
  EXPECT_EQ(PacketsSent(), before);
  lane_.Progress();
  EXPECT_EQ(port_->packets.size(), bursts + 1);
  EXPECT_EQ(PacketsSent(), before + 20);
  EXPECT_EQ(helper_.wakes, wakes);
}

TEST_F(LaneTest, AsksForTheWatchWhenPostsComeQuickly) {
  Post();
  lane_.HelperTurn();
  for (int i = 0; i < 100 && helper_.wakes < 2; ++i) {
    lane_.Progress();
    Post();
  }
  EXPECT_EQ(helper_.wakes, 2) << "no watch was asked for";
  // Whatever the helper finds, it sees to what was left.
  for (int i = 0; i < 3; ++i) Post();
  while (lane_.HelperTurn() == 0) {
  }
  lane_.DropLease();
  lane_.HelperTurn();
  EXPECT_TRUE(helper_.armed);
  const Lane::Guard guard(lane_);
  EXPECT_FALSE(lane_.endpoint().HasTransmit());
}

TEST_F(LaneTest, DroppingTheLeaseSendsWhatWasLeft) {
  Post();
  GoOnWatch();
  const int before = PacketsSent();
  lane_.Progress();
  for (int i = 0; i < 5; ++i) Post();
  lane_.DropLease();
  EXPECT_EQ(PacketsSent(), before + 5);
  EXPECT_TRUE(helper_.armed);
}

TEST_F(LaneTest, TheWatchEndsWhenPollingDoes) {
  Post();
  GoOnWatch();
  now += 50 * kMicrosecond;
  lane_.HelperTurn();
  EXPECT_TRUE(helper_.armed);
}

TEST_F(LaneTest, TheWatchGrowsLongerWhilePollingGoesOn) {
  Post();
  GoOnWatch();
  for (const int us : {40, 80, 160, 320, 640, 640}) {
    now += 20 * kMicrosecond;
    lane_.Progress();
    EXPECT_EQ(lane_.HelperTurn(), now + us * kMicrosecond);
    EXPECT_FALSE(helper_.armed);
  }
}

// The helper comes by and finds an acknowledgement that a poll has left just
// now: the application cannot have polled since, if it is its core that the
// helper runs on.
TEST_F(LaneTest, ALookDoesNotTakeWhatPollingLeft) {
  End peer;
  Join(&peer);
  GoOnWatch();
  for (int i = 0; i < 5; ++i) lane_.Progress();
  peer.Post();
  EXPECT_TRUE(lane_.Progress());
  EXPECT_EQ(PacketsSent(), 0);
  now += 5 * kMicrosecond;
  EXPECT_LT(lane_.HelperTurn(), now + kMillisecond);
  EXPECT_EQ(PacketsSent(), 0);
  // But it has stopped polling.
  now += 40 * kMicrosecond;
  lane_.HelperTurn();
  EXPECT_EQ(PacketsSent(), 1);
  EXPECT_EQ(lane_.counters().neglects, 1u);
}

// An application that waits for its memory to change, and answers: from the
// fifth time on, the acknowledgement goes out with the answer. Alone it would
// wake the peer, for nothing.
TEST_F(LaneTest, AnAnswerTakesTheAcknowledgementAlong) {
  End peer;
  Join(&peer);
  // What the helper sends by itself when a WRITE arrives.
  const auto sent_by_helper = [&] {
    peer.Post();
    const size_t before = port_->packets.size();
    now += 3 * kMicrosecond;
    end_.LetHelperRun();
    return port_->packets.size() - before;
  };
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(sent_by_helper(), i < 4 ? 1u : 0u) << i;
    now += 2 * kMicrosecond;
    const int before = PacketsSent();
    Post();
    EXPECT_EQ(PacketsSent() - before, i < 4 ? 1 : 2) << i;
    now += 3 * kMicrosecond;
    peer.LetHelperRun();
    EXPECT_EQ(peer.qp->counters().retransmitted, 0u);
  }
  // It stops answering. The acknowledgement is late once, by little, and then
  // no more.
  int late = 0;
  while (sent_by_helper() == 0) {
    ++late;
    ASSERT_LT(late, 10);
    const size_t before = port_->packets.size();
    now += 200 * kMicrosecond;
    end_.LetHelperRun();
    EXPECT_EQ(port_->packets.size() - before, 1u);
    peer.LetHelperRun();
  }
  EXPECT_EQ(late, 1);
  EXPECT_EQ(sent_by_helper(), 1u);
}

// Two that poll and write to each other in turns, for 100 ms: their helpers are
// not woken by what arrives, nor does posting wake them, nor does the set of
// sockets that they wait on change.
TEST_F(LaneTest, PollingKeepsTheHelperAsleep) {
  End peer;
  Join(&peer);
  const Time end = now + 100 * kMillisecond;
  int messages = 0;
  Post();
  for (; now < end; now += kMicrosecond) {
    for (End* e : {&end_, &peer}) {
      e->LetHelperRun();  // the first to hear of what arrives, if it listens
      e->lane.Progress();
    }
    if (const auto completion = end_.cq.Poll()) {
      ASSERT_EQ(completion->status, transport::WcStatus::kSuccess);
      ++messages;
      Post();
    }
  }
  EXPECT_GT(messages, 30'000);
  for (End* e : {&end_, &peer}) {
    // 100 ms in steps of 640 us, and a few shorter ones before.
    EXPECT_LE(e->helper_turns, 157 + 10);
    EXPECT_LE(e->helper.wakes, 1);
    EXPECT_EQ(e->helper.arms, 2);  // on by opening, off by going on watch
    EXPECT_EQ(e->lane.counters().neglects, 0u);
  }
}

// One that posts again as often as it has polled a completion, 100 posts in a
// row, to one that polls, for `waves` times. Each call takes 0.1 us, sending
// takes 10 us.
class SpreeTest : public LaneTest {
 protected:
  void SetUp() override {
    LaneTest::SetUp();
    Join(&peer_);
    port_->send_cost = 10 * kMicrosecond;
  }
  void Pass() {
    now += kMicrosecond / 10;
    end_.LetHelperRun();
    peer_.lane.Progress();
    peer_.LetHelperRun();
  }
  void Waves(int waves) {
    for (int i = 0; i < waves; ++i) {
      for (int posts = 0; posts < 100; ++posts) {
        Post();
        ++outstanding_;
        Pass();
      }
      while (outstanding_ > 28) {
        lane_.Progress();
        while (end_.cq.Poll()) --outstanding_;
        Pass();
      }
    }
  }
  // Both go on, but this end's application makes no call.
  void Away(Time how_long) {
    for (const Time until = now + how_long; now < until; now += kMicrosecond) {
      Pass();
    }
  }
  // Packets in a burst, on average, of so many waves.
  double Gathered(int waves) {
    const size_t bursts = port_->packets.size();
    const int packets = PacketsSent();
    Waves(waves);
    return double(PacketsSent() - packets) /
           double(port_->packets.size() - bursts);
  }

  End peer_;
  int outstanding_ = 0;
};

TEST_F(SpreeTest, PostsAreGathered) {
  Waves(1);
  // The first of a wave goes at once, then 64 and 35.
  EXPECT_GT(Gathered(100), 32);
  // Posting is taken for a sign of life.
  EXPECT_EQ(lane_.counters().neglects, 0u);
  EXPECT_LE(helper_.wakes, 2);
}

TEST_F(SpreeTest, AThreadThatLosesItsCoreIsNotTakenForOneThatStops) {
  Waves(10);
  for (int i = 0; i < 10; ++i) {
    Away(3 * kMillisecond);
    Waves(1);  // the helper goes back on watch
    EXPECT_GT(Gathered(10), 30) << i;
  }
}

// Whatever made it seem so, an application that comes back at once, always, is
// found out.
TEST_F(SpreeTest, AttentionEnds) {
  Waves(10);
  for (int i = 0; i < 4; ++i) {
    // Just long enough to neglect what arrives and to be on watch again.
    for (int j = 0; j < 12; ++j) Post();
    outstanding_ += 12;
    Away(15 * kMicrosecond);
    for (int polls = 0; polls < 8; ++polls) lane_.Progress();
    while (end_.cq.Poll()) --outstanding_;
  }
  Waves(40);
  EXPECT_GT(Gathered(10), 30);
}

// An application that polls for its completion and then waits for its memory to
// change is no longer left alone after a few times, however long it polls.
class WaitingForMemory : public LaneTest,
                         public ::testing::WithParamInterface<int> {};

TEST_P(WaitingForMemory, IsLearned) {
  End peer;
  Join(&peer);
  int late = 0;
  for (int i = 0; i < 200; ++i) {
    const Time answered = now + GetParam() * kMicrosecond;
    Post();
    while (!end_.cq.Poll()) {
      now += kMicrosecond / 5;
      if (now >= answered) peer.lane.Progress();
      lane_.Progress();
      end_.LetHelperRun();
    }
    // The answer comes while nobody polls.
    for (int us = 0; us < 10; ++us) {
      now += kMicrosecond;
      end_.LetHelperRun();
    }
    peer.Post();
    const Time sent = now;
    while (!port_->on_the_wire.empty()) {
      now += kMicrosecond;
      end_.LetHelperRun();
    }
    if (now - sent > 2 * kMicrosecond) ++late;
    while (!peer.cq.Poll()) {
      now += kMicrosecond;
      end_.LetHelperRun();
      peer.lane.Progress();
    }
  }
  EXPECT_LE(late, 8);
}
INSTANTIATE_TEST_SUITE_P(PollsFor, WaitingForMemory,
                         ::testing::Values(0, 5, 10, 15, 20, 30, 50));

// Two that write to each other in turns, each of which polls until its write is
// acknowledged and then waits for its memory to change: before long the
// acknowledgement always comes with the answer, so that polling finds both and
// no helper is needed.
TEST_F(LaneTest, WritingInTurnsNeedsNoHelper) {
  End peer;
  Join(&peer);
  end_.to = &peer;
  peer.to = &end_;
  struct Application {
    End* end;
    bool polls;     // else it waits for its memory
    uint64_t seen;  // there
  };
  Application applications[] = {{&end_, true, 0}, {&peer, false, 0}};
  Post();
  const auto run = [&](uint64_t messages) {
    const uint64_t goal = end_.inbox[0] + messages;
    for (uint64_t steps = 0; end_.inbox[0] < goal; ++steps) {
      ASSERT_LT(steps, messages * 10000);
      now += kMicrosecond / 5;
      for (Application& a : applications) {
        a.end->LetHelperRun();
        if (a.polls) {
          a.end->lane.Progress();
          if (a.end->cq.Poll()) a.polls = false;
        } else if (a.end->inbox[0] > a.seen) {
          ++a.seen;
          a.end->Post();
          a.polls = true;
        }
      }
    }
  };
  run(200);
  for (Application& a : applications) a.end->helper_turns = 0;
  const Time begin = now;
  run(1000);
  EXPECT_LT(now - begin, 1000 * 3 * kMicrosecond);
  for (const Application& a : applications) {
    EXPECT_LT(a.end->helper_turns, 20);
  }
}

// A request and the acknowledgement of the peer's last one arrive together: the
// acknowledgement, though last in the train, is heard of first, as if hardware
// had sent it.
TEST_F(LaneTest, AnAcknowledgementComesBeforeTheRequestsBesideIt) {
  End peer;
  Join(&peer);
  end_.to = &peer;
  peer.to = &end_;
  Post();
  const auto seen = [&] { return end_.inbox[0]; };
  end_.cq.on_push = [&] { EXPECT_EQ(seen(), 0u); };
  {
    // Nothing is sent until both are there.
    const Lane::Guard guard(peer.lane);
    const FakePort::Datagrams request = peer.port->on_the_wire.front();
    peer.port->on_the_wire.clear();
    transport::Datagram datagram;
    datagram.bytes = request.bytes;
    datagram.source = request.source;
    datagram.destination = request.destination;
    datagram.source_port = request.source_port;
    peer.lane.endpoint().OnDatagram(datagram, now);
    peer.PostLocked();
  }
  ASSERT_EQ(port_->on_the_wire.size(), 1u);
  ASSERT_EQ(peer.port->packets.back(), 2);
  lane_.Progress();
  EXPECT_EQ(seen(), 1u);
  EXPECT_TRUE(end_.cq.Poll());
}

TEST_F(LaneTest, HoldsWhatIsBlockedAndTriesAgain) {
  port_->block_next = true;
  Post();
  Post();
  EXPECT_EQ(PacketsSent(), 1);
  EXPECT_GE(helper_.wakes, 1);
  // The helper neither spins nor sleeps too long.
  Time until = lane_.HelperTurn();
  for (int i = 0; i < 20; ++i) {
    now = until;
    until = lane_.HelperTurn();
    ASSERT_GT(until, now);
    ASSERT_LE(until, now + 5 * kMillisecond);
  }
  EXPECT_GT(until, now + kMillisecond);
  port_->block_next = false;
  lane_.HelperTurn();
  EXPECT_GE(PacketsSent(), 2);  // and perhaps a probe
}

TEST_F(LaneTest, AThreadThatWaitsTakesTheHelpersPlace) {
  lane_.EnterWait();
  EXPECT_FALSE(helper_.armed);
  Post();
  helper_.wakes = 0;
  EXPECT_FALSE(lane_.WaitTurn(now));
  // The deadline is the helper's to see to, and it knows of it.
  EXPECT_LT(lane_.HelperTurn(), kNever);
  EXPECT_FALSE(helper_.armed);
  Post();
  EXPECT_EQ(helper_.wakes, 0);
  lane_.HelperTurn();
  EXPECT_FALSE(helper_.armed);
  lane_.LeaveWait();
  EXPECT_TRUE(helper_.armed);
}

TEST_F(LaneTest, ForwardsWhatIsForOtherSlots) {
  transport::Train train;
  train.source = *wire::IpAddress::Parse("10.0.0.2");
  train.destination = *wire::IpAddress::Parse("10.0.0.1");
  train.source_port = 77;
  train.segment_size = 20;  // BTH, four bytes and ICRC
  // Slot 7; the broker's slot 0; ours, but nobody's; slot 7, but damaged; and
  // too short.
  std::vector<uint8_t> bytes(4 * 20 + 5);
  const wire::IcrcFlow flow(train.source, train.destination, 77,
                            wire::kRoceUdpPort);
  uint16_t id = 0;
  for (const uint32_t qpn : {0x070001, 0x000001, 0x05ffff, 0x070002}) {
    const std::span<uint8_t> packet = std::span(bytes).subspan(id * 20, 20);
    wire::Headers headers;
    headers.bth.opcode =
        wire::MakeOpcode(wire::Transport::kRc, wire::Operation::kSendOnly);
    headers.bth.dest_qpn = qpn;
    wire::EmitHeaders(headers, packet.data());
    flow.Store(packet, id++);
  }
  bytes[3 * 20 + 12] ^= 1;
  train.bytes = bytes;
  port_->arrivals = {&train, 1};
  EXPECT_TRUE(lane_.Progress());
  ASSERT_EQ(slot_.forwarded.size(), 2u);
  EXPECT_EQ(slot_.forwarded[0],
            std::vector<uint8_t>(bytes.begin(), bytes.begin() + 20));
  EXPECT_EQ(slot_.forwarded[1],
            std::vector<uint8_t>(bytes.begin() + 20, bytes.begin() + 40));
  const Lane::Guard guard(lane_);
  const transport::EndpointCounters& counters = lane_.endpoint().counters();
  const auto dropped = [&](transport::Disposition why) {
    return counters.dropped[static_cast<size_t>(why)];
  };
  EXPECT_EQ(dropped(transport::Disposition::kUnknownQp), 3u);
  EXPECT_EQ(dropped(transport::Disposition::kBadIcrc), 1u);
  EXPECT_EQ(dropped(transport::Disposition::kTooShort), 1u);
}

TEST_F(LaneTest, DoesNothingWhenClosed) {
  LaneImpl closed{Clock};
  EXPECT_FALSE(closed.Progress());
  closed.DropLease();
  closed.EnterWait();
  EXPECT_FALSE(closed.WaitTurn(0));
  closed.LeaveWait();
  EXPECT_EQ(closed.HelperTurn(), kNever);
  const Lane::Guard guard(closed);
  closed.Posted(0, 1, 64);
}

}  // namespace
}  // namespace rxe_user
