// Many queue pairs between two nodes that have to wait for a core. Nothing is
// lost: what is probed for is retransmitted in vain.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "transport/sim/neighbors.h"

namespace sim {
namespace {

using transport::kMicrosecond;
using transport::kMillisecond;
using transport::kSecond;
using transport::SendOpcode;

// A process on a busy machine: it runs for a slice, and then waits for others.
struct Slices {
  Time runs = 0;
  Time waits_at_least = 0;
  Time waits_at_most = 0;
};

// When a process in `slices` next runs, from `now` on.
class Schedule {
 public:
  Schedule(const Slices& slices, uint64_t seed)
      : slices_(slices), random_(seed) {}

  Time NextRun(Time now) {
    while (now >= until_) {
      from_ = until_ + slices_.waits_at_least +
              static_cast<Time>(random_.Below(static_cast<uint64_t>(
                  slices_.waits_at_most - slices_.waits_at_least)));
      until_ = from_ + slices_.runs;
    }
    return std::max(now, from_);
  }

 private:
  const Slices slices_;
  Random random_;
  Time from_ = 0;
  Time until_ = 0;
};

struct Result {
  uint64_t messages = 0;
  uint64_t probes = 0;
  uint64_t retransmitted = 0;
};

// `count` queue pairs send one message after the other while what arrives at
// either node waits until that runs.
Result Overloaded(int count, const Slices& slices, Time lasts,
                  Neighbors* neighbors,
                  std::vector<Neighbors::Connection*>* all) {
  Schedule schedules[] = {{slices, 1}, {slices, 2}};
  Network& net = neighbors->net();
  const auto inner = net.filter;
  net.filter = [&](const Node& from, const wire::PacketView& packet) {
    const int to = 1 - from.index();
    LinkProfile& link = net.link(from, net.node(to)).profile;
    link.delay =
        5 * kMicrosecond + schedules[to].NextRun(net.now()) - net.now();
    return inner(from, packet);
  };
  for (int i = 0; i < count; ++i) {
    all->push_back(&neighbors->Connect(14));
    neighbors->Start(*all->back(), {SendOpcode::kSend, 64, 1});
  }
  neighbors->RunTo(lasts);
  net.filter = inner;
  for (const int to : {0, 1}) {
    net.link(net.node(1 - to), net.node(to)).profile.delay = 5 * kMicrosecond;
  }
  Result result;
  for (const Neighbors::Connection* connection : *all) {
    EXPECT_EQ(connection->failed, 0u);
    result.messages += connection->completed;
    result.probes += connection->a.qp->counters().probes;
    result.retransmitted += connection->a.qp->counters().retransmitted;
  }
  return result;
}

// At most one message in a hundred is probed for.
TEST(OverloadTest, PeersThatWaitForACoreAreRarelyProbed) {
  for (const Slices& slices :
       {Slices{kMillisecond, 2 * kMillisecond, 8 * kMillisecond},
        Slices{kMillisecond, kMillisecond, 30 * kMillisecond}}) {
    Neighbors neighbors(1024);
    std::vector<Neighbors::Connection*> all;
    const Result result =
        Overloaded(25, slices, 400 * kMillisecond, &neighbors, &all);
    EXPECT_FALSE(neighbors.checker().failed())
        << neighbors.checker().ToString();
    EXPECT_GT(result.messages, 5'000u);
    EXPECT_LE(result.probes, result.messages / 100) << result.messages;
    EXPECT_LE(result.retransmitted, result.messages / 100);
  }
}

// Afterwards a lost tail is found as soon as before.
TEST(OverloadTest, IsForgotten) {
  Neighbors neighbors(1024);
  std::vector<Neighbors::Connection*> all;
  Overloaded(20, {kMillisecond, kMillisecond, 30 * kMillisecond},
             200 * kMillisecond, &neighbors, &all);
  ASSERT_GT(all[0]->a.qp->path()->ProbeTimeout(), 10 * kMillisecond);
  for (const Neighbors::Connection* connection : all) {
    neighbors.Stop(*connection);
  }
  neighbors.RunTo(9 * kSecond);
  // They share the path.
  neighbors.Start(*all[0], all[0]->traffic);
  neighbors.RunTo(9 * kSecond + 10 * kMillisecond);
  EXPECT_EQ(all[0]->a.qp->path()->ProbeTimeout(), kMillisecond);
}

}  // namespace
}  // namespace sim
