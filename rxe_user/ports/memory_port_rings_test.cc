// The rings of a memory port: when they are made, and when they end.
#include <errno.h>
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "rxe_user/base/unique_fd.h"
#include "rxe_user/ports/memory_port.h"
#include "rxe_user/ports/memory_port_fixture.h"
#include "rxe_user/testing/net_namespace.h"
#include "rxe_user/testing/refused_calls.h"
#include "transport/testing/scarce_memory.h"

namespace rxe_user {
namespace {

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
  for (size_t i = 0; i <= MemoryLinks::kMax; ++i) {
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
  for (size_t i = 0; i < MemoryLinks::kMax; ++i) ASSERT_TRUE(uses_memory(i));
  EXPECT_FALSE(uses_memory(MemoryLinks::kMax));
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
  EXPECT_TRUE(uses_memory(MemoryLinks::kMax));
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

}  // namespace
}  // namespace rxe_user
