// Two lanes' ports in one process. The test does the control threads' work, so
// the lanes find each other step by step, when the test says so.
#include "rxe_user/ports/memory_port.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "rxe_user/base/close_elsewhere.h"
#include "rxe_user/base/qpn.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/ports/socket_io.h"
#include "rxe_user/testing/descriptors.h"
#include "rxe_user/testing/loopback_port.h"
#include "rxe_user/testing/net_namespace.h"
#include "rxe_user/testing/refused_calls.h"
#include "transport/base/flow.h"
#include "transport/testing/scarce_memory.h"

namespace rxe_user {
namespace {

using Bytes = std::vector<uint8_t>;
using transport::kMillisecond;

transport::Time test_now = 0;
transport::Time TestClock() { return test_now; }

bool IsReadable(int fd) {
  pollfd p = {fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}

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
    lane->port = *MemoryPort::Create(*CreateSocketPort(), &TestClock,
                                     MemoryLinks::OwnProcess::kToo);
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
  // Does the control threads' work until `done` is true. False after half a
  // minute.
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
  // Sends a packet of `bytes` bytes, all `fill` except the ICRC. False:
  // refused.
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
  // Receives `count` packets, and waits for those by UDP.
  static std::vector<Arrival> Receive(Lane& lane, size_t count) {
    std::vector<Arrival> all;
    for (int i = 0; i < 1'000'000 && all.size() < count; ++i) {
      for (const transport::GroBatch& batch : lane.port->Receive(true)) {
        all.push_back({{batch.bytes.begin(), batch.bytes.end()}, batch});
      }
    }
    return all;
  }
  // Sends until the lane asks for a ring: kFirst packets.
  static constexpr size_t kFirst = MemoryPort::kFirstTry + 1;
  static void SendFirst(Lane& from, const transport::Flow& flow) {
    for (size_t i = 0; i < kFirst; ++i) ASSERT_TRUE(Send(from, flow, 32, 1));
  }
  // Does what a lane's control thread does when its descriptor is readable.
  static void Run(const Lane& lane) {
    lane.port->control_task()->Run([](const auto& call) { call(); });
  }
  // Writes an impossible position into the ring of `flow`, as its reader could,
  // and sends until the writer notices.
  static bool BreakRing(Lane& from, const transport::Flow& flow) {
    transport::Burst* const burst = from.port->Begin(flow);
    if (burst == nullptr) return false;
    uint8_t* const packet = burst->Reserve(32);
    const uintptr_t page = sysconf(_SC_PAGESIZE);
    // The ring is empty, so the packet is near its start.
    auto* const ring = reinterpret_cast<RingMemory*>(
        reinterpret_cast<uintptr_t>(packet) / page * page -
        offsetof(RingMemory, records));
    ring->head = ~uint64_t{0};
    for (int i = 0; i < 100; ++i) {
      if (!Send(from, flow, 4096, 1)) return false;
      if (from.port->counters().memory_broken != 0) return true;
    }
    return false;
  }
  // The number of mappings of rings in this process.
  static int CountRings() {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);) {
      uintptr_t begin, end;
      if (line.find("/memfd:rxe_user-memory") != std::string::npos &&
          std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2 &&
          end - begin == sizeof(RingMemory)) {
        ++count;
      }
    }
    return count;
  }
  // Both agree on a ring from a_ to b_. Agree returns before the pause, Join
  // after it.
  void Agree(const transport::Flow& flow) {
    SendFirst(a_, flow);
    ASSERT_TRUE(Work([&] { return a_.port->Begin(flow) == nullptr; }));
  }
  void Pause(Lane& lane) {
    test_now += MemoryPort::kPause;
    (void)lane.port->Receive(false);
  }
  void Join(const transport::Flow& flow) {
    Agree(flow);
    Pause(a_);
    ASSERT_TRUE(UsesMemory(a_, b_));
    ASSERT_EQ(Receive(b_, kFirst).size(), kFirst);
  }

  Lane a_, b_;
};

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
  // It is not read before there is a ring, but must come first all the same.
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

// The other lane is closed, or its process has ended.
TEST_F(MemoryPortTest, AfterTheEndOfThePeerTheFlowGoesByUdp) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  while (Send(a_, *flow, 4096, 1)) {
  }
  b_.port.reset();
  ASSERT_TRUE(Work([&] { return !UsesMemory(a_, b_); }));
  const int rooms = a_.rooms;
  (void)a_.port->Receive(false);
  EXPECT_EQ(a_.rooms, rooms + 1);
  EXPECT_FALSE(a_.port->must_retry());
  EXPECT_TRUE(Send(a_, *flow, 32, 1));  // no lane receives it
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
    // The end is noticed before the next ring begins.
    Run(b_);
  }
}

// An address may move to another host. By UDP, packets to it then go there.
TEST_F(MemoryPortTest, ARingEndsWithAnAddressOfTheHost) {
  const char* const address = "10.11.12.13";
  if (!SetLoopbackAddress(address, true)) GTEST_SKIP() << "needs root";
  b_.port.reset();
  Open(&b_, address, 6);
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  b_.port->control_task()->OnAddressesChanged();  // of another address
  Run(b_);
  Run(a_);
  EXPECT_TRUE(UsesMemory(a_, b_));
  ASSERT_TRUE(SetLoopbackAddress(address, false));
  b_.port->control_task()->OnAddressesChanged();
  ASSERT_TRUE(Work([&] { return !UsesMemory(a_, b_); }));
  // There is no new ring.
  (void)Send(a_, *flow, 32, 1);
  a_.port.reset();
  Open(&a_, "127.0.0.1", 5);
  SendFirst(a_, *FlowOf(a_, b_));
  for (int i = 0; i < 10; ++i) {
    Run(a_);
    Run(b_);
  }
  Pause(a_);
  EXPECT_EQ(CountRings(), 0);
}

// A failure to check the address does not mean that it is gone.
TEST_F(MemoryPortTest, ARingStaysIfTheSystemIsShortOfDescriptors) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  bool refused = false;
  std::thread([&] {
    refused = RefuseCall(SYS_socket, EMFILE);
    if (!refused) return;
    b_.port->control_task()->OnAddressesChanged();
    Run(b_);
  }).join();
  if (!refused) GTEST_SKIP() << "no seccomp filters here";
  Run(a_);
  EXPECT_TRUE(UsesMemory(a_, b_));
}

// A ring is broken, and the lane has asked for another one for the same route
// before it is told of the end of the first. It used to ask for a third.
TEST_F(MemoryPortTest, TheEndOfABrokenRingIsNotThatOfTheNextOne) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  ASSERT_TRUE(BreakRing(a_, *flow));
  EXPECT_EQ(a_.port->counters().memory_broken, 1u);
  // More bursts than before the next try, and more than before the one after
  // it.
  for (const int bursts : {1100, 2200}) {
    for (int i = 0; i < bursts; ++i) {
      ASSERT_TRUE(Send(a_, *flow, 32, 2));
      (void)b_.port->Receive(true);
    }
    Run(a_);
  }
  ASSERT_TRUE(Work([&] { return a_.port->Begin(*flow) == nullptr; }));
  Pause(a_);
  ASSERT_TRUE(UsesMemory(a_, b_));
  for (int i = 0; i < 10; ++i) {
    Run(a_);
    Run(b_);
  }
  EXPECT_TRUE(UsesMemory(a_, b_));
  while (!b_.port->Receive(true).empty()) {
  }
  ASSERT_TRUE(Send(a_, *flow, 32, 9));
  const std::vector<Arrival> got = Receive(b_, 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_FALSE(got[0].batch.has_icrc);
  // One ring is left.
  EXPECT_EQ(CountRings(), 2);  // both ends are in this process
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
// memory, on all its lanes. The lanes of the other tests are of one process
// too, but they are made so that they may have rings.
TEST_F(MemoryPortTest, AFlowWithinAProcessGoesByUdp) {
  b_.port.reset();
  a_.port =
      *MemoryPort::Create(*CreateSocketPort(), MemoryLinks::OwnProcess::kByUdp);
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

class SoftLimit {
 public:
  explicit SoftLimit(rlim_t descriptors) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit limit = {descriptors, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~SoftLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(MemoryPortTest, AFlowWithinALaneMayUseARingForTests) {
  a_.port = *MemoryPort::Create(*CreateSocketPort(), &TestClock,
                                MemoryLinks::OwnProcess::kAtOnce);
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

// --- Rings that are not used.

TEST_F(MemoryPortTest, ARingThatIsNotUsedIsGivenUp) {
  constexpr auto kNever = Port::ControlTask::Clock::time_point::max();
  const Port::ControlTask& task = *a_.port->control_task();
  EXPECT_EQ(task.time(), kNever);
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  ASSERT_TRUE(Send(a_, *flow, 32, 2));
  ASSERT_EQ(Receive(b_, 1).size(), 1u);
  Run(a_);
  test_now += MemoryPort::kUnused - 1;
  Run(a_);
  EXPECT_TRUE(UsesMemory(a_, b_));
  EXPECT_LT(task.time(), kNever);
  test_now += 1;
  Run(a_);
  EXPECT_FALSE(UsesMemory(a_, b_));
  EXPECT_EQ(task.time(), kNever);
  ASSERT_TRUE(Work([] { return CountRings() == 0; }));
  // A new ring is possible.
  Join(*flow);
  ASSERT_TRUE(Send(a_, *flow, 32, 3));
  const std::vector<Arrival> got = Receive(b_, 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_FALSE(got[0].batch.has_icrc);
}

TEST_F(MemoryPortTest, ARingThatIsUsedStays) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(Send(a_, *flow, 32, 2));
    ASSERT_EQ(Receive(b_, 1).size(), 1u);
    test_now += MemoryPort::kUnused;
    Run(a_);
    EXPECT_TRUE(UsesMemory(a_, b_));
  }
}

TEST_F(MemoryPortTest, ARingWithPacketsStays) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  ASSERT_TRUE(Send(a_, *flow, 32, 2));
  for (int i = 0; i < 5; ++i) {
    test_now += MemoryPort::kUnused;
    Run(a_);
    EXPECT_TRUE(UsesMemory(a_, b_));
  }
  ASSERT_EQ(Receive(b_, 1).size(), 1u);
  Run(a_);
  EXPECT_FALSE(UsesMemory(a_, b_));
}

// The peer's packets used to go by UDP for as long as the other 64 rings
// existed.
TEST_F(MemoryPortTest, ALanesNextPeerGetsTheRingOfASilentOne) {
  const SoftLimit limit(4096);
  std::vector<std::unique_ptr<transport::Flow>> flows;
  const auto uses_memory = [&](size_t i) {
    return a_.port->UsesMemory(a_.local.address, b_.local.address,
                               flows[i]->peer_qpn);
  };
  for (size_t i = 0; i <= MemoryLinks::kMost; ++i) {
    b_.slot = static_cast<uint16_t>(10 + i);
    b_.port->AddSlot(b_.slot);
    flows.push_back(FlowOf(a_, b_));
    SendFirst(a_, *flows[i]);
    (void)Receive(b_, kFirst);
    for (int turn = 0; turn < 3; ++turn) {
      Run(a_);
      Run(b_);
    }
  }
  test_now += MemoryPort::kPause;
  for (const auto& flow : flows) ASSERT_TRUE(Send(a_, *flow, 32, 2));
  ASSERT_EQ(Receive(b_, flows.size()).size(), flows.size());
  for (size_t i = 0; i < MemoryLinks::kMost; ++i) ASSERT_TRUE(uses_memory(i));
  EXPECT_FALSE(uses_memory(MemoryLinks::kMost));
  Run(a_);
  test_now += MemoryPort::kUnused;
  Run(a_);
  ASSERT_TRUE(Work([] { return CountRings() == 0; }));
  // The lane asks again after some bursts by UDP.
  const transport::Flow& last = *flows.back();
  for (int i = 0; i < 2000; ++i) {
    if (!Send(a_, last, 32, 3)) break;
    (void)Receive(b_, 1);
    Run(a_);
    Run(b_);
  }
  test_now += MemoryPort::kPause;
  ASSERT_TRUE(Send(a_, last, 32, 4));
  EXPECT_TRUE(uses_memory(MemoryLinks::kMost));
}

// --- The lane's threads and the control thread.

// The lane used to wait until the control thread had done all its work.
TEST_F(MemoryPortTest, ALaneThatAsksForARingDoesNotWait) {
  const auto flow = FlowOf(a_, b_);
  SendFirst(a_, *flow);
  std::mutex lane;
  std::promise<int> listener;
  std::thread control([&] {
    const int fd = InterceptCall(SYS_memfd_create);
    listener.set_value(fd);
    if (fd < 0) return;
    a_.port->control_task()->Run([&](const auto& call) {
      const std::lock_guard<std::mutex> lock(lane);
      call();
    });
  });
  const UniqueFd calls(listener.get_future().get());
  if (!calls.valid()) {
    control.join();
    GTEST_SKIP() << "no seccomp listener here";
  }
  pollfd ready = {calls.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 30'000), 1);
  seccomp_notif call = {};
  EXPECT_EQ(::ioctl(calls.get(), SECCOMP_IOCTL_NOTIF_RECV, &call), 0);
  b_.slot = 7;
  const auto other = FlowOf(a_, b_);
  const std::future<void> asks = std::async(std::launch::async, [&] {
    const std::lock_guard<std::mutex> lock(lane);
    SendFirst(a_, *other);
  });
  EXPECT_EQ(asks.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  seccomp_notif_resp response = {};
  response.id = call.id;
  response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  EXPECT_EQ(::ioctl(calls.get(), SECCOMP_IOCTL_NOTIF_SEND, &response), 0);
  asks.wait();
  control.join();
}

// Rings are made in turns, so that the first of them need not wait for the
// last.
TEST_F(MemoryPortTest, ManyRingsAreMadeInTurns) {
  const SoftLimit limit(4096);
  std::vector<std::unique_ptr<transport::Flow>> flows;
  for (size_t i = 0; i < 40; ++i) {
    b_.slot = static_cast<uint16_t>(10 + i);
    b_.port->AddSlot(b_.slot);
    flows.push_back(FlowOf(a_, b_));
    SendFirst(a_, *flows[i]);
  }
  Run(a_);
  EXPECT_GT(CountRings(), 0);
  EXPECT_LT(CountRings(), 40);
  EXPECT_TRUE(IsReadable(a_.port->control_task()->fd()));
  EXPECT_TRUE(Work([&] {
    return std::ranges::none_of(flows, [&](const auto& flow) {
      return a_.port->Begin(*flow) != nullptr;
    });
  }));
}

// --- Lack of memory.

class ScarceMemory {
 public:
  explicit ScarceMemory(int allocations) {
    transport::allocations_left = allocations;
    transport::refuse_allocation = &transport::RefuseWhenNoneIsLeft;
  }
  ~ScarceMemory() {
    transport::refuse_allocation = nullptr;
    transport::allocations_left = transport::kUnlimited;
  }
};

// The port used to keep a ring that was no longer mapped.
TEST_F(MemoryPortTest, AnEndWithoutMemoryIsNotForgotten) {
  for (int n = 0; n < 8; ++n) {
    const auto flow = FlowOf(a_, b_);
    Join(*flow);
    b_.port.reset();
    try {
      const ScarceMemory scarce(n);
      Run(a_);
    } catch (const std::bad_alloc&) {
    }
    ASSERT_TRUE(Work([&] { return !UsesMemory(a_, b_); })) << n;
    EXPECT_TRUE(Send(a_, *flow, 32, 1));
    a_.port.reset();
    SetUp();
  }
}

TEST_F(MemoryPortTest, NeitherIsABeginning) {
  for (int n = 0; n < 24; ++n) {
    const auto flow = FlowOf(a_, b_);
    SendFirst(a_, *flow);
    for (const Lane* lane : {&a_, &b_, &a_}) {
      try {
        const ScarceMemory scarce(n);
        lane->port->control_task()->Run([](const auto& run) { run(); });
      } catch (const std::bad_alloc&) {
      }
    }
    // Either there is a ring, or the flow still goes by UDP.
    for (int i = 0; i < 10; ++i) {
      Run(a_);
      Run(b_);
    }
    if (a_.port->Begin(*flow) == nullptr) Pause(a_);
    ASSERT_TRUE(Send(a_, *flow, 32, 2)) << n;
    EXPECT_EQ(Receive(b_, kFirst + 1).size(), kFirst + 1);
    a_.port.reset();
    b_.port.reset();
    a_.rooms = 0;
    SetUp();
  }
}

// --- Descriptors.

// A child process that keeps the sockets open, since it does not run fork
// guards.
class Keeper {
 public:
  // fork(2) that runs no handlers; arm64 has no call of that name.
  Keeper()
      : child_(static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr,
                                            nullptr, nullptr, nullptr))) {
    if (child_ == 0) {
      for (;;) ::pause();
    }
  }
  ~Keeper() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  const pid_t child_;
};

// Low descriptors are left to the program, which may use select(2).
TEST_F(MemoryPortTest, ARingTakesNoLowNumbers) {
  const auto flow = FlowOf(a_, b_);
  const SoftLimit limit(512);
  SendFirst(a_, *flow);
  for (int i = 0; i < 10; ++i) {
    Run(a_);
    Run(b_);
  }
  EXPECT_NE(a_.port->Begin(*flow), nullptr);
  EXPECT_EQ(CountRings(), 0);
}

// Rings use only a part of the soft limit of descriptors. Further peers get
// their packets by UDP.
TEST_F(MemoryPortTest, RingsLeaveDescriptorsToTheProgram) {
  const SoftLimit limit(1040);
  std::array<Lane, 40> lanes;
  std::vector<std::unique_ptr<transport::Flow>> flows;
  for (size_t i = 0; i < lanes.size(); ++i) {
    Open(&lanes[i], ("127.0.1." + std::to_string(i + 1)).c_str(),
         static_cast<uint16_t>(10 + i));
    flows.push_back(FlowOf(lanes[i], b_));
    SendFirst(lanes[i], *flows.back());
    for (int turn = 0; turn < 3; ++turn) {
      Run(lanes[i]);
      Run(b_);
    }
    Run(lanes[i]);
  }
  test_now += MemoryPort::kPause;
  size_t rings = 0;
  for (size_t i = 0; i < lanes.size(); ++i) {
    ASSERT_TRUE(Send(lanes[i], *flows[i], 32, 2));
    rings += UsesMemory(lanes[i], b_) ? 1 : 0;
  }
  EXPECT_EQ(rings, 1040u / 16 / 2);  // both ends are in this process
}

// The control thread used to run endlessly.
TEST_F(MemoryPortTest, ShortDescriptorsAreWaitedFor) {
  const auto flow = FlowOf(a_, b_);
  SendFirst(a_, *flow);
  Run(a_);
  Port::ControlTask& task = *b_.port->control_task();
  ASSERT_TRUE(IsReadable(task.fd()));
  bool refused = false;
  std::thread([&] {
    refused = RefuseCall(SYS_accept4, EMFILE);
    if (refused) Run(b_);
  }).join();
  if (!refused) GTEST_SKIP() << "no seccomp filters here";
  EXPECT_EQ(task.fd(), -1);
  EXPECT_LT(task.time(), Port::ControlTask::Clock::time_point::max());
  // Then it continues.
  EXPECT_TRUE(Work([&] { return a_.port->Begin(*flow) == nullptr; }));
  EXPECT_NE(task.fd(), -1);
}

// A connection that waits in a listener may be another user's, and closing it
// may block.
TEST_F(MemoryPortTest, AListenerIsKeptWhileDescriptorsAreShort) {
  SendFirst(a_, *FlowOf(a_, b_));
  Run(a_);
  bool refused = false;
  std::thread([&] {
    refused = RefuseCall(SYS_accept4, EMFILE);
    if (refused) b_.port->RemoveReceiver(b_.local.address);
  }).join();
  if (!refused) GTEST_SKIP() << "no seccomp filters here";
  // The waiting control thread is woken.
  Port::ControlTask& task = *b_.port->control_task();
  EXPECT_TRUE(IsReadable(task.fd()));
  Run(b_);
  EXPECT_NE(task.fd(), -1);
  EXPECT_FALSE(IsReadable(task.fd()));
}

// A closed listener used to stay in the epoll set, so that the control thread
// never slept again.
TEST_F(MemoryPortTest, AClosedListenerIsNotWatched) {
  const Keeper keeper;
  a_.port->RemoveReceiver(a_.local.address);
  const auto flow = FlowOf(b_, a_);
  SendFirst(b_, *flow);
  Run(b_);
  EXPECT_FALSE(IsReadable(a_.port->control_task()->fd()));
  EXPECT_FALSE(UsesMemory(b_, a_));
}

TEST_F(MemoryPortTest, AClosedConnectionIsNotWatched) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  const Keeper keeper;
  b_.port.reset();
  ASSERT_TRUE(Work([&] { return !UsesMemory(a_, b_); }));
  Run(a_);
  EXPECT_FALSE(IsReadable(a_.port->control_task()->fd()));
}

// A socket that was reported readable may have no data (select(2), "BUGS").
TEST_F(MemoryPortTest, ASocketThatHasNothingIsAskedAgain) {
  const auto flow = FlowOf(a_, b_);
  SendFirst(a_, *flow);
  Run(a_);
  Run(b_);  // accepts
  bool refused = false;
  std::thread([&] {
    refused = RefuseCall(SYS_recvmsg, EAGAIN);
    if (refused) Run(b_);
  }).join();
  if (!refused) GTEST_SKIP() << "no seccomp filters here";
  EXPECT_TRUE(Work([&] { return a_.port->Begin(*flow) == nullptr; }));
}

// --- Other users.

sockaddr_un NameOf(const char* address, int slot, socklen_t* size) {
  const std::string text =
      std::string("rxe_user-memory-") + address + "-0-" + std::to_string(slot);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, text.data(), text.size());
  *size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

// A process of another user that connects to a lane, and leaves a descriptor in
// the connection whose last close takes minutes.
class ForeignClient {
 public:
  ForeignClient(const char* address, int slot) {
    int said[2];
    EXPECT_EQ(::pipe2(said, O_CLOEXEC), 0);
    child_ = ::fork();
    if (child_ == 0) {
      socklen_t size;
      const sockaddr_un name = NameOf(address, slot, &size);
      const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
      UniqueFd slow = SlowToClose();
      const uint8_t byte = 0;
      if (::setresuid(12345, 12345, 12345) == 0 &&
          ::connect(fd, reinterpret_cast<const sockaddr*>(&name), size) == 0 &&
          SendWithDescriptors(fd, {&byte, 1}, {slow.get()})) {
        slow.Reset();  // not the last close
        (void)!::write(said[1], &byte, 1);
      }
      for (;;) ::pause();
    }
    ::close(said[1]);
    char byte;
    EXPECT_EQ(::read(said[0], &byte, 1), 1);
    ::close(said[0]);
  }
  ~ForeignClient() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  pid_t child_;
};

// The number of this process's descriptors that are sockets.
int CountSockets() {
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    count += target.string().starts_with("socket:") ? 1 : 0;
  }
  return count;
}

// Waits for `call`, which runs in another thread. False if it has not returned
// after ten seconds.
bool Returns(std::future<void>* call) {
  return call->wait_for(std::chrono::seconds(10)) == std::future_status::ready;
}

TEST_F(MemoryPortTest, AnAddressIsRemovedInSpiteOfAnotherUsersConnection) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  std::future<void> removed;
  const ForeignClient foreign("127.0.0.1", a_.slot);
  removed = std::async(std::launch::async,
                       [this] { a_.port->RemoveReceiver(a_.local.address); });
  EXPECT_TRUE(Returns(&removed));
}

TEST_F(MemoryPortTest, ALaneIsClosedInSpiteOfAnotherUsersConnection) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  std::future<void> closed;
  const ForeignClient foreign("127.0.0.1", a_.slot);
  closed = std::async(std::launch::async, [this] { a_.port.reset(); });
  EXPECT_TRUE(Returns(&closed));
}

// Other users' connections used to stay open for ever. This must be the last
// test: after it, nothing can be closed.
TEST_F(MemoryPortTest, OtherUsersConnectionsAreKeptInTheListener) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  // Start the processes first: if one inherited a copy of a slow socket,
  // closing ours would return at once.
  const ForeignClient clients[] = {ForeignClient("127.0.0.1", a_.slot),
                                   ForeignClient("127.0.0.1", a_.slot),
                                   ForeignClient("127.0.0.1", a_.slot)};
  // The other end of each slow socket stays.
  const int before = CountSockets() + kMostClosing;
  for (int i = 0; i < kMostClosing; ++i) {
    UniqueFd slow = SlowToClose();
    ASSERT_TRUE(CloseElsewhere(slow));
  }
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (CountSockets() != before && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  ASSERT_EQ(CountSockets(), before) << "the threads do not close";
  a_.port->RemoveReceiver(a_.local.address);
  // One UDP socket less, one connection more.
  EXPECT_EQ(CountSockets(), before);
  Run(a_);
  EXPECT_EQ(a_.port->control_task()->fd(), -1);
  EXPECT_LT(a_.port->control_task()->time(),
            Port::ControlTask::Clock::time_point::max());
}

}  // namespace
}  // namespace rxe_user
