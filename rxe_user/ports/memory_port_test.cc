// Which packets go by shared memory, and how: the change of medium, full rings,
// waking, and the sockets beside the rings.
#include "rxe_user/ports/memory_port.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <thread>
#include <vector>

#include "rxe_user/ports/memory_port_fixture.h"
#include "rxe_user/ports/socket_io.h"
#include "rxe_user/testing/refused_calls.h"

namespace rxe_user {
namespace {

TEST_F(MemoryPortTest, TheFirstPacketsGoByUdpAndLaterOnesByMemory) {
  const auto flow = FlowOf(a_, b_);
  for (uint32_t i = 0; i < MemoryPort::kFirstTry; ++i) {
    ASSERT_TRUE(Send(a_, *flow, 32, 1));
  }
  Run(a_);
  Run(b_);
  Run(a_);
  EXPECT_NE(a_.port->Begin(*flow), nullptr);
  EXPECT_FALSE(UsesMemory(a_, b_));
  // This datagram is not read before there is a ring, and must still come
  // first.
  ASSERT_TRUE(Work([&] { return a_.port->Begin(*flow) == nullptr; }));
  Pause(a_);
  EXPECT_TRUE(UsesMemory(a_, b_));
  EXPECT_EQ(a_.rooms, 1);
  ASSERT_TRUE(Send(a_, *flow, 5000, 2));
  ASSERT_TRUE(Send(a_, *flow, 48, 3));
  std::vector<Arrival> got = Receive(b_, MemoryPort::kFirstTry + 2);
  ASSERT_EQ(got.size(), MemoryPort::kFirstTry + 2);
  for (uint32_t i = 1; i < MemoryPort::kFirstTry; ++i) {
    EXPECT_TRUE(got[0].batch.has_icrc);
    EXPECT_EQ(got[0].bytes.size(), 32u);
    got.erase(got.begin());
  }
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
  EXPECT_EQ(a_.port->counters().memory_tx_bytes, 5048u);
  EXPECT_EQ(b_.port->counters().memory_rx_batches, 2u);
  EXPECT_EQ(b_.port->counters().memory_rx_bytes, 5048u);
  // One direction only.
  EXPECT_FALSE(UsesMemory(b_, a_));
}

// Nothing is sent for a moment before the medium changes, so that no packet by
// memory overtakes one by UDP. The pause ends without the control thread, which
// may be busy for long.
TEST_F(MemoryPortTest, TheFlowWaitsWhileTheMediumChanges) {
  const auto flow = FlowOf(a_, b_);
  Agree(*flow);
  test_now += MemoryPort::kPause - 1;
  (void)a_.port->Receive(false);
  EXPECT_EQ(a_.port->Begin(*flow), nullptr);
  EXPECT_FALSE(UsesMemory(a_, b_));
  EXPECT_TRUE(a_.port->only_that_flow());
  EXPECT_TRUE(a_.port->must_retry());
  EXPECT_FALSE(a_.port->blocked());
  EXPECT_EQ(a_.rooms, 0);
  test_now += 1;
  (void)a_.port->Receive(false);
  EXPECT_EQ(a_.rooms, 1);
  EXPECT_FALSE(a_.port->must_retry());
  EXPECT_NE(a_.port->Begin(*flow), nullptr);
  EXPECT_TRUE(UsesMemory(a_, b_));
}

// Packets that the system refused may be of that flow, and must come first.
TEST_F(MemoryPortTest, TheFlowWaitsForPacketsThatTheSystemRefused) {
  const auto flow = FlowOf(a_, b_);
  Agree(*flow);
  const auto datagrams = FlowOf(a_, b_);
  datagrams->peer_qpn = 0;
  bool refused = false;
  std::thread([&] {  // the refusals end with the thread
    refused = RefuseCall(SYS_sendmsg, EAGAIN);
    if (!refused) return;
    RefuseCall(SYS_sendmmsg, EAGAIN);
    (void)Send(a_, *datagrams, 32, 1);
  })
      .join();
  if (!refused) GTEST_SKIP() << "no seccomp filters here";
  ASSERT_TRUE(a_.port->blocked());
  Pause(a_);
  EXPECT_EQ(a_.port->Begin(*flow), nullptr);
  a_.port->Flush();
  ASSERT_FALSE(a_.port->blocked());
  // The refused packets are sent only now.
  EXPECT_EQ(a_.port->Begin(*flow), nullptr);
  Pause(a_);
  EXPECT_NE(a_.port->Begin(*flow), nullptr);
  EXPECT_TRUE(UsesMemory(a_, b_));
}

// The flow used to wait for ever if packets of other flows were refused each
// time.
TEST_F(MemoryPortTest, TheFlowDoesNotWaitForThemForGood) {
  const auto flow = FlowOf(a_, b_);
  Agree(*flow);
  const auto datagrams = FlowOf(a_, b_);
  datagrams->peer_qpn = 0;
  bool refused = false;
  std::thread([&] {
    refused = RefuseCall(SYS_sendmsg, EAGAIN);
    if (!refused) return;
    RefuseCall(SYS_sendmmsg, EAGAIN);
    (void)Send(a_, *datagrams, 32, 1);
  }).join();
  if (!refused) GTEST_SKIP() << "no seccomp filters here";
  for (transport::Time t = 1; t < MemoryPort::kPatience; t += kMillisecond) {
    EXPECT_EQ(a_.port->Begin(*flow), nullptr);
    test_now += kMillisecond;
  }
  ASSERT_TRUE(a_.port->blocked());
  Pause(a_);
  EXPECT_NE(a_.port->Begin(*flow), nullptr);
  EXPECT_TRUE(UsesMemory(a_, b_));
}

TEST_F(MemoryPortTest, AFlowThatMayBeSentIsToldAgainIfMemoryWasShort) {
  const auto flow = FlowOf(a_, b_);
  bool scarce = true;
  int calls = 0;
  a_.port->WatchRoom([&] {
    ++calls;
    if (scarce) throw std::bad_alloc();
  });
  Agree(*flow);
  test_now += MemoryPort::kPause;
  EXPECT_THROW((void)a_.port->Receive(false), std::bad_alloc);
  EXPECT_TRUE(a_.port->must_retry());
  scarce = false;
  (void)a_.port->Receive(false);
  EXPECT_EQ(calls, 2);
  EXPECT_FALSE(a_.port->must_retry());
}

TEST_F(MemoryPortTest, AFlowToALaneWithoutMemoryStaysWithUdp) {
  b_.slot = 7;  // no lane listens for it
  const auto flow = FlowOf(a_, b_);
  SendFirst(a_, *flow);
  Run(a_);
  for (uint8_t i = 0; i < 20; ++i) ASSERT_TRUE(Send(a_, *flow, 32, i));
  const std::vector<Arrival> got = Receive(b_, kFirst + 20);
  ASSERT_EQ(got.size(), kFirst + 20);
  for (const Arrival& arrival : got) EXPECT_TRUE(arrival.batch.has_icrc);
}

// A flow to its own lane would wait while the medium changes, but posted
// packets must have arrived when memory is deregistered.
TEST_F(MemoryPortTest, AFlowWithinALaneGoesByUdp) {
  const auto flow = FlowOf(a_, a_);
  SendFirst(a_, *flow);
  for (int i = 0; i < 10; ++i) Run(a_);
  EXPECT_NE(a_.port->Begin(*flow), nullptr);
  test_now += MemoryPort::kPause;
  EXPECT_NE(a_.port->Begin(*flow), nullptr);
  EXPECT_FALSE(UsesMemory(a_, a_));
  EXPECT_EQ(CountRings(), 0);
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

// A stopped process looks the same as over UDP: packets to it are lost.
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
  // The reader continues.
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
  // Unread packets wake the lane at once.
  b_.port->PrepareWait();
  EXPECT_EQ(::poll(&wake, 1, 0), 1);
  EXPECT_EQ(Receive(b_, 1).size(), 1u);
  b_.port->PrepareWait();
  EXPECT_EQ(::poll(&wake, 1, 0), 0);
}

// The sockets are read first, but only for the packets that they had when the
// ring was made.
TEST_F(MemoryPortTest, SocketsThatNeverRunEmptyDoNotStarveANewRing) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  ASSERT_TRUE(Send(a_, *flow, 32, 2));
  const auto datagrams = FlowOf(a_, b_);
  datagrams->peer_qpn = 0;
  bool came = false;
  for (int i = 0; i < 100'000 && !came; ++i) {
    ASSERT_TRUE(Send(a_, *datagrams, 32, 3));
    for (const transport::GroBatch& batch : b_.port->Receive(true)) {
      came = came || !batch.has_icrc;
    }
  }
  EXPECT_TRUE(came);
}

// The last packets of a queue pair that is destroyed go by UDP if its ring has
// no room.
TEST_F(MemoryPortTest, LastPacketsGoByUdp) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  while (Send(a_, *flow, 4096, 1)) {
  }
  Port& last = a_.port->ForLastPackets();
  transport::Burst* const burst = last.Begin(*flow);
  ASSERT_NE(burst, nullptr);
  std::fill_n(burst->Reserve(32), 32, 9);
  burst->Commit();
  last.Queue();
  last.Flush();
  const std::vector<Arrival> got =
      Receive(b_, a_.port->counters().memory_tx_bursts + 1);
  const auto by_udp = std::ranges::count_if(
      got, [](const Arrival& arrival) { return arrival.batch.has_icrc; });
  EXPECT_EQ(by_udp, 1);
}

// A signal that arrived while the lane was awake used to stay in the eventfd
// for ever.
TEST_F(MemoryPortTest, TheSignalOfALaneThatHasEndedDoesNotStay) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  pollfd wake = {b_.port->ReceiveDescriptors().back(), POLLIN, 0};
  b_.port->PrepareWait();
  ASSERT_TRUE(Send(a_, *flow, 32, 1));
  EXPECT_EQ(Receive(b_, 1).size(), 1u);
  EXPECT_EQ(::poll(&wake, 1, 0), 1);
  a_.port.reset();
  Run(b_);
  b_.port->PrepareWait();
  EXPECT_EQ(::poll(&wake, 1, 0), 0);
}

// The peer may write as soon as it has the answer. The burst used to stay
// unread until the next one if the lane checked its other rings in between.
TEST_F(MemoryPortTest, ABurstBeforeTheLaneKnowsOfItsRingIsRead) {
  Join(*FlowOf(a_, b_));
  Lane c;
  Open(&c, "127.0.0.3", 7);
  const auto flow = FlowOf(c, b_);
  SendFirst(c, *flow);
  size_t udp = 0;
  const auto early = [&](const auto& call) {
    Run(c);
    test_now += MemoryPort::kPause;
    (void)c.port->Receive(false);
    ASSERT_TRUE(Send(c, *flow, 32, 9));
    ASSERT_EQ(c.port->counters().memory_tx_bursts, 1u);
    for (const transport::GroBatch& batch : b_.port->Receive(false)) {
      udp += batch.has_icrc ? 1 : 0;
    }
    call();
  };
  for (int i = 0; i < 10 && !UsesMemory(c, b_); ++i) {
    Run(c);
    b_.port->control_task()->Run(early);
  }
  ASSERT_TRUE(UsesMemory(c, b_));
  EXPECT_TRUE(IsReadable(b_.port->ReceiveDescriptors().back()));
  const std::vector<Arrival> got = Receive(b_, kFirst - udp + 1);
  ASSERT_EQ(got.size(), kFirst - udp + 1);
  EXPECT_EQ(got.back().bytes[0], 9);
  EXPECT_FALSE(got.back().batch.has_icrc);
}

TEST_F(MemoryPortTest, BusySocketsHaveTheirShare) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  const auto datagrams = FlowOf(a_, b_);
  datagrams->peer_qpn = 0;
  ASSERT_TRUE(Send(a_, *flow, 32, 2));  // until then the sockets are read first
  ASSERT_EQ(Receive(b_, 1).size(), 1u);
  int udp = 0;
  int memory = 0;
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(Send(a_, *flow, 32, 2));
    ASSERT_TRUE(Send(a_, *datagrams, 32, 3));
    const std::span<const transport::GroBatch> batches =
        b_.port->Receive(false);
    ASSERT_FALSE(batches.empty());
    ++(batches[0].has_icrc ? udp : memory);
  }
  EXPECT_GE(udp, 80);
  EXPECT_GE(memory, 80);
}

// Packets of a program to itself must have arrived when it deregisters the
// memory, on all its lanes. The other tests here have both ends in one process,
// so their lanes are made with rings (SelfTraffic::kRings).
TEST_F(MemoryPortTest, AFlowWithinAProcessGoesByUdp) {
  b_.port.reset();
  a_.port =
      *MemoryPort::Create(*CreateSocketPort(), MemoryLinks::SelfTraffic::kUdp);
  Open(&b_, "127.0.0.2", 6);
  const auto flow = FlowOf(a_, b_);
  SendFirst(a_, *flow);
  for (int i = 0; i < 10; ++i) {
    Run(a_);
    Run(b_);
  }
  EXPECT_NE(a_.port->Begin(*flow), nullptr);
  EXPECT_EQ(CountRings(), 0);
}

TEST_F(MemoryPortTest, AFlowWithinALaneMayUseARingForTests) {
  a_.port = *MemoryPort::Create(*CreateSocketPort(), &TestClock,
                                MemoryLinks::SelfTraffic::kRingsAtOnce);
  a_.port->AddSlot(a_.slot);
  const int fd = Bind(a_.local);
  ASSERT_GE(fd, 0);
  ASSERT_TRUE(a_.port->AddReceiver(a_.local, fd).ok());
  const auto flow = FlowOf(a_, a_);
  EXPECT_EQ(a_.port->Begin(*flow), nullptr);
  for (int i = 0; i < 10; ++i) Run(a_);
  EXPECT_EQ(a_.port->Begin(*flow), nullptr);
  Pause(a_);
  ASSERT_TRUE(Send(a_, *flow, 32, 1));
  const std::vector<Arrival> got = Receive(a_, 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_FALSE(got[0].batch.has_icrc);
}

}  // namespace
}  // namespace rxe_user
