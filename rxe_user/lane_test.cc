// A lane between a port and a helper that the test plays: whoever leaves work
// must have somebody who does it.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "rxe_user/lane_impl.h"
#include "rxe_user/testing/node.h"
#include "transport/queue_pair.h"

namespace rxe_user {
namespace {

using transport::kNever;
using transport::Time;

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
  std::span<const Arrival> Receive(bool) override {
    return std::exchange(arrivals, {});
  }
  bool more() const override { return false; }
  uint64_t TakeOverflow() override { return 0; }
  transport::Burst* NextBurst() override {
    return is_blocked ? nullptr : &burst_;
  }
  void Queue() override {
    packets.push_back(burst_.segments());
    if (block_next) is_blocked = true;
  }
  void Flush() override {
    if (!block_next) is_blocked = false;
  }
  bool blocked() const override { return is_blocked; }
  const PortCounters& counters() const override { return counters_; }
  void AbandonInChild() override {}

  std::span<const Arrival> arrivals;
  std::vector<int> packets;  // of each burst that was sent
  bool block_next = false;
  bool is_blocked = false;

 private:
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(65507);
  transport::Burst burst_{buffer_, 128};
  PortCounters counters_;
};

class FakeHelper final : public LaneHelper {
 public:
  void Wake() override { ++wakes; }
  void AddSocket(int, int, bool) override {}
  void Arm(int, bool on) override { armed = on; }
  int wakes = 0;
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

class LaneTest : public ::testing::Test, public transport::EventSink {
 protected:
  static constexpr uint32_t kQpn = 0x051234;

  void SetUp() override {
    auto port = std::make_unique<FakePort>();
    port_ = port.get();
    lane_.Open(std::move(port), &slot_, &helper_, 0);
    transport::QpConfig config;
    config.qpn = kQpn;
    config.capacity = {256, 16, 1, 1, 0};
    config.memory = &memory_;
    config.send_cq = &cq_;
    config.recv_cq = &cq_;
    config.events = this;
    const Lane::Guard guard(lane_);
    qp_ = std::make_unique<transport::QueuePair>(lane_.endpoint(), config);
    transport::QpAttributes a;
    using namespace transport;  // NOLINT: attribute masks
    a.state = QpState::kInit;
    ASSERT_EQ(qp_->Modify(a, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags,
                          Lane::Now()),
              0);
    a.state = QpState::kRtr;
    a.dest_qpn = 0x2222;
    a.av.source = *wire::IpAddress::Parse("10.0.0.1");
    a.av.destination = *wire::IpAddress::Parse("10.0.0.2");
    ASSERT_EQ(qp_->Modify(a,
                          kQpState | kQpAv | kQpPathMtu | kQpDestQpn |
                              kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer,
                          Lane::Now()),
              0);
    a.state = QpState::kRts;
    a.timeout = 20;  // 4 s: not within these tests
    a.retry_cnt = 7;
    ASSERT_EQ(qp_->Modify(a,
                          kQpState | kQpTimeout | kQpRetryCnt | kQpRnrRetry |
                              kQpSqPsn | kQpMaxQpRdAtomic,
                          Lane::Now()),
              0);
  }
  void TearDown() override {
    {
      const Lane::Guard guard(lane_);
      qp_.reset();
    }
    lane_.Close();
  }
  void OnQpEvent(transport::QueuePair&, transport::QpEvent) override {}

  void Post() {
    const transport::Sge sge = {reinterpret_cast<uint64_t>(bytes_), 64, 1};
    transport::SendRequest request;
    request.opcode = transport::SendOpcode::kRdmaWrite;
    request.sges = {&sge, 1};
    const Lane::Guard guard(lane_);
    const Time now = Lane::Now();
    ASSERT_EQ(qp_->PostSend(request, now), 0);
    lane_.Posted(now);
  }
  int PacketsSent() const {
    int sum = 0;
    for (const int packets : port_->packets) sum += packets;
    return sum;
  }
  // The helper looks while the application polls. Whether it takes that for
  // polling depends on how the scheduler treats us, so: until it does.
  void GoOnWatch() {
    for (int i = 0; i < 10'000 && helper_.armed; ++i) {
      lane_.Progress();
      lane_.HelperTurn();
    }
    ASSERT_FALSE(helper_.armed);
  }

  OpenMemory memory_;
  EventCq cq_;
  FakeSlot slot_;
  FakeHelper helper_;
  LaneImpl lane_;
  FakePort* port_ = nullptr;
  std::unique_ptr<transport::QueuePair> qp_;
  uint8_t bytes_[64] = {};
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
  // (The scheduler may have made a long pause of these calls, and an idle
  // application out of us; posts are then sent at once.)
  if (lane_.counters().posts_gathered == 20) {
    EXPECT_EQ(PacketsSent(), before);
    lane_.Progress();
    EXPECT_EQ(port_->packets.size(), bursts + 1);
  }
  lane_.Progress();
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
  const Time gone = Lane::Now();
  while (Lane::Now() - gone < 50 * transport::kMicrosecond) {
  }
  lane_.HelperTurn();
  EXPECT_TRUE(helper_.armed);
}

TEST_F(LaneTest, TheWatchGrowsLongerWhilePollingGoesOn) {
  Post();
  GoOnWatch();
  Time longest = 0;
  for (int i = 0; i < 10'000 && longest < 500 * transport::kMicrosecond; ++i) {
    lane_.Progress();
    const Time until = lane_.HelperTurn();
    if (!helper_.armed) longest = std::max(longest, until - Lane::Now());
  }
  EXPECT_GE(longest, 500 * transport::kMicrosecond);
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
    while (Lane::Now() < until) {
    }
    until = lane_.HelperTurn();
    ASSERT_LT(until, Lane::Now() + 6 * transport::kMillisecond);
  }
  EXPECT_GT(until, Lane::Now() + transport::kMillisecond);
  port_->block_next = false;
  lane_.HelperTurn();
  EXPECT_GE(PacketsSent(), 2);  // and perhaps a probe
}

TEST_F(LaneTest, AThreadThatWaitsTakesTheHelpersPlace) {
  lane_.EnterWait();
  EXPECT_FALSE(helper_.armed);
  Post();
  helper_.wakes = 0;
  EXPECT_LT(lane_.WaitTurn(Lane::Now()), kNever);
  Post();  // a deadline that the waiting thread knows of
  EXPECT_EQ(helper_.wakes, 0);
  lane_.HelperTurn();
  EXPECT_FALSE(helper_.armed);
  lane_.LeaveWait();
  EXPECT_TRUE(helper_.armed);
}

TEST_F(LaneTest, ForwardsWhatIsForOtherSlots) {
  std::vector<uint8_t> bytes(3 * 20);
  bytes[5] = 7;  // slot 7; then the broker's slot 0; then too short
  bytes.resize(45);
  bytes[40 + 4] = 9;
  Arrival arrival;
  arrival.bytes = bytes;
  arrival.segment_size = 20;
  arrival.source_port = 77;
  port_->arrivals = {&arrival, 1};
  EXPECT_TRUE(lane_.Progress());
  ASSERT_EQ(slot_.forwarded.size(), 2u);
  EXPECT_EQ(slot_.forwarded[0][5], 7);
  EXPECT_EQ(slot_.forwarded[1].size(), 20u);
  const Lane::Guard guard(lane_);
  EXPECT_EQ(lane_.endpoint().counters().rx_datagrams, 1u);
}

TEST_F(LaneTest, DoesNothingWhenClosed) {
  LaneImpl closed;
  EXPECT_FALSE(closed.Progress());
  closed.DropLease();
  closed.EnterWait();
  EXPECT_EQ(closed.WaitTurn(0), kNever);
  closed.LeaveWait();
  EXPECT_EQ(closed.HelperTurn(), kNever);
  const Lane::Guard guard(closed);
  closed.Posted(0);
}

}  // namespace
}  // namespace rxe_user
