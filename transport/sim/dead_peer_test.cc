// Queue pairs with silent peers beside one whose peer answers, on one path. The
// healthy one keeps at least four fifths of the rate that it has alone, and
// none of its messages waits for more than 5 ms.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "transport/sim/host_pair.h"

namespace sim {
namespace {

using transport::kMillisecond;
using transport::kSecond;
using transport::SendOpcode;

constexpr uint32_t kDeadMessages = 8;
constexpr Time kLongestWait = 5 * kMillisecond;

const char* NameOf(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::kRdmaRead:
      return "Read";
    case SendOpcode::kRdmaWrite:
      return "Write";
    default:
      return "Send";
  }
}

// When the peers died.
enum class Death {
  kBeforeTheFirst,  // before anything was sent on the path
  kNeverAnswered,   // beside traffic; the peers never answered
  kAfterAnswers,    // beside traffic, after answers
  kInTheMiddle,     // under traffic like the healthy one's
};

struct Result {
  uint64_t messages = 0;
  Time worst = 0;
};

constexpr Time kPeriod = 50 * kMillisecond;

struct DeadPairs {
  int count = 0;
  Traffic traffic;
  uint8_t timeout = 14;
  Death death = Death::kNeverAnswered;
};

// A healthy pair's result in kPeriod beside dead ones.
Result Beside(const DeadPairs& dead, const Traffic& traffic,
              uint32_t path_mtu) {
  HostPair hosts(path_mtu);
  std::vector<HostPair::Connection*> pairs;
  for (int i = 0; i < dead.count; ++i) {
    pairs.push_back(&hosts.Connect(dead.timeout));
    pairs.back()->traffic = dead.traffic;
  }
  HostPair::Connection& healthy = hosts.Connect(14);
  const auto die = [&] {
    for (HostPair::Connection* pair : pairs) hosts.DestroyPeer(*pair);
  };
  const auto post = [&] {
    for (HostPair::Connection* pair : pairs) {
      for (uint32_t i = 0; i < kDeadMessages; ++i) hosts.Post(*pair);
    }
  };
  switch (dead.death) {
    case Death::kBeforeTheFirst:
      die();
      post();
      hosts.Start(healthy, traffic);
      break;
    case Death::kNeverAnswered:
      die();
      hosts.Start(healthy, traffic);
      hosts.RunTo(10 * kMillisecond);
      post();
      break;
    case Death::kAfterAnswers:
      for (HostPair::Connection* pair : pairs) hosts.Post(*pair);
      hosts.RunTo(100 * kMillisecond);
      hosts.Start(healthy, traffic);
      hosts.RunTo(110 * kMillisecond);
      die();
      post();
      break;
    case Death::kInTheMiddle:
      hosts.Start(healthy, traffic);
      for (HostPair::Connection* pair : pairs) {
        Traffic like = dead.traffic;
        like.depth = kDeadMessages;
        hosts.Start(*pair, like);
      }
      hosts.RunTo(20 * kMillisecond);
      for (HostPair::Connection* pair : pairs) {
        hosts.Stop(*pair);
        hosts.DestroyPeer(*pair);
      }
      // Until now it had the share of one among many.
      hosts.RestartClock(healthy);
      break;
  }
  healthy.worst = 0;
  const uint64_t before = healthy.completed;
  const Time end = hosts.now() + kPeriod;
  hosts.RunTo(end);
  EXPECT_FALSE(hosts.checker().failed()) << hosts.checker().ToString();
  EXPECT_EQ(healthy.failed, 0u);
  return {healthy.completed - before, hosts.WorstOf(healthy)};
}

const std::vector<Traffic>& HealthyTraffic() {
  static const std::vector<Traffic> all = [] {
    std::vector<Traffic> traffic;
    for (const SendOpcode opcode :
         {SendOpcode::kRdmaRead, SendOpcode::kRdmaWrite, SendOpcode::kSend}) {
      traffic.push_back({opcode, 64, 1});
      traffic.push_back({opcode, 4096, 8});
      traffic.push_back({opcode, 64 * 1024, 1});
      traffic.push_back({opcode, 1 << 20, 2});
    }
    return traffic;
  }();
  return all;
}

Result Alone(const Traffic& traffic, uint32_t path_mtu) {
  static std::map<std::pair<Traffic, uint32_t>, Result> known;
  const auto [it, missing] = known.try_emplace({traffic, path_mtu});
  if (missing) it->second = Beside({}, traffic, path_mtu);
  return it->second;
}

void ExpectUnharmed(const DeadPairs& dead, uint32_t path_mtu) {
  for (const Traffic& traffic : HealthyTraffic()) {
    const Result alone = Alone(traffic, path_mtu);
    const Result beside = Beside(dead, traffic, path_mtu);
    const std::string what =
        absl::StrCat(NameOf(traffic.opcode), " of ", traffic.bytes);
    EXPECT_GE(beside.messages * 5, alone.messages * 4)
        << what << ", alone " << alone.messages;
    EXPECT_LE(beside.worst, kLongestWait) << what;
  }
}

class DeadPeerTest
    : public ::testing::TestWithParam<std::tuple<SendOpcode, int, int>> {
 protected:
  DeadPairs Dead(Death death, uint32_t bytes = 4096) const {
    const auto [opcode, timeout, count] = GetParam();
    return {.count = count,
            .traffic = {.opcode = opcode, .bytes = bytes},
            .timeout = static_cast<uint8_t>(timeout),
            .death = death};
  }
};

INSTANTIATE_TEST_SUITE_P(
    All, DeadPeerTest,
    ::testing::Combine(::testing::Values(SendOpcode::kRdmaRead,
                                         SendOpcode::kRdmaWrite,
                                         SendOpcode::kSend),
                       ::testing::Values(0, 14, 18),  // timeout
                       ::testing::Values(1, 8, 64)),
    [](const auto& info) {
      return absl::StrCat(NameOf(std::get<0>(info.param)), "Timeout",
                          std::get<1>(info.param), "Pairs",
                          std::get<2>(info.param));
    });

TEST_P(DeadPeerTest, FromTheFirst) {
  ExpectUnharmed(Dead(Death::kBeforeTheFirst), 4096);
}

TEST_P(DeadPeerTest, ThatNeverAnswered) {
  ExpectUnharmed(Dead(Death::kNeverAnswered), 4096);
}

TEST_P(DeadPeerTest, ThatHasAnswered) {
  ExpectUnharmed(Dead(Death::kAfterAnswers), 4096);
}

TEST_P(DeadPeerTest, ThatHasAnsweredWithLongMessages) {
  ExpectUnharmed(Dead(Death::kAfterAnswers, 1 << 20), 1024);
}

TEST_P(DeadPeerTest, InTheMiddleOfTraffic) {
  ExpectUnharmed(Dead(Death::kInTheMiddle), 4096);
}

// First packets are sent although no peer has answered, but limited in total.
TEST(ManyDeadPeersTest, DoNotFloodAPathWithoutAnswers) {
  HostPair hosts(4096);
  std::vector<HostPair::Connection*> pairs;
  for (int i = 0; i < 500; ++i) {
    pairs.push_back(&hosts.Connect(14));
    pairs.back()->traffic = {.opcode = SendOpcode::kRdmaWrite, .bytes = 65536};
    hosts.DestroyPeer(*pairs.back());
  }
  for (HostPair::Connection* pair : pairs) hosts.Post(*pair);
  hosts.RunTo(2 * kMillisecond);  // sent, and not yet probed
  const uint64_t in_flight = pairs.front()->a.qp->path()->in_flight();
  EXPECT_LE(in_flight, transport::Path::kMaxWithUnanswered);
  EXPECT_GT(in_flight, transport::Path::kMaxWithUnanswered / 2);
  // Eventually all of them fail.
  hosts.RunTo(60 * kSecond, [&] {
    return std::all_of(pairs.begin(), pairs.end(),
                       [](const auto* pair) { return pair->failed == 1; });
  });
  for (const HostPair::Connection* pair : pairs) EXPECT_EQ(pair->failed, 1u);
  EXPECT_FALSE(hosts.checker().failed()) << hosts.checker().ToString();
}

// Peers that answer again: their outstanding messages complete, and other queue
// pairs are not affected.
TEST_P(DeadPeerTest, ThatRecovers) {
  for (const Traffic& traffic : HealthyTraffic()) {
    const Result alone = Alone(traffic, 4096);
    HostPair hosts(4096);
    const DeadPairs dead = Dead(Death::kAfterAnswers);
    std::vector<HostPair::Connection*> pairs;
    for (int i = 0; i < dead.count; ++i) {
      pairs.push_back(&hosts.Connect(dead.timeout));
      pairs.back()->traffic = dead.traffic;
      hosts.Post(*pairs.back());
    }
    HostPair::Connection& healthy = hosts.Connect(14);
    hosts.RunTo(10 * kMillisecond);
    for (HostPair::Connection* pair : pairs) {
      EXPECT_EQ(pair->completed, 1u);
      hosts.Silence(*pair);
      for (uint32_t i = 0; i < kDeadMessages; ++i) hosts.Post(*pair);
    }
    hosts.RunTo(30 * kMillisecond);
    hosts.Start(healthy, traffic);
    hosts.RunTo(40 * kMillisecond);
    for (HostPair::Connection* pair : pairs) hosts.Restore(*pair);
    const uint64_t before = healthy.completed;
    hosts.RunTo(hosts.now() + kPeriod);
    const std::string what =
        absl::StrCat(NameOf(traffic.opcode), " of ", traffic.bytes);
    EXPECT_GE((healthy.completed - before) * 5, alone.messages * 4)
        << what << ", alone " << alone.messages;
    EXPECT_LE(hosts.WorstOf(healthy), kLongestWait) << what;
    // They are probed at least once a second.
    hosts.Stop(healthy);
    hosts.RunTo(hosts.now() + 2 * kSecond, [&] {
      return std::all_of(pairs.begin(), pairs.end(), [](const auto* pair) {
        return pair->completed == 1 + kDeadMessages;
      });
    });
    for (const HostPair::Connection* pair : pairs) {
      EXPECT_EQ(pair->completed, 1 + kDeadMessages) << what;
      EXPECT_EQ(pair->failed, 0u) << what;
    }
    EXPECT_FALSE(hosts.checker().failed()) << hosts.checker().ToString();
  }
}

}  // namespace
}  // namespace sim
