// Two ends that agree, and for each lint two ends that do not.
#include "tools/trace/ends.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "rxe_user/observe/trace_events.h"

namespace trace {
namespace {

using rxe_user::trace::QpStateEvent;
using transport::QpState;
using transport::QpType;
using wire::IpAddress;

constexpr int64_t kSecond = 1'000'000'000;

// The attributes that were passed to ibv_modify_qp(3).
struct Attributes {
  QpType type = QpType::kRc;
  uint32_t qpn = 0;
  uint32_t dest_qpn = 0;
  std::string source;
  std::string destination;
  uint32_t path_mtu = 1024;
  uint32_t receive_psn = 0;
  uint32_t send_psn = 0;
};

class EndsTest : public testing::Test {
 protected:
  EndsTest() {
    for (Recording& each : recordings_) each.about.emplace();
    std::strcpy(recordings_[0].about->program, "client");
    std::strcpy(recordings_[1].about->program, "server");
  }
  void Change(size_t file, const Attributes& attributes, QpState from,
              QpState to, int64_t time) {
    QpStateEvent state;
    state.header.type = static_cast<uint16_t>(QpStateEvent::kType);
    state.header.size = sizeof(state);
    state.header.time = time;
    state.header.qpn = attributes.qpn;
    state.type = static_cast<uint8_t>(attributes.type);
    state.from = static_cast<uint8_t>(from);
    state.to = static_cast<uint8_t>(to);
    state.dest_qpn = attributes.dest_qpn;
    state.path_mtu = attributes.path_mtu;
    state.receive_psn = attributes.receive_psn;
    // sq_psn is set by the transition to RTS.
    state.send_psn = to == QpState::kRts ? attributes.send_psn : 0;
    const auto source = *IpAddress::Parse(attributes.source);
    const auto destination = *IpAddress::Parse(attributes.destination);
    std::ranges::copy(source.bytes, state.source);
    std::ranges::copy(destination.bytes, state.destination);
    std::vector<uint8_t> bytes(sizeof(state));
    std::memcpy(bytes.data(), &state, sizeof(state));
    recordings_[file].events.push_back(*Event::Parse(bytes));
  }
  void Connect(size_t file, const Attributes& attributes, int64_t time = 0) {
    Change(file, attributes, QpState::kReset, QpState::kInit, time);
    Change(file, attributes, QpState::kInit, QpState::kRtr, time + 1);
    Change(file, attributes, QpState::kRtr, QpState::kRts, time + 2);
  }
  // Connects two ends that would agree, after `change`.
  void ConnectBoth(const std::function<void(Attributes*, Attributes*)>& change,
                   QpType type = QpType::kRc, QpType peer = QpType::kRc) {
    Attributes a = {.type = type,
                    .qpn = 0x11,
                    .dest_qpn = 0x12,
                    .source = "10.0.0.1",
                    .destination = "10.0.0.2",
                    .receive_psn = 700,
                    .send_psn = 500};
    Attributes b = {.type = peer,
                    .qpn = 0x12,
                    .dest_qpn = 0x11,
                    .source = "10.0.0.2",
                    .destination = "10.0.0.1",
                    .receive_psn = 500,
                    .send_psn = 700};
    change(&a, &b);
    Connect(0, a);
    Connect(1, b);
  }
  std::vector<std::string> Found() {
    std::vector<ConnectionEnd> ends;
    for (size_t i = 0; i < 2; ++i) {
      std::ranges::move(EndsOf(recordings_[i], i), std::back_inserter(ends));
    }
    std::vector<std::string> found;
    for (const EndFinding& f : CompareEnds(ends)) {
      found.push_back(std::to_string(f.lint) + " " + std::string(f.name) +
                      ": " + f.what);
    }
    return found;
  }

  Recording recordings_[2];
};

using Lines = std::vector<std::string>;

TEST_F(EndsTest, NothingIfTheyAgree) {
  ConnectBoth([](Attributes*, Attributes*) {});
  EXPECT_EQ(Found(), Lines());
}

TEST_F(EndsTest, ANumberThatIsNotThePeers) {
  ConnectBoth([](Attributes* a, Attributes*) { a->dest_qpn = 0x13; });
  EXPECT_EQ(Found(), Lines{"20 peer-qpn: queue pair 0x000011 of client has "
                           "dest_qp_num 0x000013, and the one that sends to it "
                           "is 0x000012 of server"});
}

TEST_F(EndsTest, AnAddressThatIsNotThePeers) {
  ConnectBoth([](Attributes*, Attributes* b) { b->destination = "10.0.0.9"; });
  EXPECT_EQ(Found(), Lines{"21 peer-gid: queue pair 0x000012 of server has "
                           "dgid 10.0.0.9, and its peer, 0x000011 of client, "
                           "is at 10.0.0.1"});
}

TEST_F(EndsTest, APsnThatIsNotThePeers) {
  ConnectBoth([](Attributes* a, Attributes*) { a->receive_psn = 701; });
  EXPECT_EQ(Found(), Lines{"22 peer-psn: queue pair 0x000012 of server has "
                           "sq_psn 700, and its peer, 0x000011 of client, has "
                           "rq_psn 701"});
}

TEST_F(EndsTest, AnMtuThatIsNotThePeers) {
  ConnectBoth([](Attributes*, Attributes* b) { b->path_mtu = 4096; });
  EXPECT_EQ(Found(), Lines{"23 peer-mtu: queue pair 0x000011 of client has "
                           "path_mtu 1024, and its peer, 0x000012 of server, "
                           "has 4096"});
}

TEST_F(EndsTest, OnlyDirectionsThatAreUsed) {
  const auto wrong = [](Attributes* a, Attributes* b) {
    a->receive_psn = 1;
    b->send_psn = 2;
  };
  ConnectBoth(wrong, QpType::kXrcInitiator, QpType::kXrcTarget);
  EXPECT_EQ(Found(), Lines());
}

TEST_F(EndsTest, QueuePairsWithoutAConnection) {
  ConnectBoth([](Attributes* a, Attributes*) { a->receive_psn = 1; },
              QpType::kUd, QpType::kUd);
  EXPECT_EQ(Found(), Lines());
}

// The ends belong to connections with others, or at another time.
TEST_F(EndsTest, OtherConnectionsAreNotThePeer) {
  Attributes a = {.qpn = 0x11,
                  .dest_qpn = 0x12,
                  .source = "10.0.0.1",
                  .destination = "10.0.0.2",
                  .send_psn = 1};
  Connect(0, a);
  Attributes b = {.qpn = 0x12,
                  .dest_qpn = 0x15,
                  .source = "10.0.0.2",
                  .destination = "10.0.0.5",
                  .receive_psn = 2};
  Connect(1, b, 3 * kSecond);
  EXPECT_EQ(Found(), Lines());
}

// Each connection of a queue pair has its own peer.
TEST_F(EndsTest, AQueuePairThatIsConnectedAgain) {
  for (const uint32_t psn : {500, 600}) {
    const int64_t time = psn;
    Attributes a = {.qpn = 0x11,
                    .dest_qpn = 0x12,
                    .source = "10.0.0.1",
                    .destination = "10.0.0.2",
                    .send_psn = psn};
    Connect(0, a, time);
    Change(0, a, QpState::kRts, QpState::kReset, time + 10);
    Attributes b = {.qpn = 0x12,
                    .dest_qpn = 0x11,
                    .source = "10.0.0.2",
                    .destination = "10.0.0.1",
                    .receive_psn = psn};
    Connect(1, b, time);
    Change(1, b, QpState::kRts, QpState::kReset, time + 10);
  }
  EXPECT_EQ(Found(), Lines());
}

// A program may read its own memory by such a queue pair.
TEST_F(EndsTest, AQueuePairThatIsConnectedToItselfAgain) {
  for (const uint32_t psn : {500, 600}) {
    const Attributes a = {.qpn = 0x11,
                          .dest_qpn = 0x11,
                          .source = "10.0.0.1",
                          .destination = "10.0.0.1",
                          .receive_psn = psn,
                          .send_psn = psn};
    Connect(0, a, psn);
    Change(0, a, QpState::kRts, QpState::kReset, psn + 10);
  }
  EXPECT_EQ(Found(), Lines());
}

// The recording lacks the reset in between.
TEST_F(EndsTest, AQueuePairThatGoesToRtrAgain) {
  const Attributes a = {.qpn = 0x11,
                        .dest_qpn = 0x12,
                        .source = "10.0.0.1",
                        .destination = "10.0.0.2"};
  Change(0, a, QpState::kInit, QpState::kRtr, 1);
  Attributes later = a;
  later.dest_qpn = 0x13;
  Change(0, later, QpState::kInit, QpState::kRtr, kSecond);
  const Attributes peer = {.qpn = 0x12,
                           .dest_qpn = 0x21,
                           .source = "10.0.0.2",
                           .destination = "10.0.0.3"};
  Change(1, peer, QpState::kInit, QpState::kRtr, 4 * kSecond);
  EXPECT_EQ(Found(), Lines());
}

TEST_F(EndsTest, BothEndsInOneProcess) {
  ConnectBoth([](Attributes* a, Attributes*) { a->path_mtu = 256; });
  recordings_[0].events.insert(recordings_[0].events.end(),
                               recordings_[1].events.begin(),
                               recordings_[1].events.end());
  recordings_[1].events.clear();
  EXPECT_EQ(Found().size(), 1u);
}

}  // namespace
}  // namespace trace
