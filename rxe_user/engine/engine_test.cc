// Two engines in one process, over loopback with real sockets.
#include <errno.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "rxe_user/engine/engine_impl.h"
#include "rxe_user/engine/engine_registry.h"
#include "rxe_user/ports/socket_io.h"
#include "rxe_user/testing/net_namespace.h"
#include "rxe_user/testing/node.h"
#include "rxe_user/testing/test_slots.h"
#include "rxe_user/testing/watched_thread.h"

namespace rxe_user {
namespace {

using transport::Completion;
using transport::WcOpcode;
using transport::WcStatus;

wire::IpAddress Address(const char* text) {
  return *wire::IpAddress::Parse(text);
}

std::vector<uint8_t> Pattern(size_t bytes, uint8_t first = 1) {
  std::vector<uint8_t> pattern(bytes);
  uint32_t x = first;
  for (uint8_t& b : pattern) {
    x = x * 1664525 + 1013904223;
    b = static_cast<uint8_t>(x >> 24);
  }
  return pattern;
}

class EngineTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!Address(GetParam()).is_v4() && !HaveIpv6()) {
      GTEST_SKIP() << "no IPv6 here";
    }
    Make();
  }
  void Make() {
    const wire::IpAddress address = Address(GetParam());
    a_ = std::make_unique<Node>(slots_, address, CreateSocketPort);
    b_ = std::make_unique<Node>(slots_, address, CreateSocketPort);
    a_->Connect(*b_);
    b_->Connect(*a_);
  }

  static void ExpectDone(const std::optional<Completion>& completion,
                         uint64_t id, WcOpcode opcode) {
    ASSERT_TRUE(completion.has_value()) << "nothing happened";
    EXPECT_EQ(completion->wr_id, id);
    EXPECT_EQ(completion->status, WcStatus::kSuccess);
    EXPECT_EQ(completion->opcode, opcode);
  }

  // Waits until the engines have nothing left to do for the last messages.
  void WaitUntilQuiet() {
    for (Node* node : {a_.get(), b_.get()}) {
      for (;;) {
        {
          const Lane::Guard guard(node->lane());
          transport::Endpoint& endpoint = node->lane().endpoint();
          if (endpoint.NextTimeout() == transport::kNever &&
              !endpoint.HasTransmit()) {
            break;
          }
        }
        std::this_thread::yield();
      }
    }
  }

  TestSlots slots_;
  std::unique_ptr<Node> a_;
  std::unique_ptr<Node> b_;
};

TEST_P(EngineTest, MovesSendWriteAndReadByPolling) {
  for (const uint32_t bytes : {0u, 1u, 64u, 4096u, 5000u, 1u << 20}) {
    std::vector<uint8_t> from = Pattern(bytes, 1);
    std::vector<uint8_t> to(bytes);
    ASSERT_EQ(b_->Receive(1, to.data(), bytes), 0);
    ASSERT_EQ(a_->Send(2, from.data(), bytes), 0);
    // One thread polls both ends.
    std::optional<Completion> sent;
    std::optional<Completion> received;
    const transport::Time limit = Lane::Now() + 10 * transport::kSecond;
    while ((!sent || !received) && Lane::Now() < limit) {
      a_->Progress();
      b_->Progress();
      if (!sent) sent = a_->cq().Poll();
      if (!received) received = b_->cq().Poll();
    }
    ExpectDone(received, 1, WcOpcode::kReceive);
    EXPECT_EQ(received->byte_len, bytes);
    ExpectDone(sent, 2, WcOpcode::kSend);
    EXPECT_EQ(from, to);

    from = Pattern(bytes, 2);
    ASSERT_EQ(a_->Write(3, from.data(), bytes, to.data()), 0);
    ExpectDone(a_->Poll(), 3, WcOpcode::kRdmaWrite);
    EXPECT_EQ(from, to);

    from = Pattern(bytes, 3);
    ASSERT_EQ(a_->Read(4, to.data(), bytes, from.data()), 0);
    ExpectDone(a_->Poll(), 4, WcOpcode::kRdmaRead);
    EXPECT_EQ(from, to);
  }
}

TEST_P(EngineTest, HelpersAloneMoveData) {
  const std::vector<uint8_t> from = Pattern(300'000);
  std::vector<uint8_t> to(from.size());
  const auto bytes = static_cast<uint32_t>(from.size());
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(a_->Write(1, from.data(), bytes, to.data()), 0);
    ExpectDone(a_->Watch(), 1, WcOpcode::kRdmaWrite);
    EXPECT_EQ(from, to);
    std::fill(to.begin(), to.end(), uint8_t{0});
  }
}

// With alternating periods of polling and silence, nothing is left unprocessed.
TEST_P(EngineTest, IntermittentPollingLosesNothing) {
  const std::vector<uint8_t> from = Pattern(100);
  std::vector<uint8_t> to(100);
  for (uint64_t i = 0; i < 500; ++i) {
    ASSERT_EQ(b_->Receive(i, to.data(), 100), 0);
    ASSERT_EQ(a_->Send(i, from.data(), 100), 0);
    ExpectDone(i % 3 == 0 ? b_->Watch() : b_->Poll(), i, WcOpcode::kReceive);
    ExpectDone(i % 5 == 0 ? a_->Watch() : a_->Poll(), i, WcOpcode::kSend);
  }
}

TEST_P(EngineTest, BlockedThreadsMakeProgress) {
  const std::vector<uint8_t> from = Pattern(2000);
  std::vector<uint8_t> to(2000);
  std::thread server([&] {
    for (uint64_t i = 0; i < 200; ++i) {
      ASSERT_EQ(b_->Receive(i, to.data(), 2000), 0);
      ExpectDone(b_->Wait(), i, WcOpcode::kReceive);
    }
  });
  const uint64_t before = b_->helper()->wakeups();
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_EQ(a_->Send(i, from.data(), 2000), 0);
    ExpectDone(a_->Wait(), i, WcOpcode::kSend);
  }
  server.join();
  EXPECT_EQ(from, to);
  // One wake-up per message, of the blocked thread: the helper sleeps through
  // most of them. (Messages that arrive between two waits may wake it.)
  EXPECT_LT(b_->helper()->wakeups() - before, 200u);
}

TEST_P(EngineTest, WaitReadableEndsWithASignal) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
  std::atomic<int> result = -1;
  std::thread waiter(
      [&] { result = a_->engine().WaitReadable(a_->cq().fd(), a_->lanes()); });
  while (result == -1) {
    ::pthread_kill(waiter.native_handle(), SIGUSR1);
    std::this_thread::yield();
  }
  waiter.join();
  EXPECT_EQ(result, EINTR);
}

// ibv_get_cq_event is a cancellation point, and programs rely on it.
TEST_P(EngineTest, WaitReadableCanBeCancelled) {
  std::atomic<bool> waiting = false;
  std::thread waiter([&] {
    waiting = true;
    a_->engine().WaitReadable(a_->cq().fd(), a_->lanes());
  });
  while (!waiting) std::this_thread::yield();
  ASSERT_EQ(::pthread_cancel(waiter.native_handle()), 0);
  waiter.join();
  // The helper has taken over.
  const std::vector<uint8_t> from = Pattern(100);
  std::vector<uint8_t> to(100);
  ASSERT_EQ(a_->Write(1, from.data(), 100, to.data()), 0);
  ExpectDone(a_->Watch(), 1, WcOpcode::kRdmaWrite);
}

// A thread that has waited since before there were sockets does not serve them,
// and must not count as a waiter.
TEST_P(EngineTest, AWaiterFromBeforeTheFirstQueuePairDoesNotServeTheLane) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  std::optional<WatchedThread> passive;
  std::optional<WatchedThread> early;
  a_ = std::make_unique<Node>(slots_, Address(GetParam()), CreateSocketPort);
  b_ = std::make_unique<Node>(
      slots_, Address(GetParam()), CreateSocketPort, [&](EngineImpl& engine) {
        early.emplace([&] {
          EXPECT_EQ(engine.WaitReadable(pipe_ends[0], OnlyLane(0)), 0);
        });
        passive.emplace(
            [&] { EXPECT_EQ(engine.WaitPassive(pipe_ends[0]), 0); });
        EXPECT_TRUE(early->AwaitSleep());
        EXPECT_TRUE(passive->AwaitSleep());
      });
  a_->Connect(*b_);
  b_->Connect(*a_);
  // Another thread waits, and stops waiting.
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::write(ready[1], "x", 1), 1);
  ASSERT_EQ(b_->engine().WaitReadable(ready[0], OnlyLane(0)), 0);
  // Now only b_'s helper serves the lane.
  const std::vector<uint8_t> from = Pattern(100);
  std::vector<uint8_t> to(100);
  ASSERT_EQ(a_->Write(1, from.data(), 100, to.data()), 0);
  ExpectDone(a_->Watch(), 1, WcOpcode::kRdmaWrite);
  EXPECT_EQ(from, to);
  ASSERT_EQ(::write(pipe_ends[1], "x", 1), 1);
  early->join();
  passive->join();
  for (const int fd : {pipe_ends[0], pipe_ends[1], ready[0], ready[1]}) {
    ::close(fd);
  }
}

TEST_P(EngineTest, LostPacketsAreRetransmittedWithoutPolling) {
  // The peer's queue pair is destroyed, so only timers can end the request.
  b_.reset();
  const std::vector<uint8_t> from = Pattern(100);
  uint8_t to[100];
  ASSERT_EQ(a_->Write(1, from.data(), 100, to), 0);
  const std::optional<Completion> completion = a_->Watch();
  ASSERT_TRUE(completion.has_value());
  EXPECT_EQ(completion->status, WcStatus::kRetryExceeded);
}

// A socket that is always readable and empty, as after shutdown(), costs
// little, and arriving packets are received.
TEST_P(EngineTest, ASpuriouslyReadableSocketCostsLittle) {
  for (const int fd : b_->lane().port()->ReceiveDescriptors()) {
    if (::shutdown(fd, SHUT_RD) != 0 && errno == ENOTSOCK) continue;
    pollfd readable = {fd, POLLIN, 0};
    ASSERT_EQ(::poll(&readable, 1, 0), 1);
  }
  const auto calls = [&] {
    const Lane::Guard guard(b_->lane());
    return b_->lane().port()->counters().rx_calls;
  };
  // System calls in 200 ms. More than one per millisecond means that a thread
  // spins.
  const auto calls_in_a_while = [&] {
    const uint64_t before = calls();
    ::poll(nullptr, 0, 200);
    return calls() - before;
  };
  const std::vector<uint8_t> from = Pattern(5000);
  std::vector<uint8_t> to(5000);
  const auto write = [&] {
    std::fill(to.begin(), to.end(), 0);
    ASSERT_EQ(a_->Write(1, from.data(), 5000, to.data()), 0);
    ExpectDone(a_->Watch(), 1, WcOpcode::kRdmaWrite);
    EXPECT_EQ(from, to);
  };
  EXPECT_LT(calls_in_a_while(), 200u);
  for (int i = 0; i < 3; ++i) write();
  EXPECT_LT(calls_in_a_while(), 200u);

  // The same for a thread that waits.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::thread waiter(
      [&] { EXPECT_EQ(b_->engine().WaitReadable(ends[0], b_->lanes()), 0); });
  // Not AwaitSleep: its wait ends every 5 ms (FutileWakes::kRest).
  while (b_->lane().mode() != Mode::kWaiter) std::this_thread::yield();
  EXPECT_LT(calls_in_a_while(), 200u);
  for (int i = 0; i < 3; ++i) write();
  EXPECT_LT(calls_in_a_while(), 200u);
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  waiter.join();
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_P(EngineTest, IdleCostsNothing) {
  std::vector<uint8_t> from = Pattern(100);
  std::vector<uint8_t> to(100);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(a_->Write(1, from.data(), 100, to.data()), 0);
    ExpectDone(a_->Poll(), 1, WcOpcode::kRdmaWrite);
  }
  WaitUntilQuiet();
  const auto wakeups = [&] {
    return a_->helper()->wakeups() + b_->helper()->wakeups();
  };
  // The helpers may still be checking for a polling application, and timers
  // that were pushed back still expire once.
  (void)::poll(nullptr, 0, 200);
  const uint64_t before = wakeups();
  (void)::poll(nullptr, 0, 500);
  EXPECT_LE(wakeups() - before, 1u);
}

// The passive end's helper busy-polls instead of sleeping.
TEST_P(EngineTest, TheHelperBusyPollsIfConfigured) {
  ::setenv("RXE_USER_SPIN_US", "1000000", 1);
  a_.reset();
  b_.reset();
  Make();
  ::unsetenv("RXE_USER_SPIN_US");
  const std::vector<uint8_t> from = Pattern(100);
  std::vector<uint8_t> to(100);
  const transport::Time limit = Lane::Now() + 10 * transport::kSecond;
  const auto looks = [&] { return b_->helper()->wakeups(); };
  while (looks() < 1000 && Lane::Now() < limit) {
    ASSERT_EQ(a_->Write(1, from.data(), 100, to.data()), 0);
    ExpectDone(a_->Poll(), 1, WcOpcode::kRdmaWrite);
    const uint64_t before = looks();
    const transport::Time soon = Lane::Now() + transport::kSecond;
    while (looks() < before + 1000 && Lane::Now() < soon) {
      std::this_thread::yield();
    }
  }
  EXPECT_GE(looks(), 1000u);
  EXPECT_EQ(from, to);
}

TEST_P(EngineTest, ManyThreadsPost) {
  constexpr int kThreads = 4;
  constexpr int kEach = 300;
  const std::vector<uint8_t> from = Pattern(512);
  std::vector<std::vector<uint8_t>> to(kThreads, std::vector<uint8_t>(512));
  std::atomic<int> done = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        int error;
        while ((error = a_->Write(1, from.data(), 512,
                                  to[static_cast<size_t>(t)].data())) ==
               ENOMEM) {
          if (a_->cq().Poll()) ++done;
          a_->Progress();
        }
        ASSERT_EQ(error, 0);
      }
      while (done < kThreads * kEach) {
        if (a_->cq().Poll()) ++done;
        if (t % 2 == 0) a_->Progress();
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& bytes : to) EXPECT_EQ(bytes, from);
}

// A datagram for the other engine's slot arrives at our socket.
TEST_P(EngineTest, StraysReachTheirOwner) {
  // The kernel steers here, so a packet for b is handed to a directly.
  const std::vector<uint8_t> from = Pattern(100);
  std::vector<uint8_t> to(100);
  const int before = slots_.forwarded();
  // One segmented send: its first segment is for a's slot and so steers all of
  // it.
  const wire::IpAddress address = Address(GetParam());
  auto port = CreateSocketPort();
  ASSERT_TRUE(port.ok());
  transport::AddressVector av;
  av.source = address;
  av.destination = address;
  const auto source_port = (*port)->SourcePort({address, 0}, 0);
  ASSERT_TRUE(source_port.ok());
  av.source_port = *source_port;
  const transport::Flow flow(av);
  transport::Burst* burst = (*port)->Begin(flow);
  for (const uint32_t qpn : {a_->qpn(), b_->qpn(), a_->qpn()}) {
    uint8_t* packet = burst->Reserve(16);
    ASSERT_NE(packet, nullptr);
    const uint8_t bth[12] = {0x04,
                             0x40,
                             0xff,
                             0xff,
                             0,
                             static_cast<uint8_t>(qpn >> 16),
                             static_cast<uint8_t>(qpn >> 8),
                             static_cast<uint8_t>(qpn),
                             0,
                             0,
                             0,
                             1};
    std::copy(std::begin(bth), std::end(bth), packet);
    burst->Commit();
  }
  (*port)->Queue();
  (*port)->Flush();
  const auto received = [](Node& node) {
    const Lane::Guard guard(node.lane());
    return node.lane().endpoint().counters().rx_datagrams;
  };
  while (received(*b_) < 1 || received(*a_) < 2) std::this_thread::yield();
  EXPECT_EQ(slots_.forwarded() - before, 1);
}

TEST_P(EngineTest, TheChildOfForkOwnsNothing) {
  const std::vector<uint8_t> from = Pattern(100);
  std::vector<uint8_t> to(100);
  std::atomic<bool> stop = false;
  std::thread traffic([&] {
    while (!stop) {
      ASSERT_EQ(a_->Write(1, from.data(), 100, to.data()), 0);
      ExpectDone(a_->Poll(), 1, WcOpcode::kRdmaWrite);
    }
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::alarm(10);
      EngineImpl& engine = a_->engine();
      int wrong = 0;
      if (engine.alive()) wrong |= 1;
      if (engine.AllocateQpn().status().code() !=
          absl::StatusCode::kFailedPrecondition) {
        wrong |= 2;
      }
      if (engine.WaitReadable(0, OnlyLane(0)) != ENODEV) wrong |= 4;
      if (engine.Progress(OnlyLane(0))) wrong |= 8;
      engine.DropLease(OnlyLane(0));
      if (a_->lane().port() != nullptr) wrong |= 16;
      // Objects of the parent can be destroyed in the child: no hang, no crash.
      a_.reset();
      b_.reset();
      ::_exit(wrong);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  stop = true;
  traffic.join();
}

TEST_P(EngineTest, ClosingFreesThePortAtOnce) {
  for (int i = 0; i < 5; ++i) {
    const std::vector<uint8_t> from = Pattern(70'000);
    std::vector<uint8_t> to(70'000);
    ASSERT_EQ(a_->Write(1, from.data(), 70'000, to.data()), 0);
    ExpectDone(a_->Poll(), 1, WcOpcode::kRdmaWrite);
    a_.reset();
    b_.reset();
    Make();
  }
}

INSTANTIATE_TEST_SUITE_P(Addresses, EngineTest,
                         ::testing::Values("127.0.0.1", "::1"),
                         [](const auto& test) {
                           return Address(test.param).is_v4() ? "v4" : "v6";
                         });

TEST(SourcePort, FollowsTheCommonFormula) {
  EXPECT_EQ(SourcePortOf(FlowLabelOf(17, 17)), 49441);
  EXPECT_GE(SourcePortOf(0xfffff), 0xc000);
}

void ExitDuringTraffic() {
  ::alarm(10);
  auto* slots = new TestSlots;
  auto* a = new Node(*slots, Address("127.0.0.1"), CreateSocketPort);
  auto* b = new Node(*slots, Address("127.0.0.1"), CreateSocketPort);
  a->Connect(*b);
  b->Connect(*a);
  static uint8_t bytes[1 << 20];
  for (int i = 0; i < 16; ++i) a->Write(1, bytes, sizeof(bytes), bytes);
  ::exit(0);
}

TEST(EngineDeathTest, ExitsDuringTraffic) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(ExitDuringTraffic(), ::testing::ExitedWithCode(0), "");
}

TEST(Engine, ReportsWhatIsWrongWithThePort) {
  auto device = std::make_shared<Device>();
  device->gids = {{Address("127.0.0.1"), 0}};
  const auto engine =
      MakeEngine(device, {[]() -> absl::StatusOr<std::unique_ptr<Slot>> {
                            return absl::UnavailableError("taken by somebody");
                          },
                          CreateSocketPort});
  for (int i = 0; i < 2; ++i) {
    const auto qpn = engine->AllocateQpn();
    EXPECT_EQ(qpn.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(qpn.status().message(), "taken by somebody");
  }
  EXPECT_FALSE(engine->Progress(OnlyLane(0)));
}

TEST(Engine, OpensLaterAddresses) {
  TestSlots slots;
  auto device = std::make_shared<Device>();
  device->gids = {{Address("127.0.0.1"), 0}, {Address("192.0.2.77"), 0}};
  const auto engine =
      MakeEngine(device, {[&] { return slots.Acquire(); }, CreateSocketPort});
  ASSERT_TRUE(engine->AllocateQpn().ok());  // one of the two addresses suffices
  EXPECT_TRUE(engine->OpenAddress(Address("127.0.0.1")).ok());
  EXPECT_TRUE(engine->OpenAddress(Address("127.0.0.5")).ok());
  EXPECT_FALSE(engine->OpenAddress(Address("192.0.2.77")).ok());
}

// ibv_asyncwatch, for example, waits for events without a queue pair.
TEST(Engine, ReportsLinksBeforeTheFirstQueuePair) {
  auto device = std::make_shared<Device>();
  device->ifindex = 1;
  const auto engine = MakeEngine(device, EngineImpl::Parts());
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto end_waiting = [&] { (void)!::write(ends[1], "x", 1); };
  std::atomic<bool> down = false;
  const uint64_t id = engine->AddLinkListener([&](LinkChange change) {
    if (change == LinkChange::kDown && !down.exchange(true)) end_waiting();
  });
  std::thread waiter([&] { EXPECT_EQ(engine->WaitPassive(ends[0]), 0); });
  bool allowed = true;
  const transport::Time limit = Lane::Now() + 10 * transport::kSecond;
  while (allowed && !down && Lane::Now() < limit) {
    allowed = SetLoopback(false) && SetLoopback(true);
  }
  if (!down) end_waiting();
  waiter.join();
  engine->RemoveLinkListener(id);
  ::close(ends[0]);
  ::close(ends[1]);
  if (!allowed) GTEST_SKIP() << "not allowed to set a link down";
  EXPECT_TRUE(down);
}

TEST(Engine, IsSharedByContextsOfOneDevice) {
  auto device = std::make_shared<Device>();
  device->netdev = "lo";
  device->ifindex = 1;
  const EngineImpl::Parts parts;
  auto first = FindOrMakeEngine(device, parts);
  EXPECT_EQ(first, FindOrMakeEngine(std::make_shared<Device>(*device), parts));
  auto other = std::make_shared<Device>(*device);
  other->ifindex = 2;
  EXPECT_NE(first, FindOrMakeEngine(other, parts));
}

}  // namespace
}  // namespace rxe_user
