// Connections between processes, when one of them or the broker dies; between
// hosts; and under load.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "rxe_user/broker/test_peer.h"
#include "rxe_user/broker/udp.h"
#include "rxe_user/cm/test_end.h"
#include "transport/cm/mad_packet.h"
#include "wire/cm.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

using transport::cm::CmId;
using transport::cm::EventKind;
using transport::cm::State;

const LocalAddress kLoopback = Local("127.0.0.1");

// Another process, connected to the test by a socket. Create it before other
// threads exist.
class Process {
 public:
  // `main` gets the socket. When it returns, the process exits with 0.
  explicit Process(const std::function<void(int control)>& main) {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(ends_[0]);
      main(ends_[1]);
      _exit(0);
    }
    close(ends_[1]);
  }
  ~Process() { Kill(); }

  pid_t pid() const { return pid_; }
  void Say(const std::string& text) {
    EXPECT_EQ(send(ends_[0], text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // Waits until the process reports that it is ready.
  bool Ready() {
    char said;
    pollfd p{ends_[0], POLLIN, 0};
    return poll(&p, 1, 60'000) > 0 && read(ends_[0], &said, 1) == 1;
  }
  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(ends_[0]);
    pid_ = 0;
  }

  // --- For the other process.
  static void SayReady(int control) { (void)!write(control, "R", 1); }
  static std::string Hear(int control) {
    char text[64];
    const ssize_t n = read(control, text, sizeof(text));
    if (n <= 0) _exit(1);
    return std::string(text, static_cast<size_t>(n));
  }

 private:
  int ends_[2] = {-1, -1};
  pid_t pid_ = 0;
};

// Listens at the given address, and accepts and disconnects every connection.
void ListenAndServe(int control) {
  const std::string address = Process::Hear(control);
  TestEnd end(7);
  if (end.Listen(Local(address)) != 0) _exit(1);
  Process::SayReady(control);
  uint32_t qpn = 0x1000;
  for (;;) {
    const auto event = end.recorder()->Next(std::chrono::hours(1));
    if (event->kind == EventKind::kRequest) end.Accept(event->id, ++qpn);
    if (event->kind == EventKind::kDisconnected) {
      end->Disconnect(event->id, {});
    }
  }
}

// Accepts connections, and reports when one is established.
void AcceptAt(TestEnd& end, int control) {
  if (end.Listen(kLoopback) != 0) _exit(1);
  Process::SayReady(control);
  for (uint32_t qpn = 0x1001;; ++qpn) {
    const auto event = end.recorder()->Next(std::chrono::hours(1));
    if (event->kind == EventKind::kRequest) end.Accept(event->id, qpn);
    if (event->kind == EventKind::kEstablished) Process::SayReady(control);
  }
}
void AcceptOne(int control) {
  TestEnd end(7);
  AcceptAt(end, control);
}

// Delays arriving RTUs by 20 ms.
class LateRtu final : public CmFaults {
 public:
  Fate Decide(bool sent, wire::CmAttribute attribute,
              const wire::IpAddress&) override {
    const bool is_late = !sent && attribute == wire::CmAttribute::kRtu;
    return {.delay = is_late ? 20 * transport::kMillisecond : 0};
  }
};

// The same with an RTU that a fault delays.
void AcceptLate(int control) {
  LateRtu faults;
  TestEnd end(7, {}, &faults);
  AcceptAt(end, control);
}

// Connects once, and reports when the connection is established.
void ConnectOne(int control) {
  Process::Hear(control);
  TestEnd end(8);
  const CmId id = end.Connect(kLoopback, kLoopback, 0x1002);
  if (end.Expect(EventKind::kReply) != id || end->Establish(id, {}) != 0) {
    _exit(2);
  }
  Process::SayReady(control);
  Process::Hear(control);
}

// Connects `count` times at once, and disconnects on command.
void ConnectMany(int control, uint32_t count) {
  Process::Hear(control);
  TestEnd end(static_cast<uint64_t>(getpid()));
  std::set<CmId> ids;
  for (uint32_t i = 0; i < count; ++i) {
    ids.insert(end.Connect(kLoopback, kLoopback, 0x100 + i));
  }
  for (uint32_t i = 0; i < count; ++i) {
    const CmId id = end.Expect(EventKind::kReply);
    if (ids.erase(id) != 1 || end->Establish(id, {}) != 0) _exit(2);
    // The loop below counts the results.
    if (end->Disconnect(id, {}) != 0) _exit(3);
  }
  uint32_t disconnected = 0;
  for (uint32_t over = 0; over < count;) {
    const auto event = end.recorder()->Next();
    if (!event.has_value()) _exit(4);
    disconnected += event->kind == EventKind::kDisconnected;
    if (event->kind != EventKind::kTimeWaitExit) continue;
    ++over;
    if (end->Destroy(event->id) != 0) _exit(5);
  }
  if (disconnected != count || end->size() != 0) _exit(6);
  Process::SayReady(control);
}

class CmProcessesTest : public broker::BrokerTest {
 protected:
  void TearDown() override {
    a_.Close();
    b_.Close();
    BrokerTest::TearDown();
  }
  // Makes `a_` request a connection, and establishes it.
  std::pair<CmId, CmId> Establish(uint32_t qpn) {
    const CmId active = a_.Connect(kLoopback, kLoopback, qpn);
    const CmId passive = b_.Expect(EventKind::kRequest);
    EXPECT_EQ(b_.Accept(passive, qpn + 0x10000), 0);
    EXPECT_EQ(a_.Expect(EventKind::kReply), active);
    EXPECT_EQ(a_->Establish(active, {}), 0);
    EXPECT_EQ(b_.Expect(EventKind::kEstablished), passive);
    return {active, passive};
  }

  TestEnd a_{1};
  TestEnd b_{2};
};

TEST_F(CmProcessesTest, ADeadListenerIsNoticedAtOnce) {
  Process listener(ListenAndServe);
  listener.Say("127.0.0.1");
  ASSERT_TRUE(listener.Ready());
  const CmId id = a_.Connect(kLoopback, kLoopback, 0x11);
  ASSERT_EQ(a_.Expect(EventKind::kReply), id);
  listener.Kill();
  // The service ID is free as soon as the broker has noticed the end.
  EXPECT_TRUE(broker::Eventually([&] {
    ServiceHandle handle = 0;
    if (b_.Listen(kLoopback, kTestService, &handle) != 0) return false;
    return b_->Release(handle) == 0;
  }));
  const CmId late = a_.Connect(kLoopback, kLoopback, 0x12);
  EXPECT_EQ(a_.Expect(EventKind::kRejected), late);
  EXPECT_EQ(a_.LastMad().rej().reason, wire::CmRejectReason::kInvalidServiceId);
  // The broker answers the DREQ for the dead process.
  ASSERT_EQ(a_->Establish(id, {}), 0);
  EXPECT_EQ(a_->Disconnect(id, {}), 0);
  EXPECT_EQ(a_.Expect(EventKind::kDisconnected), id);
  EXPECT_TRUE(a_.last().has_mad);
}

// A kernel disconnects the peers of its dead processes as well.
TEST_F(CmProcessesTest, PeersOfADeadProcessAreDisconnected) {
  Process passive(AcceptOne);
  Process active(ConnectOne);
  ASSERT_TRUE(passive.Ready());
  const CmId id = a_.Connect(kLoopback, kLoopback, 0x11);
  ASSERT_EQ(a_.Expect(EventKind::kReply), id);
  ASSERT_EQ(a_->Establish(id, {}), 0);
  ASSERT_TRUE(passive.Ready());
  passive.Kill();
  EXPECT_EQ(a_.Expect(EventKind::kDisconnected), id);
  EXPECT_EQ(a_.LastMad().attribute(), wire::CmAttribute::kDreq);
  EXPECT_EQ(a_->Disconnect(id, {}), 0);

  ASSERT_TRUE(broker::Eventually([&] { return b_.Listen(kLoopback) == 0; }));
  active.Say("go");
  const CmId accepted = b_.Expect(EventKind::kRequest);
  ASSERT_EQ(b_.Accept(accepted, 0x12), 0);
  ASSERT_EQ(b_.Expect(EventKind::kEstablished), accepted);
  ASSERT_TRUE(active.Ready());
  active.Kill();
  EXPECT_EQ(b_.Expect(EventKind::kDisconnected), accepted);
  EXPECT_EQ(b_.LastMad().attribute(), wire::CmAttribute::kDreq);
}

// The broker learns of a connection whose RTU a fault delayed.
TEST_F(CmProcessesTest, PeersOfADeadProcessWhoseRtuWasLateAreDisconnected) {
  Process passive(AcceptLate);
  ASSERT_TRUE(passive.Ready());
  const CmId id = a_.Connect(kLoopback, kLoopback, 0x11);
  ASSERT_EQ(a_.Expect(EventKind::kReply), id);
  ASSERT_EQ(a_->Establish(id, {}), 0);
  ASSERT_TRUE(passive.Ready());
  passive.Kill();
  EXPECT_EQ(a_.Expect(EventKind::kDisconnected), id);
  EXPECT_EQ(a_.LastMad().attribute(), wire::CmAttribute::kDreq);
}

TEST_F(CmProcessesTest, TheBrokersDeathLosesNothing) {
  ASSERT_EQ(b_.Listen(kLoopback), 0);
  const auto [old_active, old_passive] = Establish(0x11);
  // The broker dies during three handshakes.
  const CmId asked = a_.Connect(kLoopback, kLoopback, 0x12);
  const CmId request = b_.Expect(EventKind::kRequest);
  broker::KillBroker();
  EXPECT_EQ(b_.Accept(request, 0x22), 0);
  EXPECT_EQ(a_.Expect(EventKind::kReply), asked);
  EXPECT_EQ(a_->Establish(asked, {}), 0);
  EXPECT_EQ(b_.Expect(EventKind::kEstablished), request);
  broker::KillBroker();
  const CmId fresh = a_.Connect(kLoopback, kLoopback, 0x13);
  EXPECT_EQ(b_.Expect(EventKind::kRequest) != 0, true);
  broker::KillBroker();
  EXPECT_EQ(b_.Accept(b_.last().id, 0x23), 0);
  EXPECT_EQ(a_.Expect(EventKind::kReply), fresh);
  broker::KillBroker();
  // Both ends still know the established connections.
  EXPECT_EQ(a_->Disconnect(old_active, {}), 0);
  EXPECT_EQ(b_.Expect(EventKind::kDisconnected), old_passive);
  EXPECT_EQ(b_->Disconnect(old_passive, {}), 0);
  EXPECT_EQ(a_.Expect(EventKind::kDisconnected), old_active);
  EXPECT_TRUE(a_.last().has_mad);
  // The broker knows the listener: the service ID is taken.
  TestEnd other(3);
  EXPECT_EQ(other.Listen(kLoopback), EADDRINUSE);
}

// The next broker learns the connections from the process itself.
TEST_F(CmProcessesTest, PeersAreDisconnectedIfProcessAndBrokerDie) {
  Process passive(AcceptOne);
  ASSERT_TRUE(passive.Ready());
  const CmId id = a_.Connect(kLoopback, kLoopback, 0x11);
  ASSERT_EQ(a_.Expect(EventKind::kReply), id);
  ASSERT_EQ(a_->Establish(id, {}), 0);
  ASSERT_TRUE(passive.Ready());
  broker::KillBroker();
  // A process that receives a request has already told the next broker
  // everything.
  const CmId other = a_.Connect(kLoopback, kLoopback, 0x12);
  ASSERT_EQ(a_.Expect(EventKind::kReply), other);
  passive.Kill();
  EXPECT_EQ(a_.Expect(EventKind::kDisconnected), id);
  EXPECT_EQ(a_.LastMad().attribute(), wire::CmAttribute::kDreq);
}

// No connection is lost or duplicated.
TEST_F(CmProcessesTest, TwoHundredAtOnce) {
  constexpr uint32_t kMany = 200;
  ASSERT_EQ(b_.Listen(kLoopback, kTestService, nullptr, kMany), 0);
  std::map<CmId, bool> active;
  for (uint32_t i = 0; i < kMany; ++i) {
    active[a_.Connect(kLoopback, kLoopback, 0x100 + i)] = false;
  }
  ASSERT_EQ(active.size(), kMany);
  std::set<uint8_t> qpns;
  for (uint32_t i = 0; i < kMany; ++i) {
    const CmId id = b_.Expect(EventKind::kRequest);
    ASSERT_NE(id, 0u);
    EXPECT_TRUE(qpns.insert(b_.LastMad().req().private_data[0]).second);
    EXPECT_EQ(b_.Accept(id, 0x10000 + i), 0);
  }
  for (uint32_t i = 0; i < kMany; ++i) {
    const CmId id = a_.Expect(EventKind::kReply);
    ASSERT_TRUE(active.contains(id));
    EXPECT_FALSE(std::exchange(active[id], true));
    EXPECT_EQ(a_->Establish(id, {}), 0);
  }
  for (uint32_t i = 0; i < kMany; ++i) {
    ASSERT_NE(b_.Expect(EventKind::kEstablished), 0u);
  }
  EXPECT_TRUE(a_.recorder()->empty());
  EXPECT_TRUE(b_.recorder()->empty());
  EXPECT_EQ(b_->size(), kMany);
}

size_t OpenDescriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// A thousand connections from eight processes to one, all set up and then
// released at the same time.
TEST_F(CmProcessesTest, EightProcessesAtOnce) {
  constexpr uint32_t kProcesses = 8;
  constexpr uint32_t kEach = 125;
  std::vector<std::unique_ptr<Process>> processes;
  for (uint32_t i = 0; i < kProcesses; ++i) {
    processes.push_back(std::make_unique<Process>(
        [](int control) { ConnectMany(control, kEach); }));
  }
  ASSERT_EQ(b_.Listen(kLoopback, kTestService, nullptr, 1024), 0);
  const size_t descriptors = OpenDescriptors();
  for (auto& process : processes) process->Say("go");
  std::map<EventKind, uint32_t> counts;
  while (counts[EventKind::kTimeWaitExit] < kProcesses * kEach) {
    const auto event = b_.recorder()->Next();
    ASSERT_TRUE(event.has_value());
    ++counts[event->kind];
    switch (event->kind) {
      case EventKind::kRequest:
        ASSERT_EQ(b_.Accept(event->id, 0x10000 + counts[EventKind::kRequest]),
                  0);
        break;
      case EventKind::kDisconnected:
        ASSERT_EQ(b_->Disconnect(event->id, {}), 0);
        break;
      case EventKind::kTimeWaitExit:
        ASSERT_EQ(b_->Destroy(event->id), 0);
        break;
      default:
        // A DREQ may overtake the RTU.
        ASSERT_EQ(event->kind, EventKind::kEstablished);
    }
  }
  EXPECT_EQ(counts[EventKind::kRequest], kProcesses * kEach);
  EXPECT_EQ(counts[EventKind::kDisconnected], kProcesses * kEach);
  EXPECT_LE(counts[EventKind::kEstablished], kProcesses * kEach);
  for (auto& process : processes) EXPECT_TRUE(process->Ready());
  EXPECT_EQ(b_->size(), 0u);
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

size_t ResidentKb(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  std::string word;
  while (in >> word) {
    if (word == "VmRSS:") break;
  }
  size_t kb = 0;
  in >> kb;
  return kb;
}

// Sends handcrafted REQs from addresses without connections.
class Flooder {
 public:
  explicit Flooder(const std::string& from)
      : from_(*wire::IpAddress::Parse(from)),
        to_(broker::ToSocketAddress(kLoopback, wire::kRoceUdpPort)) {
    fd_.Reset(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int discover = IP_PMTUDISC_DO;
    setsockopt(fd_.get(), IPPROTO_IP, IP_MTU_DISCOVER, &discover,
               sizeof(discover));
    // The port to which answers are sent.
    const auto name = broker::ToSocketAddress({from_, 0}, wire::kRoceUdpPort);
    EXPECT_EQ(bind(fd_.get(), name.get(), name.size), 0);
  }
  void Send(uint32_t id, uint64_t service_id) {
    wire::CmReq req;
    req.local_comm_id = id;
    req.service_id = service_id;
    req.local_ca_guid = 99;
    req.local_qpn = id & 0xffffff;
    transport::cm::Mad mad;
    wire::EmitCm({.id = id}, req, mad);
    std::array<uint8_t, transport::cm::kMadPacketSize> packet;
    transport::cm::EmitMadPacket({.source = from_,
                                  .destination = kLoopback.address,
                                  .source_port = wire::kRoceUdpPort},
                                 id, mad, packet);
    sendto(fd_.get(), packet.data(), packet.size(), 0, to_.get(), to_.size);
    ++sent;
  }
  void Hear() {
    uint8_t bytes[512];
    ssize_t n;
    while ((n = recv(fd_.get(), bytes, sizeof(bytes), MSG_DONTWAIT)) >= 0) {
      EXPECT_EQ(static_cast<size_t>(n), transport::cm::kMadPacketSize);
      ++heard;
    }
  }
  size_t sent = 0;
  size_t heard = 0;

 private:
  const wire::IpAddress from_;
  const broker::SocketAddress to_;
  UniqueFd fd_;
};

TEST_F(CmProcessesTest, AFloodOfRequestsIsLimitedAndNotAmplified) {
  constexpr uint32_t kFlood = 100'000;
  constexpr uint32_t kPeers = 100;
  ASSERT_EQ(b_.Listen(kLoopback), 0);
  const auto [active, passive] = Establish(0x11);
  const pid_t broker = broker::BrokerPid();
  [[maybe_unused]] const size_t before_kb = ResidentKb(broker);
  // The application does not answer its requests; half of the requests have no
  // listener.
  std::vector<std::unique_ptr<Flooder>> peers;
  for (uint32_t i = 1; i <= kPeers; ++i) {
    peers.push_back(std::make_unique<Flooder>("127.0.1." + std::to_string(i)));
  }
  for (uint32_t i = 1; i <= kFlood; ++i) {
    Flooder& peer = *peers[i % kPeers];
    peer.Send(i, i / kPeers % 2 == 0 ? kTestService : kTestService + 1);
    if (i % 16 == 0) peer.Hear();
  }
  // The established connection still works: the application gets the requests
  // of the backlog, then the DREQ.
  EXPECT_EQ(a_->Disconnect(active, {}), 0);
  for (;;) {
    const auto event = b_.recorder()->Next();
    ASSERT_TRUE(event.has_value());
    if (event->kind == EventKind::kDisconnected) break;
  }
  EXPECT_EQ(b_->Disconnect(passive, {}), 0);
  EXPECT_EQ(a_.Expect(EventKind::kDisconnected), active);
  size_t heard = 0;
  for (auto& peer : peers) {
    peer->Hear();
    EXPECT_LE(peer->heard, peer->sent);
    heard += peer->heard;
  }
  EXPECT_GT(heard, 0u);
  // The requests of the backlog, and the established connection.
  EXPECT_LE(b_->size(), 130u);
#ifndef __SANITIZE_ADDRESS__  // the sanitizer itself needs more
  EXPECT_LE(ResidentKb(broker), before_kb + 16 * 1024);
#endif
}

// A process that reads nothing has its own queue. Others do not wait for it,
// and when it continues, messages that are not part of the flood are in its
// queue.
TEST_F(CmProcessesTest, AStoppedListenerDoesNotDelayOthers) {
  constexpr uint32_t kFlood = 5'000;
  Process listener(ListenAndServe);
  listener.Say("127.0.0.1");
  ASSERT_TRUE(listener.Ready());
  ASSERT_EQ(b_.Listen(kLoopback, kTestService + 1), 0);
  ASSERT_EQ(kill(listener.pid(), SIGSTOP), 0);
  Flooder flooder("127.0.0.2");
  for (uint32_t i = 1; i <= kFlood; ++i) {
    flooder.Send(i, kTestService);
    // Keeps the broker's socket from being the bottleneck.
    if (i % 64 == 0) {
      const CmId id =
          a_.Connect(kLoopback, kLoopback, 0x1000 + i, kTestService + 1);
      EXPECT_EQ(b_->Reject(b_.Expect(EventKind::kRequest), {}), 0);
      EXPECT_EQ(a_.Expect(EventKind::kRejected), id);
      EXPECT_EQ(a_->Destroy(id), 0);
    }
  }
  flooder.Hear();
  EXPECT_EQ(flooder.heard, 0u);
  const CmId id = a_.Connect(kLoopback, kLoopback, 0x11);
  ASSERT_EQ(kill(listener.pid(), SIGCONT), 0);
  EXPECT_EQ(a_.Expect(EventKind::kReply), id);
}

// Two hosts, each with its own broker.
TEST_F(CmProcessesTest, ConnectsOverAnInterface) {
  if (!Root()) GTEST_SKIP() << "needs a network namespace";
  Process listener([](int control) {
    if (unshare(CLONE_NEWNET) != 0) _exit(1);
    Process::SayReady(control);
    ListenAndServe(control);
  });
  ASSERT_TRUE(listener.Ready());
  const std::string pid = std::to_string(listener.pid());
  const auto run = [](const std::string& command) {
    return system(command.c_str()) == 0;
  };
  if (!run("ip link add rxeu_a type veth peer name rxeu_b netns " + pid)) {
    GTEST_SKIP() << "needs ip and veth";
  }
  const std::string there = "nsenter --net=/proc/" + pid + "/ns/net ip ";
  ASSERT_TRUE(
      run("ip addr add 10.9.0.1/24 dev rxeu_a && "
          "ip addr add fd09::1/64 dev rxeu_a nodad && "
          "ip link set rxeu_a up"));
  ASSERT_TRUE(run(there + "link set lo up && " + there +
                  "addr add 10.9.0.2/24 dev rxeu_b && " + there +
                  "addr add fd09::2/64 dev rxeu_b nodad && " + there +
                  "link set rxeu_b up"));
  listener.Say("::");
  ASSERT_TRUE(listener.Ready());
  uint32_t qpn = 0x11;
  for (const auto& [from, to] :
       std::vector<std::pair<const char*, const char*>>{
           {"10.9.0.1", "10.9.0.2"}, {"fd09::1", "fd09::2"}}) {
    SCOPED_TRACE(to);
    const CmId id = a_.Connect(Local(from), Local(to), qpn++);
    ASSERT_EQ(a_.Expect(EventKind::kReply), id);
    EXPECT_EQ(a_.last().remote, Local(to).address);
    EXPECT_EQ(a_->Establish(id, {}), 0);
    EXPECT_EQ(a_->Disconnect(id, {}), 0);
    EXPECT_EQ(a_.Expect(EventKind::kDisconnected), id);
    EXPECT_TRUE(a_.last().has_mad);
    EXPECT_EQ(a_.Expect(EventKind::kTimeWaitExit), id);
  }
}

}  // namespace
}  // namespace rxe_user
