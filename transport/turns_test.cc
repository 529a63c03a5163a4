#include "transport/turns.h"

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/path.h"
#include "transport/testing/requester_peer.h"
#include "transport/testing/wire_peer.h"

namespace transport {
namespace {

constexpr size_t kBurst = 64 * 1024;
constexpr int kBurstsInATurn = Turns::kQuantum / kBurst;

// Links by the letters a, b, c, ...
class TurnsTest : public ::testing::Test {
 protected:
  TurnsTest() {
    for (EndpointLink& link : links) link.deficit = Turns::kQuantum;
  }
  EndpointLink* at(char letter) { return &links[letter - 'a']; }
  void Activate(const std::string& letters) {
    for (char letter : letters) turns.Activate(at(letter));
  }
  // Takes whose turn it is; '-': nobody's; a capital: answers only.
  char Take() {
    const Turns::Next next = turns.Take();
    if (next.link == nullptr) return '-';
    const auto i = static_cast<char>(next.link - links.data());
    return static_cast<char>((next.answers_only ? 'A' : 'a') + i);
  }
  // Who has the next `count` turns, each of whom sends a burst and has more.
  std::string Bursts(int count) {
    std::string letters;
    while (count-- > 0) {
      letters += Take();
      turns.Transmitted(at(letters.back()), kBurst, true);
    }
    return letters;
  }

  Turns turns;
  TurnList waiting;
  std::vector<EndpointLink> links{26};
};

TEST_F(TurnsTest, EachSendsItsQuantumAtOnce) {
  Activate("abc");
  // One burst each, having been idle; the last of them is then in its turn.
  EXPECT_EQ(Bursts(3), "abc");
  EXPECT_EQ(Bursts(9), "cccbbbaaa");
  EXPECT_EQ(Bursts(12), "ccccbbbbaaaa");
  EXPECT_EQ(Bursts(12), "ccccbbbbaaaa");
}

TEST_F(TurnsTest, WhoHasBeenIdleGoesFirst) {
  Activate("ab");
  EXPECT_EQ(Bursts(2 * kBurstsInATurn + 1), "abbbbaaab");
  Activate("cd");
  EXPECT_EQ(Take(), 'c');
  turns.Transmitted(at('c'), 100, false);
  EXPECT_EQ(Take(), 'd');
  turns.Transmitted(at('d'), 100, false);
  EXPECT_EQ(Bursts(4), "bbba");
}

TEST_F(TurnsTest, ToComeAndGoGainsNothing) {
  Activate("ab");
  Bursts(2 * kBurstsInATurn);
  std::string letters;
  // One sends whole bursts, and goes idle behind each; between them the others
  // have one burst each time.
  for (int i = 0; i < 64; ++i) {
    Activate("c");
    for (char letter = 'c'; letter == 'c';) {
      letter = Take();
      letters += letter;
      turns.Transmitted(at(letter), kBurst, letter != 'c');
    }
  }
  const auto count = [&letters](char letter) {
    return std::count(letters.begin(), letters.end(), letter);
  };
  EXPECT_LE(count('c'), count('a') + kBurstsInATurn);
  EXPECT_LE(count('c'), count('b') + kBurstsInATurn);
}

TEST_F(TurnsTest, ExactlyAQuantumEachTimeGainsNothing) {
  Activate("a");
  Bursts(kBurstsInATurn);
  Activate("b");
  EXPECT_EQ(Bursts(kBurstsInATurn - 1), "bbb");
  EXPECT_EQ(Take(), 'b');
  turns.Transmitted(at('b'), kBurst, false);
  Activate("b");
  EXPECT_EQ(Bursts(kBurstsInATurn), "aaaa");
  EXPECT_EQ(Bursts(kBurstsInATurn), "bbbb");
}

TEST_F(TurnsTest, SentTooMuchIsMadeUpFor) {
  Activate("ab");
  std::vector<size_t> sent(2);
  for (int i = 0; i < 1000; ++i) {
    const char letter = Take();
    const size_t bytes = letter == 'a' ? 60000 : 65507;
    sent[letter - 'a'] += bytes;
    turns.Transmitted(at(letter), bytes, true);
  }
  EXPECT_NEAR(sent[0], sent[1], Turns::kQuantum + 65507);
}

TEST_F(TurnsTest, AnswersWaitForNobody) {
  Activate("abc");
  Bursts(3 * kBurstsInATurn);
  ASSERT_EQ(Bursts(1), "c");
  turns.Answer(at('d'));
  turns.Answer(at('a'));
  turns.Answer(at('a'));
  EXPECT_EQ(Take(), 'D');
  EXPECT_EQ(Take(), 'A');
  EXPECT_EQ(Bursts(11), "cccbbbbaaaa");
}

TEST_F(TurnsTest, AnswersGoWithTheirOwnData) {
  Activate("ab");
  Bursts(2 * kBurstsInATurn + 1);
  Activate("c");
  for (char letter : {'b', 'c', 'a'}) turns.Answer(at(letter));
  // In the midst of its turn, or come back from being idle: all of it. It has
  // no answers left then.
  EXPECT_EQ(Bursts(2), "bc");
  EXPECT_EQ(Take(), 'A');
  EXPECT_EQ(Bursts(1), "c");
}

TEST_F(TurnsTest, OneThatWaitsKeepsItsPlace) {
  Activate("abc");
  Bursts(3 * kBurstsInATurn);
  // The window closes in the midst of c's turn, and b and a find it closed.
  ASSERT_EQ(Bursts(1), "c");
  ASSERT_EQ(Take(), 'c');
  turns.Wait(at('c'), &waiting);
  turns.Transmitted(at('c'), kBurst, false);
  for (char letter : {'b', 'a'}) {
    ASSERT_EQ(Take(), letter);
    turns.Wait(at(letter), &waiting);
    turns.Transmitted(at(letter), 0, false);
  }
  ASSERT_EQ(Take(), '-');
  // An acknowledgement does not change that,
  turns.Answer(at('b'));
  EXPECT_EQ(Take(), 'B');
  // nor does being woken for nothing.
  turns.Wake(&waiting);
  turns.Wake(&waiting);
  for (char letter : {'c', 'b'}) {
    ASSERT_EQ(Take(), letter);
    turns.Wait(at(letter), &waiting);
    turns.Transmitted(at(letter), 0, false);
  }
  // One that has been idle waits before them all.
  Activate("d");
  ASSERT_EQ(Take(), 'd');
  turns.Wait(at('d'), &waiting);
  turns.Transmitted(at('d'), 0, false);
  std::string order;
  for (int i = 0; i < 4; ++i) {
    turns.Wake(&waiting);
    order += Take();
  }
  EXPECT_EQ(order, "dcba");
  turns.Wake(&waiting);
  EXPECT_EQ(Take(), '-');
}

TEST_F(TurnsTest, RemovedFromEverything) {
  Activate("abc");
  turns.Answer(at('b'));
  turns.Remove(at('b'));
  turns.Remove(at('b'));
  EXPECT_EQ(Bursts(2), "ac");
  ASSERT_EQ(Take(), 'c');
  turns.Wait(at('c'), &waiting);
  turns.Transmitted(at('c'), kBurst, false);
  turns.Remove(at('c'));
  turns.Remove(at('a'));
  EXPECT_EQ(Take(), '-');
  EXPECT_TRUE(waiting.empty());
  EXPECT_EQ(turns.size(), 0u);
}

TEST(TurnListTest, Order) {
  std::vector<EndpointLink> links(6);
  const Place places[] = {Place::kLast,  Place::kNext, Place::kLast,
                          Place::kFirst, Place::kNext, Place::kFirst};
  TurnList list;
  for (size_t i = 0; i < links.size(); ++i) {
    links[i].place = places[i];
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
  links[4].place = Place::kLast;
  list.PushFront(&links[4]);
  list.PushBack(&links[5]);
  EXPECT_EQ(drain(), "351402");
  EXPECT_EQ(list.size(), 0u);
}

// --- With queue pairs.

// Two that send to one peer, with the window full open.
class TwoQueuePairsTest : public ::testing::Test {
 protected:
  TwoQueuePairsTest() : peer(Options()) {
    peer.attributes.path_mtu = 1024;
    peer.Connect();
    QpConfig config = peer.qp->config();
    ++config.qpn;
    other = std::make_unique<QueuePair>(peer.endpoint, config);
    peer.qp.swap(other);
    peer.Connect();
    peer.qp.swap(other);
    // Slow start: what is acknowledged of a full window adds to it.
    while (peer.path().window() < Path::kGreatestWindow) {
      peer.Write(1, 1 << 20);
      for (peer.Transmit(); !peer.sent.empty(); peer.Transmit()) {
        peer.Ack(peer.sent.back().psn);
      }
      if (++tries == 1000) break;
    }
    EXPECT_EQ(peer.in_flight(), 0u);
    peer.Completions();
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

// Where others have their turns in between, the next message may be long in
// coming, and would keep what is in flight from them.
TEST_F(TwoQueuePairsTest, ATurnEndsWithAMessageAndAnAcknowledgementRequest) {
  for (int i = 0; i < 20; ++i) peer.Write(i, 64 * 1024);
  peer.qp.swap(other);
  for (int i = 0; i < 20; ++i) peer.Write(i, 64 * 1024);
  peer.qp.swap(other);
  peer.Transmit();
  // A message of 64 packets leaves in two bursts, since its first packet is
  // longer than the others. Having been idle, each of the two sends its first
  // burst at once; then they have turns of four messages, until the window is
  // full, which 819 packets fit.
  std::vector<int> runs(1);
  for (const RequesterPeer::Sent& packet : peer.sent) {
    ++runs.back();
    if (!packet.ack_req) continue;
    EXPECT_TRUE(packet.operation == wire::Operation::kWriteLast ||
                &packet == &peer.sent.back());
    runs.push_back(0);
  }
  EXPECT_EQ(runs, (std::vector<int>{2 + 256, 254, 256, 819 - 768, 0}));
}

// The answer to a peer does not wait until others have sent their data.
TEST_F(TwoQueuePairsTest, AcknowledgementsGoBeforeData) {
  for (int i = 0; i < 20; ++i) peer.Write(i, 64 * 1024);
  peer.TransmitOne();
  peer.qp.swap(other);
  for (int i = 0; i < 20; ++i) peer.Write(i, 64 * 1024);
  for (int i = 0; i < 9; ++i) peer.TransmitOne();
  // It has had its turn, and the first one is in the midst of its own.
  wire::Headers headers;
  headers.bth.opcode =
      wire::MakeOpcode(wire::Transport::kRc, wire::Operation::kWriteOnly);
  headers.bth.dest_qpn = peer.qp->qpn();
  headers.bth.psn = 1;
  headers.bth.ack_req = true;
  peer.Deliver(headers);
  EXPECT_EQ(peer.TransmitOne(), "ACKNOWLEDGE 1");
}

}  // namespace
}  // namespace transport
