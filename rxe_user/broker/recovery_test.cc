// The broker dies during traffic.
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>

#include <cstdio>
#include <set>
#include <thread>

#include "rxe_user/broker/raw_client.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/broker/test_peer.h"

namespace rxe_user::broker {
namespace {

using RecoveryTest = BrokerTest;
using std::chrono::milliseconds;

std::vector<Peer> StartPeers(int count) {
  std::vector<Peer> peers;
  for (int i = 0; i < count; ++i) {
    peers.emplace_back();
    EXPECT_EQ(peers.back().Start(), "");
  }
  return peers;
}

// Kills the broker and waits for the next one.
void ReplaceBroker() {
  const pid_t old = KillBroker();
  ASSERT_TRUE(Eventually([&] {
    const pid_t now = BrokerPid();
    return now != 0 && now != old;
  }));
}

TEST_F(RecoveryTest, NoDatagramIsLostIfNoSlotWasReturned) {
  std::vector<Peer> peers = StartPeers(6);
  Asker asker;
  for (int round = 0; round < 5; ++round) {
    const pid_t old = KillBroker();
    // No datagram is lost while the next broker starts, or before and after
    // that.
    for (int i = 0; i < 400; ++i) {
      for (const Peer& p : peers) ASSERT_TRUE(asker.AskOnce(p.slot()));
    }
    ASSERT_TRUE(Eventually([&] {
      const pid_t now = BrokerPid();
      return now != 0 && now != old;
    }));
    for (const Peer& p : peers) ASSERT_TRUE(asker.AskOnce(p.slot()));
  }
}

TEST_F(RecoveryTest, MovedPositionsAreFoundAgain) {
  std::vector<Peer> peers = StartPeers(8);
  Asker asker;
  for (const size_t victim : {1u, 0u, 3u}) {
    // Only the broker has the victim's socket open. When the broker dies, the
    // last socket moves.
    peers[victim].Kill();
    peers.erase(peers.begin() + static_cast<ptrdiff_t>(victim));
    const auto start = std::chrono::steady_clock::now();
    ReplaceBroker();
    for (const Peer& p : peers) {
      EXPECT_TRUE(asker.Ask(p.slot(), milliseconds(5)));
    }
    const auto took = std::chrono::duration_cast<milliseconds>(
        std::chrono::steady_clock::now() - start);
    std::printf("recovered in %d ms\n", static_cast<int>(took.count()));
    // Seven retransmissions of 67 ms suffice on a quiet machine.
    EXPECT_LT(took.count(), 5000);
    // All peers stay reachable when the new broker probes again.
    const Peer next;
    for (int i = 0; i < 200; ++i) {
      for (const Peer& p : peers) EXPECT_TRUE(asker.Ask(p.slot()));
    }
  }
  // A new process gets its own slot and socket.
  Peer next;
  ASSERT_EQ(next.Start(), "");
  for (const Peer& p : peers) EXPECT_NE(p.slot(), next.slot());
  EXPECT_TRUE(asker.AskOnce(next.slot()));
  for (const Peer& p : peers) EXPECT_TRUE(asker.AskOnce(p.slot()));
}

TEST_F(RecoveryTest, NewcomersDuringRecoveryGetFreeSlots) {
  std::vector<Peer> peers = StartPeers(4);
  Asker asker;
  for (int round = 0; round < 4; ++round) {
    KillBroker();
    const size_t before = peers.size();
    for (int i = 0; i < 3; ++i) peers.emplace_back();
    for (size_t i = before; i < peers.size(); ++i) {
      ASSERT_EQ(peers[i].Start(), "");
    }
    std::set<uint16_t> slots;
    for (const Peer& p : peers) {
      EXPECT_TRUE(slots.insert(p.slot()).second);
      EXPECT_TRUE(asker.Ask(p.slot()));
    }
  }
}

TEST_F(RecoveryTest, StoppedClientKeepsItsSlotAndItsTraffic) {
  std::vector<Peer> peers = StartPeers(3);
  Asker asker;
  Peer& sleeper = peers[0];
  sleeper.Signal(SIGSTOP);
  ReplaceBroker();
  for (size_t i = 1; i < peers.size(); ++i) {
    EXPECT_TRUE(asker.Ask(peers[i].slot()));
  }
  std::vector<Peer> others = StartPeers(2);
  for (const Peer& p : others) {
    EXPECT_NE(p.slot(), sleeper.slot());
    EXPECT_TRUE(asker.Ask(p.slot()));
  }
  // Datagrams that were sent to it meanwhile wait in its socket.
  sleeper.Signal(SIGCONT);
  EXPECT_TRUE(asker.Ask(sleeper.slot()));
  for (const Peer& p : peers) EXPECT_TRUE(asker.Ask(p.slot()));
  for (const Peer& p : others) EXPECT_TRUE(asker.Ask(p.slot()));
}

TEST_F(RecoveryTest, MovesByADyingStoppedClientAreNoticed) {
  std::vector<Peer> peers = StartPeers(3);
  Asker asker;
  peers[0].Signal(SIGSTOP);
  ReplaceBroker();
  for (const size_t i : {1u, 2u}) EXPECT_TRUE(asker.Ask(peers[i].slot()));
  // The new broker does not hold its socket. When that closes, long after all
  // positions were settled, the last socket moves to its position.
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  peers[0].Kill();
  for (const size_t i : {1u, 2u}) EXPECT_TRUE(asker.Ask(peers[i].slot()));
}

TEST_F(RecoveryTest, SlotsOfClientsThatDieWithTheBrokerAreFreed) {
  std::vector<Peer> peers = StartPeers(6);
  Asker asker;
  KillBroker();
  peers[0].Kill();
  peers[4].Kill();
  for (const size_t i : {1u, 2u, 3u, 5u}) {
    EXPECT_TRUE(asker.Ask(peers[i].slot()));
  }
  Peer next;
  ASSERT_EQ(next.Start(), "");
  EXPECT_TRUE(asker.Ask(next.slot()));
  for (const size_t i : {1u, 2u, 3u, 5u}) {
    EXPECT_TRUE(asker.Ask(peers[i].slot()));
  }
}

TEST_F(RecoveryTest, ANewStartAfterAllHaveDied) {
  {
    std::vector<Peer> peers = StartPeers(3);
    KillBroker();
    for (Peer& p : peers) p.Signal(SIGKILL);
  }
  Peer next;
  ASSERT_EQ(next.Start(), "");
  Asker asker;
  EXPECT_TRUE(asker.AskOnce(next.slot()));
}

TEST_F(RecoveryTest, OpeningAnAddressStartsABrokerIfNecessary) {
  auto slot = Slot::Acquire();
  ASSERT_TRUE(slot.ok());
  const auto a = (*slot)->OpenAddress({Ip("127.0.0.1")});
  ASSERT_TRUE(a.ok());
  KillBroker();
  ASSERT_TRUE(Eventually([] { return !NameExists(); }));
  const auto b = (*slot)->OpenAddress({Ip("127.0.0.2")});
  ASSERT_TRUE(b.ok()) << b.status();
  const UniqueFd sockets[] = {UniqueFd(*a), UniqueFd(*b)};
  Asker(Ip("127.0.0.2")).Send(PacketFor((*slot)->number()));
  uint8_t payload[64];
  EXPECT_TRUE(
      Eventually([&] { return recv(*b, payload, sizeof(payload), 0) == 24; }));
}

// The process is alive, but had no descriptor for the reply, say.
TEST_F(RecoveryTest, AClientThatGivesUpMidwayKeepsItsSlotAndItsSocket) {
  const LocalAddress local = {Ip("127.0.0.1"), 0};
  Peer peer;  // starts the brokers
  ASSERT_EQ(peer.Start(), "");
  RawClient first;
  const uint16_t slot = first.Greet();
  ASSERT_NE(slot, 0);
  const UniqueFd socket = first.OpenAddress(local);
  ASSERT_TRUE(socket.valid());
  ReplaceBroker();
  for (const bool with_socket : {false, true}) {
    RawClient midway;
    ASSERT_EQ(midway.Greet(slot, first.ledger()), slot);
    if (with_socket) midway.HandBack(local, socket.get());
    midway.HangUp();
  }
  // More than the slots that rest before they are granted again.
  std::vector<RawClient> others(100);
  for (RawClient& other : others) {
    const uint16_t granted = other.Greet();
    ASSERT_NE(granted, 0);
    EXPECT_NE(granted, slot);
    const UniqueFd lent = other.OpenAddress(local);
    ASSERT_TRUE(lent.valid()) << other.refusal_text();
    EXPECT_NE(SocketCookie(lent.get()), SocketCookie(socket.get()));
  }
  RawClient again;
  ASSERT_EQ(again.Greet(slot, first.ledger()), slot);
  again.HandBack(local, socket.get());
  again.EndOfHandingBack();
  const UniqueFd back = again.OpenAddress(local);
  EXPECT_EQ(SocketCookie(back.get()), SocketCookie(socket.get()));
  Asker asker;
  EXPECT_TRUE(Eventually([&] {
    asker.Send(PacketFor(slot));
    uint8_t payload[64];
    return recv(socket.get(), payload, sizeof(payload), MSG_DONTWAIT) == 24;
  }));
}

TEST_F(RecoveryTest, FurtherSlotsComeBack) {
  Peer witness;
  ASSERT_EQ(witness.Start(), "");
  auto slot = Slot::Acquire();
  ASSERT_TRUE(slot.ok());
  const auto fd = (*slot)->OpenAddress({Ip("127.0.0.1")});
  ASSERT_TRUE(fd.ok());
  const UniqueFd socket(*fd);
  const auto further = (*slot)->Extend();
  ASSERT_TRUE(further.ok());
  const auto arrives = [&](uint16_t number) {
    Asker().Send(PacketFor(number));
    uint8_t payload[64];
    return recv(*fd, payload, sizeof(payload), 0) == 24 &&
           SlotIn(payload) == number;
  };
  for (int round = 0; round < 2; ++round) {
    ReplaceBroker();
    (*slot)->OnReadable([](const Stray&) {});
    EXPECT_TRUE(Asker().Ask(witness.slot()));
    EXPECT_TRUE(Eventually([&] { return arrives(*further); }));
    EXPECT_TRUE(Eventually([&] { return arrives((*slot)->number()); }));
    // No other process gets the further slot.
    std::vector<Peer> others = StartPeers(3);
    for (const Peer& p : others) EXPECT_NE(p.slot(), *further);
  }
  // All slots of the process are free once it has ended.
  const uint16_t number = *further;
  slot->reset();
  RawClient again;
  EXPECT_TRUE(Eventually([&] {
    again = RawClient();
    return again.Greet(number) == number;
  }));
}

// Sockets that no process holds any more are closed with the broker, and the
// kernel moves other sockets to their positions.
TEST_F(RecoveryTest, ManySocketsAreFoundAgain) {
  constexpr int kMany = 300;
  std::vector<Peer> peers = StartPeers(kMany);
  for (size_t i = 0; i < peers.size(); i += 3) peers[i].Kill();
  Asker asker;
  KillBroker();
  for (size_t i = 0; i < peers.size(); ++i) {
    if (i % 3 == 0) continue;
    ASSERT_TRUE(asker.Ask(peers[i].slot())) << i;
  }
}

// CPU time of a process in nanoseconds.
int64_t CpuTime(pid_t pid) {
  clockid_t clock{};
  timespec used{};
  EXPECT_EQ(clock_getcpuclockid(pid, &clock), 0);
  EXPECT_EQ(clock_gettime(clock, &used), 0);
  return used.tv_sec * int64_t{1'000'000'000} + used.tv_nsec;
}

// Otherwise a broker with many clients would never reach those that still wait.
TEST_F(RecoveryTest, AHelloOfAClientThatHasGoneIsCheap) {
  constexpr int kGone = 500;
  std::vector<Peer> peers = StartPeers(1);
  RawClient former;
  const uint16_t slot = former.Greet();
  ASSERT_NE(slot, 0);
  ReplaceBroker();
  EXPECT_TRUE(Asker().Ask(peers[0].slot()));
  const pid_t broker = BrokerPid();
  // The broker's CPU time for clients that disconnect before it has seen them.
  const auto cost = [&](bool with_hello) {
    kill(broker, SIGSTOP);
    for (int i = 0; i < kGone; ++i) {
      RawClient client;
      if (with_hello) client.SendHello(slot, former.ledger());
    }
    const int64_t before = CpuTime(broker);
    kill(broker, SIGCONT);
    EXPECT_NE(RawClient().Greet(), 0);
    return CpuTime(broker) - before;
  };
  const int64_t without = cost(false), with = cost(true);
  std::printf("%d connections: %d us, with a Hello %d us\n", kGone,
              static_cast<int>(without / 1000), static_cast<int>(with / 1000));
  EXPECT_LT(with, 3 * without);
  // A client that still waits gets its slot.
  EXPECT_EQ(RawClient().Greet(slot, former.ledger()), slot);
}

// Several threads wait on the slot, and any of them may reconnect to the next
// broker. The others must keep waiting.
TEST_F(RecoveryTest, EveryWaitingThreadNoticesEachBrokersDeath) {
  auto slot = Slot::Acquire();
  ASSERT_TRUE(slot.ok());
  const UniqueFd waits(epoll_create1(EPOLL_CLOEXEC));
  epoll_event readable{};
  readable.events = EPOLLIN;
  ASSERT_EQ(epoll_ctl(waits.get(), EPOLL_CTL_ADD, (*slot)->fd(), &readable), 0);
  const auto heard = [&](int limit_ms) {
    epoll_event event;
    return epoll_wait(waits.get(), &event, 1, limit_ms) == 1;
  };
  for (const char* address : {"127.0.0.1", "127.0.0.2", "127.0.0.3"}) {
    EXPECT_FALSE(heard(0));
    KillBroker();
    EXPECT_TRUE(heard(30'000));
    const auto opened = (*slot)->OpenAddress({Ip(address)});
    ASSERT_TRUE(opened.ok()) << opened.status();
    close(*opened);
  }
}

}  // namespace
}  // namespace rxe_user::broker
