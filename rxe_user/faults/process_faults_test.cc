#include "rxe_user/faults/process_faults.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rxe_user/faults/faulted_memory.h"
#include "transport/faults/rule_parser.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

using transport::kMillisecond;
using transport::kNever;
using transport::MemoryStatus;
using transport::Time;

constexpr uint32_t kQpn = 0x51;

FaultSettings Settings(const std::string& text) {
  FaultSettings settings;
  const auto error = transport::faults::ParseRules(text, &settings.rules);
  EXPECT_FALSE(error.has_value()) << error->ToString();
  return settings;
}

class FakeContext final : public FaultedContext {
 public:
  void OnEventOnCommand(int type) override {
    told.push_back("event " + std::to_string(type));
  }
  void OnLinkOnCommand(bool up) override { told.push_back(up ? "up" : "down"); }
  void TickAfter(Time delay) override { wakes.push_back(delay); }

  std::vector<std::string> told;
  std::vector<Time> wakes;
};
using Told = std::vector<std::string>;

// Records that TickAfter was called, so FaultTargets knows this context.
class NoticingContext final : public FaultedContext {
 public:
  void OnEventOnCommand(int) override {}
  void OnLinkOnCommand(bool) override {}
  void TickAfter(Time) override { is_known = true; }

  std::atomic<bool> is_known = false;
};

class ProcessFaultsTest : public testing::Test {
 protected:
  // The process sends a packet. Returns whether it is lost.
  bool IsLost(ProcessFaults& faults, Time now) {
    wire::Headers headers;
    headers.bth.opcode =
        wire::MakeOpcode(wire::Transport::kRc, wire::Operation::kSendOnly);
    bytes_.assign(wire::kMaxHeaderSize + wire::kIcrcSize, 0);
    bytes_.resize(wire::GetOpcodeInfo(headers.bth.opcode).header_length +
                  wire::kIcrcSize);
    wire::EmitHeaders(headers, bytes_.data());
    wire::PacketView packet;
    EXPECT_EQ(wire::PacketView::Parse(bytes_, &packet), wire::ParseError::kOk);
    const auto fate = faults.Decide({.transmitted = true,
                                     .qpn = kQpn,
                                     .packet = &packet,
                                     .peer = wire::IpAddress()},
                                    now);
    return fate.rule != nullptr && fate.is_consequence;
  }

  std::vector<uint8_t> bytes_;
};

TEST_F(ProcessFaultsTest, TheLinkGoesDownAtItsTime) {
  ProcessFaults faults(
      Settings("link down after=10ms for=5ms; event LID_CHANGE after=12ms"), 0);
  FakeContext context;
  faults.Add(&context, 0);
  Time next = 0;
  EXPECT_TRUE(faults.Tick(0, &next).empty());
  EXPECT_EQ(next, 10 * kMillisecond);
  EXPECT_FALSE(faults.concerns_received());
  EXPECT_FALSE(IsLost(faults, 9 * kMillisecond));
  EXPECT_EQ(faults.Tick(10 * kMillisecond, &next).size(), 1u);
  EXPECT_EQ(next, 12 * kMillisecond);
  EXPECT_TRUE(faults.concerns_received());
  EXPECT_TRUE(faults.link_is_down());
  EXPECT_TRUE(IsLost(faults, 11 * kMillisecond));
  EXPECT_EQ(faults.Tick(12 * kMillisecond, &next).size(), 1u);
  EXPECT_EQ(next, 15 * kMillisecond);
  // Tick was not called yet, but the rule's time is over.
  EXPECT_FALSE(IsLost(faults, 15 * kMillisecond));
  EXPECT_TRUE(faults.Tick(15 * kMillisecond, &next).empty());
  EXPECT_EQ(next, kNever);
  EXPECT_FALSE(faults.link_is_down());
  EXPECT_FALSE(faults.concerns_received());
  EXPECT_EQ(context.told, (Told{"down", "event 11", "up"}));
  const std::vector<FaultRuleStatus> status = faults.Status();
  EXPECT_EQ(status[0].fired, 1u);
  EXPECT_EQ(status[1].fired, 1u);
  EXPECT_STREQ(status[0].target, "time");
}

TEST_F(ProcessFaultsTest, TheLinkGoesDownAtAPacket) {
  ProcessFaults faults(Settings("link down tx nth=2 for=5ms"), 0);
  FakeContext context;
  faults.Add(&context, 0);
  faults.OnCreated(kQpn);
  Time next = 0;
  faults.Tick(0, &next);
  EXPECT_FALSE(IsLost(faults, 100 * kMillisecond));
  // The packet that matches: the port drops it, and it is counted.
  EXPECT_FALSE(IsLost(faults, 101 * kMillisecond));
  EXPECT_EQ(context.wakes, std::vector<Time>{0});
  EXPECT_TRUE(IsLost(faults, 102 * kMillisecond));
  EXPECT_EQ(context.told, Told());
  faults.Tick(102 * kMillisecond, &next);
  EXPECT_EQ(next, 106 * kMillisecond);
  faults.Tick(106 * kMillisecond, &next);
  EXPECT_EQ(context.told, (Told{"down", "up"}));
  // The rule fires once, since it does not say how often.
  EXPECT_FALSE(IsLost(faults, 107 * kMillisecond));
  EXPECT_EQ(faults.Status()[0].fired, 1u);
}

// A packet that is lost while the link is down counts as an iteration.
TEST_F(ProcessFaultsTest, PacketsAreCountedWhileTheLinkIsDown) {
  ProcessFaults faults(
      Settings("link down tx nth=1 for=5ms; drop tx qp=@1 iter=3"), 0);
  faults.OnCreated(kQpn);
  EXPECT_FALSE(IsLost(faults, kMillisecond));
  EXPECT_TRUE(IsLost(faults, 2 * kMillisecond));
  EXPECT_FALSE(IsLost(faults, 10 * kMillisecond));
  EXPECT_EQ(faults.Status()[1].fired, 1u);
}

TEST_F(ProcessFaultsTest, TheLinkComesUpByARuleAndByRemoval) {
  ProcessFaults faults(Settings("link down; link up after=4ms"), 0);
  FakeContext context;
  faults.Add(&context, 0);
  Time next = 0;
  faults.Tick(0, &next);
  EXPECT_EQ(next, 4 * kMillisecond);
  EXPECT_TRUE(IsLost(faults, 3 * kMillisecond));
  faults.Tick(4 * kMillisecond, &next);
  EXPECT_FALSE(IsLost(faults, 4 * kMillisecond));
  EXPECT_EQ(context.told, (Told{"down", "up"}));

  std::vector<FaultRuleStatus> rules;
  ASSERT_FALSE(faults.Add("link down", 5 * kMillisecond, &rules));
  EXPECT_EQ(context.wakes.back(), 0);
  faults.Tick(5 * kMillisecond, &next);
  EXPECT_EQ(next, kNever);
  EXPECT_TRUE(IsLost(faults, 6 * kMillisecond));
  ASSERT_FALSE(faults.Remove({3}, &rules));
  faults.Tick(7 * kMillisecond, &next);
  EXPECT_FALSE(IsLost(faults, 7 * kMillisecond));
  EXPECT_EQ(context.told, (Told{"down", "up", "down", "up"}));
}

// The outage of the shorter rule used to end as well.
TEST_F(ProcessFaultsTest, AnOutageThatAnotherRuleHoldsGoesOn) {
  ProcessFaults faults(
      Settings("link down; link down for=10ms; link down for=20ms"), 0);
  FakeContext context;
  faults.Add(&context, 0);
  Time next = 0;
  EXPECT_EQ(faults.Tick(0, &next).size(), 3u);
  EXPECT_EQ(next, kNever);
  std::vector<FaultRuleStatus> removed;
  ASSERT_FALSE(faults.Remove({1}, &removed));
  faults.Tick(kMillisecond, &next);
  EXPECT_EQ(next, 20 * kMillisecond);
  EXPECT_TRUE(faults.link_is_down());
  EXPECT_TRUE(IsLost(faults, 15 * kMillisecond));
  ASSERT_FALSE(faults.Remove({3}, &removed));
  EXPECT_TRUE(IsLost(faults, 9 * kMillisecond));
  EXPECT_FALSE(IsLost(faults, 10 * kMillisecond));
  EXPECT_EQ(context.told, Told{"down"});
  faults.Tick(10 * kMillisecond, &next);
  EXPECT_EQ(context.told, (Told{"down", "up"}));
  EXPECT_FALSE(faults.link_is_down());
}

// As above.
TEST_F(ProcessFaultsTest, AStallThatAnotherRuleHoldsGoesOn) {
  ProcessFaults faults(
      Settings("stall 50ms tx nth=1; stall 10ms tx nth=2|3; stall 5ms tx"), 0);
  faults.OnCreated(kQpn);
  for (Time now = 0; now < 4; ++now) {
    EXPECT_FALSE(IsLost(faults, now * kMillisecond));
  }
  std::vector<FaultRuleStatus> removed;
  EXPECT_EQ(faults.stall().until, 50 * kMillisecond);
  EXPECT_EQ(faults.stall().rule->number, 1u);
  ASSERT_FALSE(faults.Remove({1}, &removed));
  EXPECT_EQ(faults.stall().until, 12 * kMillisecond);
  EXPECT_EQ(faults.stall().rule->number, 2u);
  ASSERT_FALSE(faults.Remove({2}, &removed));
  EXPECT_EQ(faults.stall().until, 8 * kMillisecond);
  EXPECT_EQ(faults.stall().rule->number, 3u);
  ASSERT_FALSE(faults.Remove({3}, &removed));
  EXPECT_EQ(faults.stall().until, 0);
}

// The thread that calls Tick may be late.
TEST_F(ProcessFaultsTest, TimesThatAreNoticedLate) {
  ProcessFaults faults(
      Settings("event LID_CHANGE after=12ms for=1ms; link up after=15ms; "
               "link down after=10ms"),
      0);
  FakeContext context;
  faults.Add(&context, 0);
  Time next = 0;
  EXPECT_TRUE(faults.Tick(0, &next).empty());
  EXPECT_EQ(faults.Tick(40 * kMillisecond, &next).size(), 3u);
  EXPECT_EQ(next, kNever);
  EXPECT_FALSE(faults.link_is_down());
  EXPECT_EQ(context.told, (Told{"event 11", "down", "up"}));
  EXPECT_TRUE(faults.Tick(50 * kMillisecond, &next).empty());
  EXPECT_EQ(context.told.size(), 3u);

  // The rule's time was over before there was a context.
  ProcessFaults earlier(Settings("link down after=1ms for=5ms"), 0);
  FakeContext later;
  earlier.Add(&later, 7 * kMillisecond);
  EXPECT_TRUE(earlier.Tick(7 * kMillisecond, &next).empty());
  EXPECT_EQ(later.told, Told());
}

// A program closes its device, and opens it again later.
TEST_F(ProcessFaultsTest, RulesThatEndedWhileNoDeviceWasOpen) {
  ProcessFaults faults(
      Settings("link down after=1ms for=5ms; event LID_CHANGE after=2ms"), 0);
  Time next = 0;
  {
    FakeContext first;
    faults.Add(&first, 0);
    faults.Tick(0, &next);
    faults.Remove(&first);
    EXPECT_EQ(first.told, Told());
  }
  FakeContext second;
  faults.Add(&second, 7 * kMillisecond);
  faults.Tick(7 * kMillisecond, &next);
  EXPECT_EQ(second.told, Told{"event 11"});
  // The rule's time ends while a device is open. A device that is opened later
  // does not keep it from firing.
  FakeContext third;
  std::vector<FaultRuleStatus> rules;
  ASSERT_FALSE(
      faults.Add("link down after=1ms for=1ms", 8 * kMillisecond, &rules));
  faults.Add(&third, 20 * kMillisecond);
  faults.Tick(20 * kMillisecond, &next);
  EXPECT_EQ(third.told, (Told{"down", "up"}));
}

// As soon as the first context is known, another thread calls Tick: that of a
// second context, or the alarm of this one, which a rule has set.
TEST_F(ProcessFaultsTest, ATickWhileTheFirstDeviceIsBeingOpened) {
  for (int round = 0; round < 2000; ++round) {
    ProcessFaults faults(Settings("event LID_CHANGE after=2ms for=1ms"), 0);
    Time next = 0;
    FakeContext earlier;
    faults.Add(&earlier, 0);
    faults.Tick(0, &next);
    faults.Remove(&earlier);
    NoticingContext first;
    std::atomic<bool> is_ready = false;
    std::thread other([&] {
      is_ready = true;
      while (!first.is_known) faults.targets().TickAfter(0);
      Time later = 0;
      faults.Tick(7 * kMillisecond, &later);
    });
    while (!is_ready) std::this_thread::yield();
    faults.Add(&first, 7 * kMillisecond);
    faults.Tick(7 * kMillisecond, &next);
    other.join();
    // The rule's time was over while no device was open.
    ASSERT_EQ(faults.Status()[0].fired, 0u) << "round " << round;
  }
}

// `link up` used to end an outage that had begun after its time.
TEST_F(ProcessFaultsTest, ALateLinkUp) {
  ProcessFaults faults(
      Settings("link up after=4ms; link down tx nth=1 for=50ms"), 0);
  FakeContext context;
  faults.Add(&context, 0);
  faults.OnCreated(kQpn);
  Time next = 0;
  faults.Tick(0, &next);
  EXPECT_FALSE(IsLost(faults, 5 * kMillisecond));
  faults.Tick(6 * kMillisecond, &next);
  EXPECT_TRUE(IsLost(faults, 7 * kMillisecond));
  EXPECT_EQ(context.told, Told{"down"});
  EXPECT_EQ(next, 55 * kMillisecond);
}

TEST_F(ProcessFaultsTest, AShortOutageAtAPacketIsTold) {
  ProcessFaults faults(Settings("link down tx nth=1 for=2ms"), 0);
  FakeContext context;
  faults.Add(&context, 0);
  Time next = 0;
  faults.Tick(0, &next);
  EXPECT_FALSE(IsLost(faults, kMillisecond));
  EXPECT_TRUE(IsLost(faults, 2 * kMillisecond));
  faults.Tick(10 * kMillisecond, &next);
  EXPECT_EQ(context.told, (Told{"down", "up"}));
  EXPECT_FALSE(faults.link_is_down());
}

// A context whose call waits until a fork is over, like a control thread that
// fork has stopped.
class WaitingContext final : public FaultedContext {
 public:
  void OnEventOnCommand(int) override {}
  void OnLinkOnCommand(bool) override {}
  void TickAfter(Time) override {
    is_waiting.set_value();
    may_go.get_future().wait();
  }

  std::promise<void> is_waiting;
  std::promise<void> may_go;
};

TEST_F(ProcessFaultsTest, ForkDoesNotWaitForAContext) {
  ProcessFaults faults(Settings("drop maybe"), 0);
  WaitingContext context;
  faults.Add(&context, 0);
  std::thread other([&] { faults.targets().TickAfter(0); });
  context.is_waiting.get_future().wait();
  auto locked = std::async(std::launch::async, [&] {
    faults.LockForFork();
    faults.UnlockAfterFork();
  });
  EXPECT_EQ(locked.wait_for(std::chrono::seconds(5)),
            std::future_status::ready);
  context.may_go.set_value();
  other.join();
  locked.wait();
  faults.targets().Remove(&context);
}

// --- Memory.

class FakeQueuePair final : public FaultedQueuePair {
 public:
  void OnEventOnCommand(const transport::faults::Rule& rule,
                        bool received) override {
    told.push_back(rule.text + (received ? " received" : " sent"));
  }
  void OnTransferFault(const transport::faults::Rule& rule, bool received,
                       uint32_t number) override {
    told.push_back(rule.text + (received ? " received " : " sent ") +
                   std::to_string(number));
  }

  std::vector<std::string> told;
};

// One array, with any key.
class FakeMemory final : public transport::Memory {
 public:
  MemoryStatus Translate(const transport::MemoryAccess& access,
                         transport::SpanList* out) override {
    if (access.va + access.length > bytes.size()) {
      return MemoryStatus::kOutOfRange;
    }
    out->push_back({bytes.data() + access.va, access.length});
    return MemoryStatus::kOk;
  }
  bool CopyFrom(uint8_t*, const uint8_t*, size_t, bool) override {
    return true;
  }
  bool CopyTo(uint8_t*, const uint8_t*, size_t, bool) override { return true; }
  bool CompareSwap(uint8_t*, uint64_t, uint64_t, uint64_t*) override {
    return true;
  }
  bool FetchAdd(uint8_t*, uint64_t, uint64_t*) override { return true; }
  MemoryStatus Invalidate(const transport::Invalidation&) override {
    return MemoryStatus::kOk;
  }
  MemoryStatus Flush(const transport::MemoryAccess&, bool) override {
    return MemoryStatus::kOk;
  }

  alignas(8) std::array<uint8_t, 1024> bytes;
};

class FaultedMemoryTest : public testing::Test {
 protected:
  void Start(const std::string& rules) {
    faults_.emplace(Settings(rules), ProcessFaults::Now());
    faults_->OnCreated(kQpn);
    faults_->targets().Add(kQpn, &qp_);
    memory_ = std::make_unique<FaultedMemory>(*faults_, behind_);
  }
  // Whether the memory is there. Memory that is gone is on a page that cannot
  // be accessed.
  bool Has(uint64_t va, uint64_t length,
           uint32_t access = transport::kAccessRemoteWrite, uint32_t key = 7) {
    transport::SpanList spans;
    EXPECT_EQ(memory_->Translate({.key = key,
                                  .remote = true,
                                  .qpn = kQpn,
                                  .access = access,
                                  .va = va,
                                  .length = length},
                                 &spans),
              MemoryStatus::kOk);
    EXPECT_EQ(spans.size(), 1u);
    EXPECT_EQ(spans[0].length, length);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(spans[0].data) % 8, va % 8);
    if (spans[0].data == behind_.bytes.data() + va) return true;
    int pipe_ends[2];
    EXPECT_EQ(pipe(pipe_ends), 0);
    EXPECT_EQ(write(pipe_ends[1], spans[0].data, 1), -1);
    EXPECT_EQ(errno, EFAULT);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    return false;
  }

  FakeMemory behind_;
  FakeQueuePair qp_;
  std::optional<ProcessFaults> faults_;
  std::unique_ptr<transport::Memory> memory_;
};

TEST_F(FaultedMemoryTest, WhatIsGoneStaysGone) {
  Start("unmap rx qp=@1 nth=2");
  EXPECT_TRUE(Has(0, 64));
  EXPECT_TRUE(
      Has(0, 64, transport::kAccessRemoteRead));  // read: does not count
  EXPECT_FALSE(Has(128, 64));
  EXPECT_EQ(qp_.told, Told{"unmap rx qp=@1 nth=2 received 2"});
  EXPECT_FALSE(Has(128, 64, transport::kAccessRemoteRead));
  EXPECT_FALSE(Has(188, 64));  // overlaps
  EXPECT_TRUE(Has(192, 64));
  EXPECT_TRUE(Has(128, 64, transport::kAccessRemoteWrite, 8));  // another key
  const auto flush = [&](uint64_t va) {
    return memory_->Flush({.key = 7, .qpn = kQpn, .va = va, .length = 1},
                          false);
  };
  EXPECT_EQ(flush(0), MemoryStatus::kOk);
  EXPECT_EQ(flush(128), MemoryStatus::kFault);
  std::vector<FaultRuleStatus> removed;
  ASSERT_FALSE(faults_->Remove({1}, &removed));
  EXPECT_EQ(removed[0].fired, 1u);
  EXPECT_TRUE(Has(128, 64));
}

TEST_F(FaultedMemoryTest, OnlyLargeTransfersThatRead) {
  Start("unmap tx bytes>100");
  EXPECT_TRUE(Has(0, 200));
  EXPECT_TRUE(Has(0, 100, 0));
  EXPECT_FALSE(Has(0, 101, 0));
  EXPECT_EQ(qp_.told, Told{"unmap tx bytes>100 sent 2"});
}

// An access that fails without a rule is not counted as a transfer.
TEST_F(FaultedMemoryTest, OnlyTransfersThatWouldSucceed) {
  Start("unmap nth=1");
  transport::SpanList spans;
  EXPECT_EQ(
      memory_->Translate(
          {.key = 7, .qpn = kQpn, .access = 0, .va = 1 << 20, .length = 1},
          &spans),
      MemoryStatus::kOutOfRange);
  EXPECT_EQ(faults_->Status()[0].matched, 0u);
  EXPECT_FALSE(Has(0, 64));
}

// The pages take 2 GiB of address space, but only once a rule hits something.
TEST_F(FaultedMemoryTest, WithoutAddressSpaceTheTransferFailsAtOnce) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs address space of its own";
#endif
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit less = before;
  less.rlim_cur = rlim_t{1} << 30;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &less), 0);
  Start("unmap nth=2");
  transport::SpanList spans;
  const transport::MemoryAccess access = {
      .key = 7, .qpn = kQpn, .access = 0, .va = 0, .length = 1};
  const MemoryStatus first = memory_->Translate(access, &spans);
  const MemoryStatus second = memory_->Translate(access, &spans);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(first, MemoryStatus::kOk);
  EXPECT_EQ(second, MemoryStatus::kFault);
  EXPECT_EQ(spans.size(), 1u);
}

}  // namespace
}  // namespace rxe_user
