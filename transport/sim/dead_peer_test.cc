// Queue pairs whose peers are silent, beside one whose peer answers, at the
// same address: the healthy one keeps four fifths of the rate that it has
// alone, and no message of it waits for more than 5 ms.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "transport/queue_pairs.h"
#include "transport/sim/checker.h"
#include "transport/sim/network.h"
#include "transport/sim/pair.h"
#include "transport/sim/queues.h"

namespace sim {
namespace {

using transport::kMillisecond;
using transport::kSecond;
using transport::QpState;
using transport::SendOpcode;
using transport::WcStatus;

constexpr transport::PdId kPd = 7;
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

struct Traffic {
  SendOpcode opcode = SendOpcode::kRdmaRead;
  uint32_t bytes = 64;
  uint32_t depth = 1;  // messages outstanding

  bool operator<(const Traffic& other) const {
    return std::tie(opcode, bytes, depth) <
           std::tie(other.opcode, other.bytes, other.depth);
  }
};

// One node with queue pairs to another one, over 10 Gb/s.
class Neighbors {
 public:
  static constexpr size_t kBuffer = 1 << 20;

  struct End {
    SimCq send_cq;
    SimCq recv_cq;
    std::unique_ptr<transport::QueuePair> qp;
  };
  struct Connection {
    End a;
    End b;
    Traffic traffic;
    std::vector<Time> posted;  // of those outstanding, oldest first
    uint64_t completed = 0;
    uint64_t failed = 0;
    Time worst = 0;  // from the post to the completion
  };

  explicit Neighbors(uint32_t path_mtu) : mtu_(path_mtu), net_(1, &checker_) {
    LinkProfile link;
    link.bytes_per_us = 1250;
    net_.SetAllLinks(link);
    for (int i = 0; i < 2; ++i) {
      Node& node = net_.AddNode();
      node.profile().bytes_per_us = 1250;
      buffers_[i] = std::vector<uint8_t>(kBuffer);
      regions_[i] = node.memory().Register(kPd, buffers_[i].data(),
                                           uint64_t{0x700000000000} + (i << 24),
                                           kBuffer, kAllAccess);
    }
    net_.filter = [this](const Node&, const wire::PacketView& packet) {
      return !deaf_.contains(packet.bth().dest_qpn);
    };
  }

  Connection& Connect(uint8_t timeout, uint8_t retry_cnt = 7) {
    connections_.push_back(std::make_unique<Connection>());
    Connection& connection = *connections_.back();
    const auto number = static_cast<uint32_t>(connections_.size());
    Create(connection.a, 0, 0x0a0000 + number);
    Create(connection.b, 1, 0x0b0000 + number);
    ToRts(connection.a, connection.b, 0, timeout, retry_cnt);
    ToRts(connection.b, connection.a, 1, timeout, retry_cnt);
    for (int i = 0; i < 64; ++i) PostReceive(connection);
    return connection;
  }

  // Neither its packets nor those to it arrive.
  void Silence(const Connection& connection) {
    deaf_.insert(connection.a.qp->qpn());
    deaf_.insert(connection.b.qp->qpn());
  }
  void LetSpeak(const Connection& connection) {
    deaf_.erase(connection.a.qp->qpn());
    deaf_.erase(connection.b.qp->qpn());
  }
  void DestroyPeer(Connection& connection) { connection.b.qp.reset(); }

  void Post(Connection& connection) {
    const transport::Sge sge = {regions_[0].va, connection.traffic.bytes,
                                regions_[0].lkey};
    transport::SendRequest request;
    request.opcode = connection.traffic.opcode;
    request.flags = transport::kSendSignaled;
    request.sges = {&sge, 1};
    request.remote_addr = regions_[1].va;
    request.rkey = regions_[1].rkey;
    connection.posted.push_back(net_.now());
    if (connection.a.qp->PostSend(request, net_.now()) != 0) {
      checker_.Fail("cannot post");
    }
    net_.Touch(net_.node(0));
  }

  // Keeps its traffic going until RunTo comes to an end.
  void Start(Connection& connection, const Traffic& traffic) {
    connection.traffic = traffic;
    running_.push_back(&connection);
    for (uint32_t i = 0; i < traffic.depth; ++i) Post(connection);
  }
  void Stop(const Connection& connection) { std::erase(running_, &connection); }

  // Until `end`, or until `done`.
  bool RunTo(Time end, const std::function<bool()>& done = nullptr) {
    const auto step = [&] {
      for (const auto& connection : connections_) {
        if (connection->a.send_cq.size() > 0) TakeCompletions(*connection);
        if (connection->b.recv_cq.size() > 0) {
          const size_t taken = connection->b.recv_cq.TakeAll().size();
          if (connection->b.qp == nullptr) continue;
          for (size_t i = 0; i < taken; ++i) PostReceive(*connection);
        }
      }
      return done != nullptr && done();
    };
    const bool reached = net_.RunUntil(step, end);
    if (!reached && !checker_.failed()) net_.RunTo(end);
    return reached;
  }

  // What is outstanding counts as posted now.
  void ForgetWaiting(Connection& connection) {
    std::fill(connection.posted.begin(), connection.posted.end(), net_.now());
  }
  // What waits counts, too.
  Time WorstOf(const Connection& connection) const {
    return connection.posted.empty()
               ? connection.worst
               : std::max(connection.worst,
                          net_.now() - connection.posted.front());
  }

  Time now() const { return net_.now(); }
  Network& net() { return net_; }
  const Checker& checker() const { return checker_; }

 private:
  void Create(End& end, int node, uint32_t qpn) {
    transport::QpConfig config;
    config.qpn = qpn;
    config.pd = kPd;
    config.capacity = {.max_send_wr = 64,
                       .max_recv_wr = 64,
                       .max_send_sge = 1,
                       .max_recv_sge = 1,
                       .max_inline_data = 0};
    config.memory = &net_.node(node).memory();
    config.send_cq = &end.send_cq;
    config.recv_cq = &end.recv_cq;
    config.events = &events_;
    end.qp = transport::MakeQueuePair(net_.node(node).endpoint(), config);
  }

  void ToRts(End& end, const End& other, int node, uint8_t timeout,
             uint8_t retry_cnt) {
    transport::QpAttributes to;
    to.path_mtu = mtu_;
    to.access_flags = kAllAccess;
    to.dest_qpn = other.qp->qpn();
    to.av.source = net_.node(node).address();
    to.av.destination = net_.node(1 - node).address();
    to.av.source_port = static_cast<uint16_t>(0xc000 + end.qp->qpn() % 1024);
    to.max_rd_atomic = to.max_dest_rd_atomic = 16;
    to.min_rnr_timer = 1;
    to.timeout = timeout;
    to.retry_cnt = retry_cnt;
    to.rnr_retry = 7;
    const std::pair<QpState, uint32_t> steps[] = {{QpState::kInit, kToInit},
                                                  {QpState::kRtr, kToRtr},
                                                  {QpState::kRts, kToRts}};
    for (const auto& [state, mask] : steps) {
      to.state = state;
      if (end.qp->Modify(to, mask, net_.now()) != 0) {
        checker_.Fail("cannot connect");
      }
    }
  }

  void PostReceive(Connection& connection) {
    const transport::Sge sge = {regions_[1].va, kBuffer, regions_[1].lkey};
    connection.b.qp->PostReceive({.wr_id = 0, .sges = {&sge, 1}}, net_.now());
    net_.Touch(net_.node(1));
  }

  void TakeCompletions(Connection& connection) {
    const bool runs = std::find(running_.begin(), running_.end(),
                                &connection) != running_.end();
    for (const transport::Completion& wc : connection.a.send_cq.TakeAll()) {
      connection.worst =
          std::max(connection.worst, net_.now() - connection.posted.front());
      connection.posted.erase(connection.posted.begin());
      if (wc.status != WcStatus::kSuccess) {
        ++connection.failed;
        continue;
      }
      ++connection.completed;
      if (runs) Post(connection);
    }
  }

  const uint32_t mtu_;
  Checker checker_;
  Network net_;
  SimEvents events_;
  std::vector<uint8_t> buffers_[2];
  Region regions_[2];
  std::set<uint32_t> deaf_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<const Connection*> running_;
};

// How the queue pairs with dead peers came to that.
enum class Death {
  kBeforeTheFirst,  // before anything was sent on the path
  kNeverAnswered,   // beside traffic; their peers never answered
  kAfterAnswers,    // beside traffic, having been answered before
  kInTheMidst,      // in the midst of traffic like the healthy one's
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

// What a healthy pair does in kPeriod beside dead ones.
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
      // Until now it has had the share of one among many.
      neighbors.ForgetWaiting(healthy);
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

// First packets leave although nobody has answered, but not of any number.
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
  EXPECT_LE(in_flight, transport::Path::kMostWithUnanswered);
  EXPECT_GT(in_flight, transport::Path::kMostWithUnanswered / 2);
  // All of them fail in the end: nobody is forgotten.
  neighbors.RunTo(60 * kSecond, [&] {
    return std::all_of(pairs.begin(), pairs.end(),
                       [](const auto* pair) { return pair->failed == 1; });
  });
  for (const Neighbors::Connection* pair : pairs) EXPECT_EQ(pair->failed, 1u);
  EXPECT_FALSE(neighbors.checker().failed()) << neighbors.checker().ToString();
}

// Peers that answer again: what was posted to them is done, and nobody else
// notices.
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
    for (Neighbors::Connection* pair : pairs) neighbors.LetSpeak(*pair);
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
