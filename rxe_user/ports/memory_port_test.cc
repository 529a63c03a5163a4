// Two lanes' ports in one process. The control thread's work is done by the
// test, so each step of finding each other happens when the test says so.
#include "rxe_user/ports/memory_port.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "rxe_user/base/qpn.h"
#include "rxe_user/ports/socket_io.h"
#include "rxe_user/testing/loopback_port.h"
#include "transport/base/flow.h"

namespace rxe_user {
namespace {

using Bytes = std::vector<uint8_t>;
using transport::kMillisecond;

transport::Time test_now = 0;
transport::Time TestClock() { return test_now; }

class MemoryPortTest : public LoopbackPortTest {
 protected:
  struct Lane {
    LocalAddress local;
    uint16_t slot = 0;
    std::unique_ptr<Port> port;
    int rooms = 0;
  };

  void SetUp() override {
    Open(&a_, "127.0.0.1", 5);
    Open(&b_, "127.0.0.2", 6);
  }
  static void Open(Lane* lane, const char* address, uint16_t slot) {
    lane->local = {*wire::IpAddress::Parse(address), 0};
    lane->slot = slot;
    lane->port = *MemoryPort::Create(*CreateSocketPort(), &TestClock);
    lane->port->WatchRoom([lane] { ++lane->rooms; });
    lane->port->AddSlot(slot);
    const int fd = Bind(lane->local);
    ASSERT_GE(fd, 0);
    ASSERT_TRUE(lane->port->AddReceiver(lane->local, fd).ok());
  }
  static std::unique_ptr<transport::Flow> FlowOf(Lane& from, const Lane& to) {
    transport::AddressVector av;
    av.source = from.local.address;
    av.destination = to.local.address;
    av.source_port = *from.port->SourcePort(from.local, 1);
    auto flow = std::make_unique<transport::Flow>(av);
    flow->peer_qpn = MakeQpn(to.slot, 1);
    return flow;
  }
  static bool UsesMemory(const Lane& from, const Lane& to) {
    return from.port->UsesMemory(from.local.address, to.local.address,
                                 MakeQpn(to.slot, 1));
  }
  // The control threads' work, until `done`. False after half a minute.
  bool Work(const std::function<bool()>& done) {
    using Clock = Port::ControlTask::Clock;
    const Clock::time_point end = Clock::now() + std::chrono::seconds(30);
    while (!done()) {
      if (Clock::now() > end) return false;
      std::vector<pollfd> fds;
      Clock::time_point time = end;
      for (const Lane* lane : {&a_, &b_}) {
        if (lane->port == nullptr) continue;
        fds.push_back({lane->port->control_task()->fd(), POLLIN, 0});
        time = std::min(time, lane->port->control_task()->time());
      }
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(time - Clock::now());
      ::poll(fds.data(), fds.size(),
             std::max(0, static_cast<int>(left.count())));
      for (const Lane* lane : {&a_, &b_}) {
        if (lane->port == nullptr) continue;
        lane->port->control_task()->Run([](const auto& run) { run(); });
      }
    }
    return true;
  }
  // Sends a packet of `bytes`, all `fill` but the ICRC. False: refused.
  static bool Send(Lane& from, const transport::Flow& flow, size_t bytes,
                   uint8_t fill) {
    transport::Burst* const burst = from.port->Begin(flow);
    if (burst == nullptr) return false;
    std::fill_n(burst->Reserve(bytes), bytes, fill);
    burst->Commit();
    from.port->Queue();
    from.port->Flush();
    return true;
  }
  struct Arrival {
    Bytes bytes;
    transport::GroBatch batch;
  };
  // What has arrived; by UDP after a while, so `count` says how much to expect.
  static std::vector<Arrival> Receive(Lane& lane, size_t count) {
    std::vector<Arrival> all;
    for (int i = 0; i < 1'000'000 && all.size() < count; ++i) {
      for (const transport::GroBatch& batch : lane.port->Receive(true)) {
        all.push_back({{batch.bytes.begin(), batch.bytes.end()}, batch});
      }
    }
    return all;
  }
  // Agrees on a ring from a_ to b_.
  void Join(const transport::Flow& flow) {
    ASSERT_TRUE(Send(a_, flow, 32, 1));
    ASSERT_TRUE(Work([&] { return UsesMemory(a_, b_); }));
    ASSERT_EQ(Receive(b_, 1).size(), 1u);
  }

  Lane a_, b_;
};

TEST_F(MemoryPortTest, TheFirstPacketsGoByUdpAndLaterOnesByMemory) {
  const auto flow = FlowOf(a_, b_);
  ASSERT_TRUE(Send(a_, *flow, 32, 1));
  EXPECT_FALSE(UsesMemory(a_, b_));
  // Not read before the ring: it must come first all the same.
  ASSERT_TRUE(Work([&] { return UsesMemory(a_, b_); }));
  EXPECT_GT(a_.rooms, 0);
  ASSERT_TRUE(Send(a_, *flow, 5000, 2));
  ASSERT_TRUE(Send(a_, *flow, 48, 3));
  const std::vector<Arrival> got = Receive(b_, 3);
  ASSERT_EQ(got.size(), 3u);
  EXPECT_TRUE(got[0].batch.has_icrc);
  EXPECT_EQ(got[0].bytes.size(), 32u);
  for (size_t i : {1u, 2u}) {
    const transport::GroBatch& batch = got[i].batch;
    EXPECT_FALSE(batch.has_icrc);
    EXPECT_EQ(batch.source, a_.local.address);
    EXPECT_EQ(batch.destination, b_.local.address);
    EXPECT_EQ(batch.source_port, flow->av.source_port);
    EXPECT_EQ(batch.hop_limit, flow->av.hop_limit);
    EXPECT_EQ(batch.segment_size, got[i].bytes.size());
  }
  Bytes expected(5000, 2);
  std::fill(expected.end() - 4, expected.end(), 0);  // no ICRC
  EXPECT_EQ(got[1].bytes, expected);
  EXPECT_EQ(got[2].bytes[0], 3);
  EXPECT_EQ(a_.port->counters().memory_tx_bursts, 2u);
  EXPECT_EQ(b_.port->counters().memory_rx_batches, 2u);
  // One direction only.
  EXPECT_FALSE(UsesMemory(b_, a_));
}

// Nothing is sent for a moment before the medium changes, so that no packet by
// memory overtakes one by UDP.
TEST_F(MemoryPortTest, TheFlowWaitsWhileTheMediumChanges) {
  const auto flow = FlowOf(a_, b_);
  ASSERT_TRUE(Send(a_, *flow, 32, 1));
  ASSERT_TRUE(Work(
      [&] { return a_.port->Begin(*flow) == nullptr || UsesMemory(a_, b_); }));
  ASSERT_FALSE(UsesMemory(a_, b_));
  EXPECT_TRUE(a_.port->only_that_flow());
  EXPECT_TRUE(a_.port->must_retry());
  EXPECT_FALSE(a_.port->blocked());
  ASSERT_TRUE(Work([&] { return UsesMemory(a_, b_); }));
  EXPECT_FALSE(a_.port->must_retry());
}

TEST_F(MemoryPortTest, AFlowToALaneWithoutMemoryStaysWithUdp) {
  b_.slot = 7;  // nobody listens for it
  const auto flow = FlowOf(a_, b_);
  ASSERT_TRUE(Send(a_, *flow, 32, 1));
  ASSERT_TRUE(Work([&] { return a_.rooms != 0; }));
  for (uint8_t i = 0; i < 20; ++i) ASSERT_TRUE(Send(a_, *flow, 32, i));
  const std::vector<Arrival> got = Receive(b_, 21);
  ASSERT_EQ(got.size(), 21u);
  for (const Arrival& arrival : got) EXPECT_TRUE(arrival.batch.has_icrc);
}

TEST_F(MemoryPortTest, DatagramFlowsGoByUdp) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  flow->peer_qpn = 0;
  ASSERT_TRUE(Send(a_, *flow, 32, 1));
  const std::vector<Arrival> got = Receive(b_, 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_TRUE(got[0].batch.has_icrc);
}

TEST_F(MemoryPortTest, AFullRingHoldsItsFlowAloneUntilThereIsRoom) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  size_t sent = 0;
  while (Send(a_, *flow, 4096, 1)) ++sent;
  EXPECT_TRUE(a_.port->only_that_flow());
  EXPECT_TRUE(a_.port->must_retry());
  EXPECT_FALSE(a_.port->blocked());
  EXPECT_EQ(a_.port->counters().memory_tx_full, 1u);
  EXPECT_GT(sent, 20u);
  // Another flow may send.
  Lane other;
  other.local = b_.local;
  other.slot = 9;
  EXPECT_TRUE(Send(a_, *FlowOf(a_, other), 32, 1));
  const int rooms = a_.rooms;
  (void)a_.port->Receive(false);
  EXPECT_EQ(a_.rooms, rooms);
  EXPECT_EQ(Receive(b_, sent + 1).size(), sent + 1);
  (void)a_.port->Receive(false);
  EXPECT_EQ(a_.rooms, rooms + 1);
  EXPECT_FALSE(a_.port->must_retry());
  EXPECT_TRUE(Send(a_, *flow, 4096, 1));
  EXPECT_EQ(a_.port->counters().memory_tx_dropped, 0u);
}

// A stopped process looks as over UDP: packets to it are lost.
TEST_F(MemoryPortTest, BurstsToAReaderThatDoesNotReadAreDropped) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  size_t sent = 0;
  while (Send(a_, *flow, 4096, 1)) ++sent;
  test_now += MemoryPort::kPatience - 1;
  (void)a_.port->Receive(false);
  EXPECT_TRUE(a_.port->must_retry());
  test_now += 1;
  const int rooms = a_.rooms;
  (void)a_.port->Receive(false);
  EXPECT_EQ(a_.rooms, rooms + 1);
  EXPECT_TRUE(Send(a_, *flow, 4096, 2));
  EXPECT_TRUE(Send(a_, *flow, 4096, 2));
  EXPECT_EQ(a_.port->counters().memory_tx_dropped, 2u);
  // It goes on.
  for (const Arrival& arrival : Receive(b_, sent)) {
    EXPECT_EQ(arrival.bytes[0], 1);
  }
  ASSERT_TRUE(Send(a_, *flow, 4096, 3));
  const std::vector<Arrival> got = Receive(b_, 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].bytes[0], 3);
}

TEST_F(MemoryPortTest, AReceiverThatWaitsIsWokenOnce) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  pollfd wake = {b_.port->ReceiveDescriptors().back(), POLLIN, 0};
  b_.port->PrepareWait();
  EXPECT_EQ(::poll(&wake, 1, 0), 0);
  ASSERT_TRUE(Send(a_, *flow, 32, 1));
  EXPECT_EQ(::poll(&wake, 1, 0), 1);
  ASSERT_TRUE(Send(a_, *flow, 32, 2));
  EXPECT_EQ(a_.port->counters().memory_wakes, 1u);
  EXPECT_EQ(Receive(b_, 2).size(), 2u);
  // Awake: no system call.
  ASSERT_TRUE(Send(a_, *flow, 32, 3));
  EXPECT_EQ(a_.port->counters().memory_wakes, 1u);
  // What was left unread wakes at once.
  b_.port->PrepareWait();
  EXPECT_EQ(::poll(&wake, 1, 0), 1);
  EXPECT_EQ(Receive(b_, 1).size(), 1u);
  b_.port->PrepareWait();
  EXPECT_EQ(::poll(&wake, 1, 0), 0);
}

// The other lane is closed, or its process is no more.
TEST_F(MemoryPortTest, AfterTheEndOfThePeerTheFlowGoesByUdp) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  while (Send(a_, *flow, 4096, 1)) {
  }
  b_.port.reset();
  ASSERT_TRUE(Work([&] { return !UsesMemory(a_, b_); }));
  EXPECT_FALSE(a_.port->must_retry());
  EXPECT_TRUE(Send(a_, *flow, 32, 1));  // to nobody
  Open(&b_, "127.0.0.2", 6);
  ASSERT_TRUE(Send(a_, *flow, 32, 7));
  const std::vector<Arrival> got = Receive(b_, 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].bytes[0], 7);
  EXPECT_TRUE(got[0].batch.has_icrc);
}

TEST_F(MemoryPortTest, ThePeersRingIsFreedWithTheSender) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  ASSERT_TRUE(Send(a_, *flow, 32, 7));
  a_.port.reset();
  for (int i = 0; i < 100; ++i) {  // more than there are bits
    Open(&a_, "127.0.0.1", 5);
    const auto again = FlowOf(a_, b_);
    Join(*again);
    ASSERT_TRUE(Send(a_, *again, 32, 8));
    ASSERT_EQ(Receive(b_, 1).size(), 1u) << i;
    a_.port.reset();
    // The end is seen before the next beginning.
    b_.port->control_task()->Run([](const auto& run) { run(); });
  }
}

TEST_F(MemoryPortTest, AChildOfForkHasNone) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    a_.port->AbandonInChild();
    b_.port->AbandonInChild();
    const bool closed = a_.port->control_task()->fd() == -1;
    a_.port.reset();
    b_.port.reset();
    ::_exit(closed ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(Send(a_, *flow, 32, 7));
  EXPECT_EQ(Receive(b_, 1).size(), 1u);
  EXPECT_TRUE(UsesMemory(a_, b_));
}

}  // namespace
}  // namespace rxe_user
