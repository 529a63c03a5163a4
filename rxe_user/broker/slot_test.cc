// Slots of a running broker: steering, reuse, strays, malicious clients.
#include "rxe_user/broker/slot.h"

#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "rxe_user/base/opened_before_fork.h"
#include "rxe_user/broker/connection.h"
#include "rxe_user/broker/message.h"
#include "rxe_user/broker/protocol.h"
#include "rxe_user/broker/raw_client.h"
#include "rxe_user/broker/test_peer.h"
#include "rxe_user/broker/token_bucket.h"
#include "rxe_user/broker/udp.h"
#include "wire/packet.h"

namespace rxe_user::broker {
namespace {

using SlotTest = BrokerTest;

TEST_F(SlotTest, SteersIpv4AndIpv6ToTheProcessOfTheSlot) {
  const std::vector<LocalAddress> both = {{Ip("127.0.0.1"), 0}, {Ip("::1"), 0}};
  std::vector<Peer> peers;
  for (int i = 0; i < 3; ++i) {
    peers.emplace_back(both);
    ASSERT_EQ(peers.back().Start(), "");
    ASSERT_NE(peers.back().slot(), 0);
  }
  for (const char* to : {"127.0.0.1", "::1"}) {
    Asker asker(Ip(to));
    for (const Peer& p : peers) EXPECT_TRUE(asker.AskOnce(p.slot())) << to;
    EXPECT_EQ(asker.asked(), 3);
  }
}

// 'S' is sleeping (proc(5)).
char StateOf(pid_t thread) {
  std::ifstream in("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string id, name;
  char state = 0;
  in >> id >> name >> state;
  return state;
}

// It is alive: a process that connects again loses what it has there.
TEST_F(SlotTest, ABrokerWhoseQueueIsFullIsWaitedFor) {
  const auto slot = Slot::Acquire();
  ASSERT_TRUE(slot.ok()) << slot.status();
  const auto first = (*slot)->OpenAddress({Ip("127.0.0.1")});
  ASSERT_TRUE(first.ok()) << first.status();
  const pid_t broker = BrokerPid();
  ASSERT_EQ(kill(broker, SIGSTOP), 0);
  const std::vector<uint8_t> bytes(4000);
  Stray stray;
  stray.source = stray.destination = Ip("127.0.0.1");
  stray.bytes = bytes;
  for (int i = 0; i < kStrayBurst; ++i) (*slot)->Forward(stray);
  const pid_t opener = gettid();
  std::thread later([&] {
    EXPECT_TRUE(Eventually([&] { return StateOf(opener) == 'S'; }));
    kill(broker, SIGCONT);
  });
  const auto second = (*slot)->OpenAddress({Ip("127.0.0.2")});
  later.join();
  ASSERT_TRUE(second.ok()) << second.status();
  const UniqueFd sockets[] = {UniqueFd(*first), UniqueFd(*second)};
  EXPECT_EQ(BrokerPid(), broker);
  Asker(Ip("127.0.0.2")).Send(PacketFor((*slot)->number()));
  uint8_t payload[64];
  EXPECT_TRUE(Eventually(
      [&] { return recv(*second, payload, sizeof(payload), 0) == 24; }));
}

TEST_F(SlotTest, SteersAll4000Slots) {
  // Each slot has two descriptors here and two in the broker.
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_max < 3 * kSlots) {
    GTEST_SKIP() << "not allowed to open 12,000 files";
  }
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  auto first = Slot::Acquire();  // starts the broker
  ASSERT_TRUE(first.ok()) << first.status();
  std::vector<RawClient> clients;
  std::vector<UniqueFd> sockets(kSlots);
  const auto fd = (*first)->OpenAddress({Ip("127.0.0.1")});
  ASSERT_TRUE(fd.ok()) << fd.status();
  sockets[(*first)->number()].Reset(*fd);
  for (int i = 2; i < kSlots; ++i) {
    RawClient& client = clients.emplace_back();
    const uint16_t slot = client.Greet();
    ASSERT_NE(slot, 0) << i;
    client.CloseLedger();
    ASSERT_FALSE(sockets[slot].valid());
    sockets[slot] = client.OpenAddress({Ip("127.0.0.1")});
    ASSERT_TRUE(sockets[slot].valid()) << client.refusal_text();
  }
  EXPECT_TRUE(absl::IsResourceExhausted(Slot::Acquire().status()));
  Asker asker;
  asker.Send({1, 2, 3});               // too short: slot 0
  for (size_t bytes : {11, 12, 15}) {  // truncated packets for slot 1
    std::vector<uint8_t> packet = PacketFor(1);
    packet.resize(bytes);
    asker.Send(packet);
  }
  for (int i = 0; i < kSlots; ++i) {
    asker.Send(PacketFor(static_cast<uint16_t>(i), static_cast<uint32_t>(i)));
  }
  for (size_t i = 1; i < kSlots; ++i) {
    uint8_t payload[64];
    // Loopback delivers within sendto.
    ASSERT_TRUE(Eventually([&] {
      return recv(sockets[i].get(), payload, sizeof(payload), 0) == 24;
    })) << i;
    EXPECT_EQ(SlotIn(payload), i);
    EXPECT_LT(recv(sockets[i].get(), payload, sizeof(payload), 0), 0);
  }
}

TEST_F(SlotTest, DatagramsForUnknownSlotsAreDropped) {
  auto slot = Slot::Acquire();
  ASSERT_TRUE(slot.ok());
  const auto fd = (*slot)->OpenAddress({Ip("127.0.0.1")});
  ASSERT_TRUE(fd.ok());
  const UniqueFd socket(*fd);
  Asker asker;
  for (int i = 0; i < kSlots; ++i) {
    if (i != (*slot)->number()) asker.Send(PacketFor(static_cast<uint16_t>(i)));
  }
  asker.Send(PacketFor((*slot)->number()));
  uint8_t payload[64];
  ASSERT_TRUE(
      Eventually([&] { return recv(*fd, payload, sizeof(payload), 0) == 24; }));
  EXPECT_EQ(SlotIn(payload), (*slot)->number());
}

// A process whose queue pair numbers are all in use gets further slots for its
// sockets.
TEST_F(SlotTest, FurtherSlotsUseTheSameSockets) {
  auto slot = Slot::Acquire();
  ASSERT_TRUE(slot.ok()) << slot.status();
  const auto before = (*slot)->OpenAddress({Ip("127.0.0.1")});
  ASSERT_TRUE(before.ok());
  std::set<uint16_t> numbers = {(*slot)->number()};
  for (uint32_t i = 0; i < Extend::kMax; ++i) {
    const auto further = (*slot)->Extend();
    ASSERT_TRUE(further.ok()) << further.status();
    EXPECT_TRUE(numbers.insert(*further).second);
    EXPECT_TRUE((*slot)->Owns(*further));
  }
  EXPECT_TRUE(absl::IsResourceExhausted((*slot)->Extend().status()));
  const auto after = (*slot)->OpenAddress({Ip("127.0.0.2")});
  ASSERT_TRUE(after.ok());
  Peer other;
  ASSERT_EQ(other.Start(), "");
  EXPECT_FALSE(numbers.contains(other.slot()));
  EXPECT_FALSE((*slot)->Owns(other.slot()));
  const std::pair<const char*, UniqueFd> sockets[] = {
      {"127.0.0.1", UniqueFd(*before)}, {"127.0.0.2", UniqueFd(*after)}};
  for (const auto& [address, fd] : sockets) {
    for (const uint16_t number : numbers) {
      Asker(Ip(address)).Send(PacketFor(number));
      uint8_t payload[64];
      ASSERT_TRUE(Eventually(
          [&] { return recv(fd.get(), payload, sizeof(payload), 0) == 24; }));
      EXPECT_EQ(SlotIn(payload), number);
    }
  }
  EXPECT_TRUE(Asker().AskOnce(other.slot()));
}

TEST_F(SlotTest, OpensAnAddressOncePerSlotAndReturnsCopies) {
  auto slot = Slot::Acquire();
  ASSERT_TRUE(slot.ok());
  const auto a = (*slot)->OpenAddress({Ip("127.0.0.1")});
  const auto b = (*slot)->OpenAddress({Ip("127.0.0.1")});
  const auto other = (*slot)->OpenAddress({Ip("127.0.0.2")});
  ASSERT_TRUE(a.ok() && b.ok() && other.ok());
  const UniqueFd fds[] = {UniqueFd(*a), UniqueFd(*b), UniqueFd(*other)};
  EXPECT_NE(*a, *b);
  EXPECT_EQ(SocketCookie(*a), SocketCookie(*b));
  EXPECT_NE(SocketCookie(*a), SocketCookie(*other));
  for (const UniqueFd& fd : fds) {
    EXPECT_TRUE(fcntl(fd.get(), F_GETFD) & FD_CLOEXEC);
    EXPECT_TRUE(fcntl(fd.get(), F_GETFL) & O_NONBLOCK);
  }
  EXPECT_TRUE(
      absl::IsNotFound((*slot)->OpenAddress({Ip("198.51.100.77")}).status()));
}

TEST_F(SlotTest, AClosedAddressIsFreeAndCanBeOpenedAgain) {
  auto slot = Slot::Acquire();
  ASSERT_TRUE(slot.ok());
  const LocalAddress kept = {Ip("127.0.0.1")};
  const LocalAddress other = {Ip("127.0.0.2")};
  const auto fd = (*slot)->OpenAddress(kept);
  ASSERT_TRUE(fd.ok());
  const UniqueFd socket(*fd);
  const int sockets = PortSockets();
  for (int i = 0; i < 3; ++i) {
    const auto opened = (*slot)->OpenAddress(other);
    ASSERT_TRUE(opened.ok()) << opened.status();
    {
      const UniqueFd copy(*opened);
      Asker asker(Ip("127.0.0.2"));
      asker.Send(PacketFor((*slot)->number()));
      uint8_t payload[64];
      EXPECT_TRUE(Eventually(
          [&] { return recv(copy.get(), payload, sizeof(payload), 0) == 24; }));
    }
    (*slot)->CloseAddress(other);
    EXPECT_TRUE(Eventually([&] { return PortSockets() == sockets; }));
  }
  (*slot)->CloseAddress(other);  // again
  // A socket in use by others keeps its position for the next owner.
  Peer peer({kept});
  ASSERT_EQ(peer.Start(), "");
  Asker asker;
  EXPECT_TRUE(asker.AskOnce(peer.slot()));
}

TEST_F(SlotTest, LinkLocalAddressesCarryTheirScope) {
  if (!Root() ||
      system("ip link add rxeu_a type veth peer name rxeu_b && "
             "ip addr add fe80::77/64 dev rxeu_a nodad && "
             "ip link set rxeu_a up && ip link set rxeu_b up") != 0) {
    GTEST_SKIP() << "needs root and ip";
  }
  const uint32_t scope = if_nametoindex("rxeu_a");
  Peer peer({{Ip("fe80::77"), scope}});
  ASSERT_EQ(peer.Start(), "");
  Asker asker(Ip("fe80::77"), scope);
  EXPECT_TRUE(asker.AskOnce(peer.slot()));
  // After a broker's death, its group is found again as well.
  KillBroker();
  EXPECT_TRUE(asker.Ask(peer.slot()));
}

TEST_F(SlotTest, SlotsAndSocketsOfKilledClientsAreReused) {
  Peer stays, first;
  ASSERT_EQ(first.Start(), "");
  ASSERT_EQ(stays.Start(), "");
  const int sockets = PortSockets();
  EXPECT_EQ(sockets, 3);  // slot 0 has one
  uint16_t last = first.slot();
  first.Kill();
  Asker asker;
  for (int i = 0; i < 20; ++i) {
    // The next owner of the socket does not get datagrams for the dead one.
    asker.Send(PacketFor(last));
    Peer next;
    ASSERT_EQ(next.Start(), "");
    EXPECT_TRUE(asker.AskOnce(next.slot()));
    EXPECT_TRUE(asker.AskOnce(stays.slot()));
    last = next.slot();
    next.Kill();
    // The broker may learn of the end only after the next request, and then
    // needs one more socket.
    EXPECT_LE(PortSockets(), sockets + 1);
  }
}

TEST_F(SlotTest, TheBrokerForwardsStrays) {
  Peer peer;
  ASSERT_EQ(peer.Start(), "");
  auto slot = Slot::Acquire();
  ASSERT_TRUE(slot.ok());
  // As if GRO had merged a datagram for the other slot into one of ours.
  const UniqueFd answers(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const SocketAddress any = ToSocketAddress({Ip("127.0.0.1"), 0}, 0);
  ASSERT_EQ(bind(answers.get(), any.get(), any.size), 0);
  sockaddr_in bound{};
  socklen_t size = sizeof(bound);
  getsockname(answers.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  Stray stray;
  stray.source = stray.destination = Ip("127.0.0.1");
  stray.source_port = ntohs(bound.sin_port);
  const std::vector<uint8_t> packet = PacketFor(peer.slot(), 99);
  stray.bytes = packet;
  (*slot)->Forward(stray);
  TestAnswer answer;
  ASSERT_TRUE(Eventually([&] {
    return recv(answers.get(), &answer, sizeof(answer), MSG_DONTWAIT) ==
           sizeof(answer);
  }));
  EXPECT_EQ(answer.slot, peer.slot());
  EXPECT_EQ(answer.tag, 99u);
  // Strays that cannot be delivered are dropped.
  const std::vector<uint8_t> huge(20000);
  stray.bytes = huge;
  (*slot)->Forward(stray);
  stray.bytes = std::span(packet).first(3);
  (*slot)->Forward(stray);
  const std::vector<uint8_t> unknown = PacketFor(0);
  stray.bytes = unknown;
  for (int i = 0; i < 5000; ++i) (*slot)->Forward(stray);
  Asker asker;
  EXPECT_TRUE(asker.AskOnce(peer.slot()));
}

UniqueFd RawConnection() {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const SocketAddress name = BrokerAddress();
  EXPECT_EQ(connect(fd.get(), name.get(), name.size), 0);
  return fd;
}

bool Closed(int fd) {
  Message message;
  while (true) {
    switch (Await(fd, MonotonicMs() + 20000, message)) {
      case Message::Outcome::kClosed:
        return true;
      case Message::Outcome::kNothing:
        return false;
      case Message::Outcome::kMessage:
        break;
    }
  }
}

TEST_F(SlotTest, MalformedMessagesCloseTheirConnectionOnly) {
  Peer peer;
  ASSERT_EQ(peer.Start(), "");
  const pid_t broker = BrokerPid();
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const UniqueFd fd = RawConnection();
    std::vector<uint8_t> bytes(1 + random() % 6000);
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
    Header header;
    header.type = static_cast<Type>(random() % 9);
    if (i % 2 == 0) {
      std::memcpy(bytes.data(), &header,
                  std::min(bytes.size(), sizeof(header)));
    }
    const int fds[] = {0, 1, fd.get()};
    const std::span<const uint8_t> part(bytes);
    SendRecord(fd.get(), {&part, 1}, {fds[i % 3], 1});
    EXPECT_TRUE(Closed(fd.get()));
  }
  {
    // Sends each message in a state in which it is not allowed.
    const UniqueFd before_hello = RawConnection();
    Send(before_hello.get(), Open{});
    EXPECT_TRUE(Closed(before_hello.get()));
    const UniqueFd hello_twice = RawConnection();
    Send(hello_twice.get(), Hello{});
    Send(hello_twice.get(), Hello{});
    EXPECT_TRUE(Closed(hello_twice.get()));
    const UniqueFd restore = RawConnection();
    Send(restore.get(), Hello{});
    Send(restore.get(), Restore{});
    EXPECT_TRUE(Closed(restore.get()));
    // A slot in use cannot be reclaimed.
    const UniqueFd thief = RawConnection();
    Hello hello;
    hello.slot = peer.slot();
    Send(thief.get(), hello, {0});
    Message message;
    ASSERT_EQ(Await(thief.get(), MonotonicMs() + 20000, message),
              Message::Outcome::kMessage);
    EXPECT_EQ(message.As<HelloReply>()->refusal, Refusal::kSlotTaken);
    // A foreign socket is not accepted as one of the group's.
    const UniqueFd forger = RawConnection();
    for (uint32_t s = 1; s < kSlots; ++s) {
      if (s != peer.slot()) hello.slot = s;
    }
    Send(forger.get(), hello);
    Restore back;
    back.address = {Ip("127.0.0.1")};
    const UniqueFd other(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    Send(forger.get(), back, {other.get(), other.get()});
    EXPECT_TRUE(Closed(forger.get()));
  }
  EXPECT_EQ(BrokerPid(), broker);
  Asker asker;
  EXPECT_TRUE(asker.AskOnce(peer.slot()));
}

TEST_F(SlotTest, AnotherProtocolVersionIsRefusedWithAReason) {
  Peer peer;
  ASSERT_EQ(peer.Start(), "");
  const UniqueFd fd = RawConnection();
  Hello hello;
  hello.header.version = 77;
  Send(fd.get(), hello);
  Message message;
  ASSERT_EQ(Await(fd.get(), MonotonicMs() + 20000, message),
            Message::Outcome::kMessage);
  const auto reply = message.As<HelloReply>();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->refusal, Refusal::kVersion);
  EXPECT_NE(TextOf(reply->text).find("version 77"), absl::string_view::npos);
}

// The broker of a process of another version has died. Our program would steer
// that process's datagrams by other bits.
TEST_F(SlotTest, TheSocketsOfAnotherVersionAreLeftAlone) {
  const UniqueFd theirs =
      BindUdp({Ip("127.0.0.1")}, wire::kRoceUdpPort, Sharing::kReusePort);
  ASSERT_TRUE(theirs.valid());
  auto slot = Slot::Acquire();
  ASSERT_TRUE(slot.ok()) << slot.status();
  const UniqueFd fd = RawConnection();
  Hello hello;
  hello.header.version = 77;
  Send(fd.get(), hello);
  EXPECT_TRUE(Closed(fd.get()));
  const absl::Status refused = (*slot)->OpenAddress({Ip("127.0.0.1")}).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_NE(refused.message().find("another version"), std::string::npos)
      << refused;
  const auto other = (*slot)->OpenAddress({Ip("127.0.0.2")});
  ASSERT_TRUE(other.ok());
  close(*other);
}

TEST_F(SlotTest, ForkedChildHoldsNothingOfTheSlot) {
  int life[2];
  ASSERT_EQ(pipe(life), 0);
  pid_t grandchild = 0;
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto slot = Slot::Acquire();
    auto fd = (*slot)->OpenAddress({Ip("127.0.0.1")});
    close(*fd);
    const pid_t forked = fork();
    if (forked == 0) {
      const bool dead = (*slot)->fd() == -1 &&
                        (*slot)->OpenAddress({Ip("127.0.0.1")}).status() ==
                            OpenedBeforeForkError();
      const pid_t self = dead ? getpid() : -1;
      (void)!write(report[1], &self, sizeof(self));
      close(life[1]);
      char byte;
      (void)!read(life[0], &byte, 1);  // until the test ends
      _exit(0);
    }
    close(life[1]);
    char byte;
    (void)!read(life[0], &byte, 1);
    _exit(0);
  }
  ASSERT_EQ(read(report[0], &grandchild, sizeof(grandchild)),
            ssize_t{sizeof(grandchild)});
  EXPECT_GT(grandchild, 0);
  const pid_t broker = BrokerPid();
  EXPECT_GT(broker, 0);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  // The forked child still runs, and holds neither slot, broker nor port.
  EXPECT_TRUE(Eventually([&] { return ProcessGone(broker); }));
  EXPECT_TRUE(Eventually([] { return PortSockets() == 0; }));
  for (const int fd : {life[0], life[1], report[0], report[1]}) close(fd);
}

TEST_F(SlotTest, ABrokerWithoutDescriptorsNamesTheRemedy) {
  if (!Root()) GTEST_SKIP() << "needs root";
  auto slot = Slot::Acquire();
  ASSERT_TRUE(slot.ok());
  const pid_t broker = BrokerPid();
  // Waits for descriptors that are closed by another thread (BrokerPid's
  // connection).
  const auto opened = [broker] {
    const std::filesystem::directory_iterator all(
        "/proc/" + std::to_string(broker) + "/fd");
    return std::distance(begin(all), end(all));
  };
  ptrdiff_t before = 0;
  EXPECT_TRUE(
      Eventually([&] { return std::exchange(before, opened()) == before; }));
  rlimit none{};
  ASSERT_EQ(prlimit(broker, RLIMIT_NOFILE, nullptr, &none), 0);
  none.rlim_cur = 3;  // lowering it needs no privilege
  ASSERT_EQ(prlimit(broker, RLIMIT_NOFILE, &none, nullptr), 0)
      << strerror(errno);
  const absl::Status status = (*slot)->OpenAddress({Ip("127.0.0.1")}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));  // ENOMEM
  EXPECT_EQ(std::string(status.message()),
            "cannot bind UDP port 4791 of 127.0.0.1: too many open files in "
            "the port broker, process " +
                std::to_string(broker) +
                ", which has the limit (ulimit -n) of the program that started "
                "it");
}

TEST_F(SlotTest, PortTakenNamesHolderAndRemedy) {
  for (const char* held : {"127.0.0.1", "0.0.0.0", "::"}) {
    UniqueFd foreign(socket(Ip(held).is_v4() ? AF_INET : AF_INET6,
                            SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const SocketAddress a = ToSocketAddress({Ip(held), 0}, wire::kRoceUdpPort);
    ASSERT_EQ(bind(foreign.get(), a.get(), a.size), 0);
    const absl::Status probe = PortAvailable({Ip("127.0.0.1")});
    EXPECT_TRUE(absl::IsUnavailable(probe)) << probe;
    auto slot = Slot::Acquire();
    ASSERT_TRUE(slot.ok());
    // The probe says the same with a broker, which does not hold this port.
    const absl::Status again = PortAvailable({Ip("127.0.0.1")});
    EXPECT_EQ(again, probe);
    const absl::Status status =
        (*slot)->OpenAddress({Ip("127.0.0.1")}).status();
    EXPECT_TRUE(absl::IsUnavailable(status));
    const std::string text(status.message());
    for (const std::string& part :
         {std::string("4791"), std::string("127.0.0.1"),
          "process " + std::to_string(getpid()), std::string("stop it")}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
    // Once the holder is gone, the port is available.
    foreign.Reset();
    EXPECT_TRUE(PortAvailable({Ip("127.0.0.1")}).ok());
    const auto fd = (*slot)->OpenAddress({Ip("127.0.0.1")});
    EXPECT_TRUE(fd.ok()) << fd.status();
    if (fd.ok()) close(*fd);
    slot->reset();
    ASSERT_TRUE(Eventually([] { return PortSockets() == 0; }));
  }
}

// The sockets of our own broker are not foreign, and a probe takes nothing
// away.
TEST_F(SlotTest, PortAvailableDoesNotDisturbOthers) {
  Peer peer({{Ip("127.0.0.1"), 0}, {Ip("::1"), 0}});
  ASSERT_EQ(peer.Start(), "");
  const int sockets = PortSockets();
  std::atomic<bool> stop = false;
  std::thread looks([&] {
    while (!stop) {
      EXPECT_TRUE(PortAvailable({Ip("127.0.0.1")}).ok());
      EXPECT_EQ(PortSockets(), sockets);
    }
  });
  Asker asker;
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(asker.AskOnce(peer.slot()));
  stop = true;
  looks.join();
  EXPECT_EQ(asker.asked(), 500);
}

TEST_F(SlotTest, PortAvailableChangesNothing) {
  EXPECT_TRUE(PortAvailable({Ip("127.0.0.1")}).ok());
  EXPECT_TRUE(PortAvailable({Ip("::1")}).ok());
  EXPECT_EQ(PortSockets(), 0);
  EXPECT_FALSE(NameExists());
  EXPECT_FALSE(PortAvailable({Ip("198.51.100.77")}).ok());
}

}  // namespace
}  // namespace rxe_user::broker
