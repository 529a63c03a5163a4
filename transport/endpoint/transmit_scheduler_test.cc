#include "transport/endpoint/transmit_scheduler.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/congestion/path.h"
#include "transport/testing/requester_peer.h"

namespace transport {
namespace {

constexpr size_t kBurst = 64 * 1024;
static_assert(TransmitScheduler::kQuantum == 4 * kBurst);
static_assert(TransmitScheduler::kFirstQuantum == kBurst);

// Links by the letters a, b, c, ...
class TransmitSchedulerTest : public ::testing::Test {
 protected:
  TransmitSchedulerTest() {
    for (EndpointLink& link : links)
      link.deficit = TransmitScheduler::kFirstQuantum;
  }
  EndpointLink* at(char letter) { return &links[letter - 'a']; }
  void Activate(const std::string& letters) {
    for (char letter : letters) scheduler.Activate(at(letter));
  }
  // Takes the next link: its letter, a capital for ACKs only, '-' for none.
  char Take() {
    const TransmitScheduler::Next next = scheduler.Peek();
    if (next.link == nullptr) return '-';
    scheduler.Take(next);
    const auto i = static_cast<char>(next.link - links.data());
    return static_cast<char>((next.acks_only ? 'A' : 'a') + i);
  }
  // Takes `letter`, which sends `bytes` and has no more.
  void SendAll(char letter, size_t bytes) {
    ASSERT_EQ(Take(), letter);
    scheduler.Transmitted(at(letter), bytes, false);
  }
  // Takes `letter`, which sends `bytes` and then waits for the window.
  void SendAndWait(char letter, size_t bytes) {
    ASSERT_EQ(Take(), letter);
    scheduler.Wait(at(letter), &waiting);
    scheduler.Transmitted(at(letter), bytes, false);
  }
  // The senders of the next `count` bursts; each has more to send.
  std::string Bursts(int count) {
    std::string letters;
    while (count-- > 0) {
      letters += Take();
      scheduler.Transmitted(at(letters.back()), kBurst, true);
    }
    return letters;
  }
  // All waiting links, in the order in which they are woken.
  std::string WakeAll() {
    std::string letters;
    while (!waiting.empty()) {
      scheduler.Wake(&waiting);
      letters += Take();
    }
    return letters;
  }

  TransmitScheduler scheduler;
  ScheduleList waiting;
  std::vector<EndpointLink> links{26};
};

TEST_F(TransmitSchedulerTest, EachSendsItsQuantumAtOnce) {
  Activate("abc");
  EXPECT_EQ(Bursts(3), "abc");
  EXPECT_EQ(Bursts(12), "aaaabbbbcccc");
  EXPECT_EQ(Bursts(12), "aaaabbbbcccc");
}

TEST_F(TransmitSchedulerTest, IdleLinksGoFirst) {
  Activate("ab");
  EXPECT_EQ(Bursts(4), "abaa");
  Activate("cd");
  // This holds even if its message takes several bursts.
  ASSERT_EQ(Take(), 'c');
  scheduler.Transmitted(at('c'), 20000, true);
  SendAll('c', 20000);
  SendAll('d', 100);
  EXPECT_EQ(Bursts(4), "aabb");
}

TEST_F(TransmitSchedulerTest, SparseLinksAlwaysGoFirst) {
  Activate("abde");
  Bursts(6);
  for (int i = 0; i < 5000; ++i) {
    Activate("c");
    SendAll('c', 100);
    Bursts(1);
  }
}

TEST_F(TransmitSchedulerTest, GoingIdleAndReturningGainsNothing) {
  Activate("ab");
  std::string letters = Bursts(2);
  // c goes idle after each burst and returns at once.
  for (int i = 0; i < 64; ++i) {
    Activate("c");
    for (char letter = 0; letter != 'c';) {
      letter = Take();
      letters += letter;
      scheduler.Transmitted(at(letter), kBurst, letter != 'c');
    }
  }
  const auto count = [&letters](char letter) {
    return std::count(letters.begin(), letters.end(), letter);
  };
  EXPECT_LE(count('c'), count('a') + 4);
  EXPECT_LE(count('c'), count('b') + 4);
}

// Writers of one-burst messages beside one that always has data. Enough
// messages are in flight that some writer always returns in time to go first.
class ComeAndGoTest : public TransmitSchedulerTest,
                      public ::testing::WithParamInterface<size_t> {};
INSTANTIATE_TEST_SUITE_P(Windows, ComeAndGoTest, ::testing::Values(2, 6, 16));

TEST_P(ComeAndGoTest, DoNotStarveOthers) {
  constexpr size_t kMessage = 65808;  // more than the first quantum
  const size_t window = GetParam();   // in messages
  for (char last = 'b'; last <= 'z'; ++last) {
    scheduler = TransmitScheduler();
    waiting = ScheduleList();
    links.assign(26, {});
    std::vector<int> sent(26);
    std::deque<char> in_flight;
    for (char letter = 'a'; letter <= last; ++letter) Activate({letter});
    for (int step = 0; step < 20000; ++step) {
      const char letter = Take();
      if (letter == '-') {
        ASSERT_FALSE(in_flight.empty());
        const char answered = in_flight.front();
        in_flight.pop_front();
        scheduler.Wake(&waiting);
        if (answered != 'a') Activate({answered});
      } else if (in_flight.size() < window) {
        in_flight.push_back(letter);
        ++sent[letter - 'a'];
        scheduler.Transmitted(at(letter), kMessage, letter == 'a');
        if (in_flight.size() < window) scheduler.Wake(&waiting);
      } else {
        scheduler.Wait(at(letter), &waiting);
        scheduler.Transmitted(at(letter), 0, false);
      }
    }
    // A fair share is `all` / `count`, or what a writer asks for if that is
    // less.
    const int count = last - 'a' + 1;
    const int all = std::accumulate(sent.begin(), sent.end(), 0);
    EXPECT_GT(all, 5000) << last;
    EXPECT_GE(sent[0], all / count / 2) << last;
    for (int i = 1; i < count; ++i) EXPECT_GE(sent[i], all / count / 8) << last;
  }
}

TEST_F(TransmitSchedulerTest, AWholeTurnEachTimeGainsNothing) {
  Activate("a");
  Bursts(1);
  Activate("b");
  SendAll('b', kBurst);
  Activate("b");
  EXPECT_EQ(Bursts(7), "aaaabbb");
  SendAll('b', kBurst);
  Activate("b");
  EXPECT_EQ(Bursts(8), "aaaabbbb");
}

TEST_F(TransmitSchedulerTest, AnExceededQuantumIsDeducted) {
  Activate("ab");
  std::vector<size_t> sent(2);
  for (int i = 0; i < 1000; ++i) {
    const char letter = Take();
    const size_t bytes = letter == 'a' ? 60000 : 65507;
    sent[letter - 'a'] += bytes;
    scheduler.Transmitted(at(letter), bytes, true);
  }
  EXPECT_NEAR(sent[0], sent[1], TransmitScheduler::kQuantum + 65507);
}

TEST_F(TransmitSchedulerTest, AcksDoNotWaitForOtherTurns) {
  Activate("abc");
  Bursts(3);
  ASSERT_EQ(Bursts(1), "a");
  for (char letter : {'d', 'b', 'b'}) scheduler.AddAcks(at(letter));
  EXPECT_EQ(Take(), 'D');
  EXPECT_EQ(Take(), 'B');
  EXPECT_EQ(Bursts(11), "aaabbbbcccc");
}

TEST_F(TransmitSchedulerTest, AcksGoWithTheirOwnData) {
  Activate("ab");
  ASSERT_EQ(Bursts(3), "aba");
  Activate("cd");
  // d is as fresh as c; a was in the middle of its turn, but is not the next.
  for (char letter : {'d', 'a', 'b'}) scheduler.AddAcks(at(letter));
  SendAll('d', 100);
  EXPECT_EQ(Take(), 'A');
  EXPECT_EQ(Take(), 'B');
  SendAll('c', 100);
  scheduler.AddAcks(at('a'));
  EXPECT_EQ(Bursts(4), "aaab");
}

TEST_F(TransmitSchedulerTest, AWaitingLinkKeepsItsPosition) {
  Activate("abc");
  Bursts(3);
  // The window closes in the middle of a's turn, and b and c find it closed.
  ASSERT_EQ(Bursts(1), "a");
  SendAndWait('a', kBurst);
  SendAndWait('b', 0);
  SendAndWait('c', 0);
  ASSERT_EQ(Take(), '-');
  // An ACK does not change the order.
  scheduler.AddAcks(at('b'));
  EXPECT_EQ(Take(), 'B');
  // A wake-up that finds the window closed does not change it either.
  scheduler.Wake(&waiting);
  scheduler.Wake(&waiting);
  SendAndWait('a', 0);
  SendAndWait('b', 0);
  // A link that was idle waits before all of them.
  Activate("d");
  SendAndWait('d', 0);
  EXPECT_EQ(WakeAll(), "dabc");
}

// Waiting for a path's window does not let it overtake others.
TEST_F(TransmitSchedulerTest, WaitingGainsNothing) {
  Activate("wab");
  ASSERT_EQ(Bursts(3), "wab");
  SendAndWait('w', 0);
  scheduler.Wake(&waiting);
  EXPECT_EQ(Bursts(12), "aaaabbbbwwww");
}

TEST_F(TransmitSchedulerTest, AnEndedTurnComesLast) {
  Activate("ab");
  Bursts(2);
  SendAndWait('a', kBurst);
  SendAndWait('b', 0);
  scheduler.EndTurn(at('a'));
  scheduler.EndTurn(at('x'));
  EXPECT_EQ(WakeAll(), "ba");
}

TEST_F(TransmitSchedulerTest, RemovedFromEverything) {
  Activate("abc");
  scheduler.AddAcks(at('b'));
  scheduler.Remove(at('b'));
  scheduler.Remove(at('b'));
  EXPECT_EQ(Bursts(2), "ac");
  SendAndWait('a', kBurst);
  scheduler.AddAcks(at('a'));
  scheduler.StopWaiting(at('a'));
  scheduler.StopWaiting(at('a'));
  EXPECT_TRUE(waiting.empty());
  EXPECT_EQ(Take(), 'A');
  scheduler.Remove(at('c'));
  EXPECT_EQ(Take(), '-');
  EXPECT_TRUE(scheduler.empty());
  EXPECT_EQ(scheduler.size(), 0u);
}

TEST(ScheduleListTest, Order) {
  std::vector<EndpointLink> links(6);
  const Priority priorities[] = {Priority::kLast,    Priority::kOngoing,
                                 Priority::kLast,    Priority::kFresh,
                                 Priority::kOngoing, Priority::kFresh};
  ScheduleList list;
  for (size_t i = 0; i < links.size(); ++i) {
    links[i].priority = priorities[i];
    list.PushBack(&links[i]);
  }
  EXPECT_EQ(list.size(), 6u);
  const auto drain = [&] {
    std::string order;
    while (!list.empty()) {
      order += std::to_string(list.front() - links.data());
      list.Remove(list.front());
    }
    return order;
  };
  EXPECT_EQ(drain(), "351402");
  for (size_t i = 0; i < links.size(); ++i) list.PushFront(&links[i]);
  EXPECT_EQ(drain(), "534120");
  for (size_t i = 0; i < links.size(); ++i) list.PushBack(&links[i]);
  list.Remove(&links[5]);
  list.Remove(&links[4]);
  links[4].priority = Priority::kLast;
  list.PushFront(&links[4]);
  list.PushBack(&links[5]);
  EXPECT_EQ(drain(), "351402");
  EXPECT_EQ(list.size(), 0u);
}

// --- With queue pairs.

// Two queue pairs to one peer, with the window at its maximum.
class TwoQueuePairsTest : public ::testing::Test {
 protected:
  TwoQueuePairsTest() : peer(Options()) {
    peer.attributes.path_mtu = 1024;
    peer.attributes.max_rd_atomic = 16;
    peer.attributes.access_flags = kAccessRemoteWrite;
    peer.Connect();
    QpConfig config = peer.qp->config();
    ++config.qpn;
    other = MakeQueuePair(peer.endpoint, config);
    peer.qp.swap(other);
    peer.Connect();
    peer.qp.swap(other);
    // Slow start: acknowledging a full window enlarges it.
    while (peer.path().window() < Path::kMaxWindow) {
      peer.Write(1, 1 << 20);
      for (peer.Transmit(); !peer.sent.empty(); peer.Transmit()) {
        peer.Ack(peer.sent.back().psn);
      }
      if (++tries == 1000) break;
    }
    EXPECT_EQ(peer.in_flight(), 0u);
    peer.Completions();
  }
  // Delivers an empty WRITE with AckReq.
  void DeliverWrite() {
    wire::Headers headers;
    headers.bth.opcode =
        wire::MakeOpcode(wire::Transport::kRc, wire::Operation::kWriteOnly);
    headers.bth.dest_qpn = peer.qp->qpn();
    headers.bth.psn = 1;
    headers.bth.ack_req = true;
    peer.Deliver(headers);
    ASSERT_EQ(peer.qp->state(), QpState::kRts);
  }
  static RequesterPeer::Options Options() {
    RequesterPeer::Options options;
    options.capacity.max_send_wr = 64;
    return options;
  }

  RequesterPeer peer;
  std::unique_ptr<QueuePair> other;
  int tries = 0;
};

// When other turns come in between, the next message may be late, and its
// AckReq would delay the window.
TEST_F(TwoQueuePairsTest, ATurnEndsWithAMessageAndAnAcknowledgementRequest) {
  for (int i = 0; i < 20; ++i) peer.Write(i, 64 * 1024);
  peer.qp.swap(other);
  for (int i = 0; i < 20; ++i) peer.Write(i, 64 * 1024);
  peer.qp.swap(other);
  peer.Transmit();
  // A message of 64 packets needs two bursts, since its first packet is longer.
  // Each queue pair was idle, so it first sends one message; then they have
  // turns of four, until the window of 819 packets is full.
  std::vector<int> runs(1);
  for (const RequesterPeer::Sent& packet : peer.sent) {
    ++runs.back();
    if (!packet.ack_req) continue;
    EXPECT_TRUE(packet.operation == wire::Operation::kWriteLast ||
                &packet == &peer.sent.back());
    runs.push_back(0);
  }
  EXPECT_EQ(runs, (std::vector<int>{64, 64, 256, 256, 819 - 640, 0}));
}

// An ACK does not wait for other queue pairs' data.
TEST_F(TwoQueuePairsTest, AcknowledgementsGoBeforeData) {
  for (int i = 0; i < 20; ++i) peer.Write(i, 64 * 1024);
  for (int i = 0; i < 2; ++i) peer.TransmitOne();
  peer.qp.swap(other);
  for (int i = 0; i < 20; ++i) peer.Write(i, 64 * 1024);
  for (int i = 0; i < 3; ++i) peer.TransmitOne();
  // This queue pair's turn is used up, and the other one is in the middle of
  // its turn.
  DeliverWrite();
  EXPECT_EQ(peer.TransmitOne(), "ACKNOWLEDGE 1");
}

// An ACK that becomes due at the very end of a turn leaves in the turn's last
// burst.
TEST_F(TwoQueuePairsTest, AcknowledgementsFitTheEndOfATurn) {
  // Each message takes two bursts. The second ends with a shorter packet, so no
  // packet can follow.
  constexpr uint32_t kMessage = 64 * 1024 - 100;
  for (int turn = 0; turn < 2; ++turn) {
    for (int i = 0; i < 20; ++i) peer.Write(i, kMessage);
    for (int i = 0; i < 2; ++i) peer.TransmitOne();
    peer.qp.swap(other);
  }
  // The first queue pair's next turn, except for the last burst.
  constexpr int kBursts =
      2 * TransmitScheduler::kQuantum / TransmitScheduler::kFirstQuantum;
  for (int i = 1; i < kBursts; ++i) peer.TransmitOne();
  DeliverWrite();
  const uint64_t data = peer.qp->counters().tx_packets;
  EXPECT_TRUE(peer.TransmitOne().ends_with("[1024]; ACKNOWLEDGE 1"));
  EXPECT_EQ(peer.qp->counters().tx_packets, data + 62);
}

// A READ request is short, but uses the window for its responses. A queue pair
// that waits with a READ is not in the middle of its turn.
TEST_F(TwoQueuePairsTest, ReadsLeaveUnusedWindowToOthers) {
  for (int i = 0; i < 20; ++i) peer.Write(i, 64 * 1024);
  for (int i = 0; i < 2; ++i) peer.TransmitOne();
  peer.qp.swap(other);
  for (int i = 0; i < 8; ++i) peer.Read(i, 1 << 20);
  peer.Transmit();
  // The window is full and both wait. It opens too little for a READ.
  peer.qp.swap(other);
  const uint64_t packets = peer.qp->counters().tx_packets;
  const uint32_t psn = RequesterPeer::kPsn + static_cast<uint32_t>(packets) - 1;
  peer.Ack(psn - 32);
  peer.Transmit();
  peer.Ack(psn);
  peer.Transmit();
  EXPECT_GT(peer.qp->counters().tx_packets, packets);
}

// A silent peer does not block other queue pairs to the same host.
TEST_F(TwoQueuePairsTest, ADeadPeerDoesNotBlockOthers) {
  const uint64_t begin = peer.qp->counters().tx_packets;
  for (int turn = 0; turn < 2; ++turn) {
    for (int i = 0; i < 60; ++i) peer.Write(i, 64 * 1024);
    for (int i = 0; i < 2; ++i) peer.TransmitOne();
    peer.qp.swap(other);
  }
  // Only one peer answers, until packets to the other fill the window in the
  // middle of a turn.
  const uint64_t& packets = peer.qp->counters().tx_packets;
  const auto acknowledge = [&] {
    peer.Ack(RequesterPeer::kPsn + static_cast<uint32_t>(packets) - 1);
  };
  for (int i = 0; i < 10 && (peer.Transmit() != "" || i == 0); ++i) {
    acknowledge();
  }
  ASSERT_EQ(peer.Transmit(), "");
  const uint64_t before = packets;
  ASSERT_LT(before - begin, 60u * 64);
  // At the first probe the window belongs to the other one again, undiminished.
  const uint64_t window = peer.path().window();
  peer.At(peer.NextTimer());
  peer.Transmit();
  EXPECT_EQ(peer.path().window(), window);
  EXPECT_GT(packets, before);
  EXPECT_EQ(peer.qp->counters().retransmitted, 0u);
}

}  // namespace
}  // namespace transport
