// Two lanes' ports in one process. The test does the control threads' work, so
// the lanes find each other step by step, when the test says so.
#ifndef RXE_USER_PORTS_MEMORY_PORT_FIXTURE_H_
#define RXE_USER_PORTS_MEMORY_PORT_FIXTURE_H_

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rxe_user/base/qpn.h"
#include "rxe_user/ports/memory_port.h"
#include "rxe_user/ports/socket_io.h"
#include "rxe_user/testing/loopback_port.h"
#include "transport/base/flow.h"

namespace rxe_user {

using Bytes = std::vector<uint8_t>;
using transport::kMillisecond;

// The ports' clock.
inline transport::Time test_now = 0;
inline transport::Time TestClock() { return test_now; }

inline bool IsReadable(int fd) {
  pollfd p = {fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}

// Lowers the soft limit of descriptors while it exists.
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
                                     MemoryLinks::SelfTraffic::kRings);
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

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_MEMORY_PORT_FIXTURE_H_
