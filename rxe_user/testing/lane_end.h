// A lane with a fake port and helper on a virtual clock.
#ifndef RXE_USER_TESTING_LANE_END_H_
#define RXE_USER_TESTING_LANE_END_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rxe_user/engine/lane_impl.h"
#include "rxe_user/testing/node.h"
#include "rxe_user/testing/socketless_port.h"
#include "transport/queue_pairs.h"
#include "transport/testing/bring_up.h"

namespace rxe_user {

// The lanes' time; the test advances it. LaneTest::SetUp resets it for each
// test.
inline constexpr transport::Time kVirtualStart = transport::kSecond;
inline transport::Time virtual_now = kVirtualStart;
inline transport::Time VirtualClock() { return virtual_now; }

// Stores sent packets and passes them to `peer` if there is one.
class FakePort final : public SocketlessPort {
 public:
  bool HasReceiver(const wire::IpAddress&) const override { return true; }
  std::span<const transport::GroBatch> Receive(bool) override {
    calls += 'r';
    if (no_memory) throw std::bad_alloc();
    virtual_now += receive_cost;
    more_ = says_more && !on_the_wire.empty();
    received_ = TakeReceived();
    if (received_.empty()) return std::exchange(arrivals, {});
    received_arrivals_.clear();
    for (const Datagrams& d : received_) {
      received_arrivals_.push_back({d.bytes, d.segment_size, d.source,
                                    d.destination, d.source_port, 0, 64});
    }
    return received_arrivals_;
  }
  bool more() const override { return more_; }
  transport::Burst* Begin(const transport::Flow& flow) override {
    if (is_blocked || refuses_flows) return nullptr;
    burst_.Begin(&flow);
    return &burst_;
  }
  void Queue() override {
    calls += 's';
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
    virtual_now += send_cost;
  }
  void Flush() override {
    if (!block_next) is_blocked = false;
  }
  bool blocked() const override { return is_blocked; }
  bool must_retry() const override { return is_blocked || refuses_flows; }
  bool only_that_flow() const override { return refuses_flows; }
  Port& ForLastPackets() override { return last != nullptr ? *last : *this; }

  struct Datagrams {
    std::vector<uint8_t> bytes;
    size_t segment_size;
    wire::IpAddress source, destination;
    uint16_t source_port;
  };

  std::span<const transport::GroBatch> arrivals;
  FakePort* peer = nullptr;           // receives what is sent here
  std::deque<Datagrams> on_the_wire;  // sent by the peer
  std::vector<int> packets;           // in each burst that was sent
  std::string calls;                  // r: a receive, s: a burst sent
  transport::Time send_cost = 0;      // the time to send a burst
  transport::Time receive_cost = 0;   // the time of a receive call
  bool says_more = false;             // more() after any arrival
  bool one_at_a_time = false;         // a receive returns one burst
  bool no_memory = false;             // a receive finds no memory
  bool block_next = false;
  bool is_blocked = false;
  bool refuses_flows = false;  // each alone
  FakePort* last = nullptr;    // ForLastPackets; null: this one

 private:
  std::deque<Datagrams> TakeReceived() {
    if (!one_at_a_time || on_the_wire.size() < 2) {
      return std::exchange(on_the_wire, {});
    }
    more_ = true;
    std::deque<Datagrams> first;
    first.push_back(std::move(on_the_wire.front()));
    on_the_wire.pop_front();
    return first;
  }

  bool more_ = false;
  std::deque<Datagrams> received_;
  std::vector<transport::GroBatch> received_arrivals_;
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(65507);
  transport::Burst burst_{buffer_, 128};
};

// Counts the lane's calls. LaneEnd::LetHelperRun acts on them.
class FakeHelper final : public LaneHelper {
 public:
  void Wake() override { ++wakes; }
  bool AddSocket(int, bool on) override {
    added_armed = on && !refuses;
    return !on || !refuses;
  }
  void RemoveSocket(int) override {}
  bool Arm(bool on) override {
    ++arms;
    armed = on && !refuses;
    return !on || !refuses;
  }
  transport::Time timer_cost() const override { return timer; }
  int wakes = 0;
  transport::Time timer = 0;
  int arms = 0;  // calls; each is a system call
  bool armed = false;
  bool added_armed = false;  // of the last added socket
  bool refuses = false;      // to arm any socket
};

// Slot number 5. Stores forwarded strays.
class FakeSlot final : public Slot {
 public:
  uint16_t number() const override { return 5; }
  absl::StatusOr<int> OpenAddress(const LocalAddress&) override { return -1; }
  int fd() const override { return -1; }
  void OnReadable(const std::function<void(const Stray&)>&) override {}
  void Forward(const Stray& stray) override {
    forwarded.emplace_back(stray.bytes.begin(), stray.bytes.end());
  }
  std::vector<std::vector<uint8_t>> forwarded;
};

// Calls on_push before each completion.
struct SpyCq final : EventCq {
  bool Push(const transport::Completion& completion) override {
    on_push();
    return EventCq::Push(completion);
  }
  std::function<void()> on_push = [] {};
};

// A lane with a connected queue pair.
class LaneEnd : public transport::EventSink {
 public:
  void Open(uint32_t qpn, uint32_t peer_qpn, const char* address,
            const char* peer_address) {
    auto fake = std::make_unique<FakePort>();
    port = fake.get();
    port->receive_cost = poll_cost;
    lane.Open(std::move(fake), &slot, &helper, spin);
    port->receive_cost = 0;
    port->calls.clear();
    Connect(qpn, peer_qpn, address, peer_address);
  }
  // From now on `qp` is another queue pair.
  void Connect(uint32_t qpn, uint32_t peer_qpn, const char* address,
               const char* peer_address) {
    transport::QpConfig config;
    config.qpn = qpn;
    config.capacity = {256, 16, 1, 1, 0};
    config.memory = &memory_;
    config.send_cq = &cq;
    config.recv_cq = &cq;
    config.events = this;
    config.signal_all = true;
    const Lane::Guard guard(lane);
    if (qp != nullptr) others.push_back(std::move(qp));
    qp = transport::MakeQueuePair(lane.endpoint(), config);
    transport::QpAttributes to =
        transport::ConnectionTo(peer_qpn, *wire::IpAddress::Parse(address),
                                *wire::IpAddress::Parse(peer_address));
    to.path_mtu = 1024;
    to.timeout = 20;  // 4 s: longer than these tests
    ASSERT_EQ(transport::BringUp(*qp, to, virtual_now), 0);
  }
  ~LaneEnd() override {
    {
      const Lane::Guard guard(lane);
      qp.reset();
      others.clear();
    }
    lane.Close();
  }
  void OnQpEvent(transport::QueuePair&, transport::QpEvent) override {}

  // Posts a WRITE of the number of WRITEs so far to the inbox of `to`.
  void Post() {
    const Lane::Guard guard(lane);
    PostLocked();
  }
  void PostLocked(bool signaled = true) {
    ++outbox_[0];
    PostLocked({reinterpret_cast<uint64_t>(outbox_), sizeof(outbox_), 1},
               to->inbox, signaled);
  }
  // Posts a WRITE of `sge` to `target`.
  void PostLocked(const transport::Sge& sge, void* target,
                  bool signaled = true) {
    transport::SendRequest request;
    request.opcode = transport::SendOpcode::kRdmaWrite;
    request.sges = {&sge, 1};
    request.remote_addr = reinterpret_cast<uint64_t>(target);
    request.rkey = 1;
    ASSERT_EQ(qp->PostSend(request, virtual_now), 0);
    lane.Posted(
        virtual_now,
        {.requests = 1, .bytes = sge.length, .signaled = signaled ? 1 : 0});
  }

  // Runs the helper as its thread would: when it is woken, at the time it gave,
  // and for arrivals while the lane is armed.
  void LetHelperRun() {
    while (helper.wakes != wakes_seen_ || virtual_now >= helper_until_ ||
           (helper.armed && !port->on_the_wire.empty())) {
      wakes_seen_ = helper.wakes;
      ++helper_turns;
      helper_until_ = lane.RunHelper();
    }
  }
  // Advances the time, and runs the helper exactly when it is due.
  void LetTimePass(transport::Time how_long) {
    const transport::Time end = virtual_now + how_long;
    LetHelperRun();
    while (helper_until_ <= end) {
      // A helper that is due at once takes some time.
      const bool at_once = helper_until_ <= virtual_now + 1;
      virtual_now =
          at_once ? virtual_now + transport::kMicrosecond / 2 : helper_until_;
      LetHelperRun();
    }
    virtual_now = std::max(virtual_now, end);
  }
  int helper_turns = 0;
  transport::Time poll_cost = 0;  // the lane measures it when it is opened
  transport::Time spin = 0;       // for LaneImpl::Open
  LaneEnd* to = this;
  uint64_t inbox[8] = {};

  SpyCq cq;
  FakeSlot slot;
  FakeHelper helper;
  LaneImpl lane{VirtualClock};
  FakePort* port = nullptr;
  std::unique_ptr<transport::QueuePair> qp;
  std::vector<std::unique_ptr<transport::QueuePair>> others;

 private:
  OpenMemory memory_;
  uint64_t outbox_[8] = {};
  int wakes_seen_ = 0;
  transport::Time helper_until_ = transport::kNever;
};

// One end. Its packets are lost unless another end joins.
class LaneTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kQpn = 0x051234;
  static constexpr uint32_t kPeerQpn = 0x052222;

  void SetUp() override {
    virtual_now = kVirtualStart;
    end_.Open(kQpn, kPeerQpn, "10.0.0.1", "10.0.0.2");
    port_ = end_.port;
  }
  // `peer` becomes the other end.
  void Join(LaneEnd* peer) {
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
  // The helper runs while the application polls.
  void EnterPollingMode() {
    for (uint32_t i = 0; i < AppActivity::kManyPolls; ++i) lane_.Progress();
    lane_.RunHelper();
    ASSERT_EQ(lane_.mode(), Mode::kPolling);
    ASSERT_FALSE(helper_.armed);
  }

  // The application repeatedly stops polling before an arrival.
  void ActivateAdaptiveArming(LaneEnd* peer) {
    for (int i = 0; i < 10; ++i) {
      EnterPollingMode();
      peer->Post();
      peer->lane.RunHelper();
      virtual_now += 25 * transport::kMicrosecond;
      lane_.RunHelper();
      // still polling, with armed sockets
      if (lane_.mode() == Mode::kPolling) break;
    }
    ASSERT_TRUE(helper_.armed);
  }

  LaneEnd end_;
  FakeSlot& slot_ = end_.slot;
  FakeHelper& helper_ = end_.helper;
  LaneImpl& lane_ = end_.lane;
  FakePort* port_ = nullptr;
};

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_LANE_END_H_
