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
#include "transport/sim/neighbors.h"

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
  kInTheMidst,      // under traffic like the healthy one's
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
  Neighbors neighbors(path_mtu);
  std::vector<Neighbors::Connection*> pairs;
  for (int i = 0; i < dead.count; ++i) {
    pairs.push_back(&neighbors.Connect(dead.timeout));
    pairs.back()->traffic = dead.traffic;
  }
  Neighbors::Connection& healthy = neighbors.Connect(14);
  const auto die = [&] {
    for (Neighbors::Connection* pair : pairs) neighbors.DestroyPeer(*pair);
  };
  const auto post = [&] {
    for (Neighbors::Connection* pair : pairs) {
      for (uint32_t i = 0; i < kDeadMessages; ++i) neighbors.Post(*pair);
    }
  };
  switch (dead.death) {
    case Death::kBeforeTheFirst:
      die();
      post();
      neighbors.Start(healthy, traffic);
      break;
    case Death::kNeverAnswered:
      die();
      neighbors.Start(healthy, traffic);
      neighbors.RunTo(10 * kMillisecond);
      post();
      break;
    case Death::kAfterAnswers:
      for (Neighbors::Connection* pair : pairs) neighbors.Post(*pair);
      neighbors.RunTo(100 * kMillisecond);
      neighbors.Start(healthy, traffic);
      neighbors.RunTo(110 * kMillisecond);
      die();
      post();
      break;
    case Death::kInTheMidst:
      neighbors.Start(healthy, traffic);
      for (Neighbors::Connection* pair : pairs) {
        Traffic like = dead.traffic;
        like.depth = kDeadMessages;
        neighbors.Start(*pair, like);
      }
      neighbors.RunTo(20 * kMillisecond);
      for (Neighbors::Connection* pair : pairs) {
        neighbors.Stop(*pair);
        neighbors.DestroyPeer(*pair);
      }
      // Until now it had the share of one among many.
      neighbors.RestartClock(healthy);
      break;
  }
  healthy.worst = 0;
  const uint64_t before = healthy.completed;
  const Time end = neighbors.now() + kPeriod;
  neighbors.RunTo(end);
  EXPECT_FALSE(neighbors.checker().failed()) << neighbors.checker().ToString();
  EXPECT_EQ(healthy.failed, 0u);
  return {healthy.completed - before, neighbors.WorstOf(healthy)};
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

TEST_P(DeadPeerTest, InTheMidstOfTraffic) {
  ExpectUnharmed(Dead(Death::kInTheMidst), 4096);
}

// First packets are sent although no peer has answered, but limited in total.
TEST(ManyDeadPeersTest, DoNotFloodAPathWithoutAnswers) {
  Neighbors neighbors(4096);
  std::vector<Neighbors::Connection*> pairs;
  for (int i = 0; i < 500; ++i) {
    pairs.push_back(&neighbors.Connect(14));
    pairs.back()->traffic = {.opcode = SendOpcode::kRdmaWrite, .bytes = 65536};
    neighbors.DestroyPeer(*pairs.back());
  }
  for (Neighbors::Connection* pair : pairs) neighbors.Post(*pair);
  neighbors.RunTo(2 * kMillisecond);  // sent, and not yet probed
  const uint64_t in_flight = pairs.front()->a.qp->path()->in_flight();
  EXPECT_LE(in_flight, transport::Path::kMaxWithUnanswered);
  EXPECT_GT(in_flight, transport::Path::kMaxWithUnanswered / 2);
  // Eventually all of them fail.
  neighbors.RunTo(60 * kSecond, [&] {
    return std::all_of(pairs.begin(), pairs.end(),
                       [](const auto* pair) { return pair->failed == 1; });
  });
  for (const Neighbors::Connection* pair : pairs) EXPECT_EQ(pair->failed, 1u);
  EXPECT_FALSE(neighbors.checker().failed()) << neighbors.checker().ToString();
}

// Peers that answer again: their outstanding messages complete, and other queue
// pairs are not affected.
TEST_P(DeadPeerTest, ThatComesBack) {
  for (const Traffic& traffic : HealthyTraffic()) {
    const Result alone = Alone(traffic, 4096);
    Neighbors neighbors(4096);
    const DeadPairs dead = Dead(Death::kAfterAnswers);
    std::vector<Neighbors::Connection*> pairs;
    for (int i = 0; i < dead.count; ++i) {
      pairs.push_back(&neighbors.Connect(dead.timeout));
      pairs.back()->traffic = dead.traffic;
      neighbors.Post(*pairs.back());
    }
    Neighbors::Connection& healthy = neighbors.Connect(14);
    neighbors.RunTo(10 * kMillisecond);
    for (Neighbors::Connection* pair : pairs) {
      EXPECT_EQ(pair->completed, 1u);
      neighbors.Silence(*pair);
      for (uint32_t i = 0; i < kDeadMessages; ++i) neighbors.Post(*pair);
    }
    neighbors.RunTo(30 * kMillisecond);
    neighbors.Start(healthy, traffic);
    neighbors.RunTo(40 * kMillisecond);
    for (Neighbors::Connection* pair : pairs) neighbors.Restore(*pair);
    const uint64_t before = healthy.completed;
    neighbors.RunTo(neighbors.now() + kPeriod);
    const std::string what =
        absl::StrCat(NameOf(traffic.opcode), " of ", traffic.bytes);
    EXPECT_GE((healthy.completed - before) * 5, alone.messages * 4)
        << what << ", alone " << alone.messages;
    EXPECT_LE(neighbors.WorstOf(healthy), kLongestWait) << what;
    // They are probed at least once a second.
    neighbors.Stop(healthy);
    neighbors.RunTo(neighbors.now() + 2 * kSecond, [&] {
      return std::all_of(pairs.begin(), pairs.end(), [](const auto* pair) {
        return pair->completed == 1 + kDeadMessages;
      });
    });
    for (const Neighbors::Connection* pair : pairs) {
      EXPECT_EQ(pair->completed, 1 + kDeadMessages) << what;
      EXPECT_EQ(pair->failed, 0u) << what;
    }
    EXPECT_FALSE(neighbors.checker().failed())
        << neighbors.checker().ToString();
  }
}

}  // namespace
}  // namespace sim
