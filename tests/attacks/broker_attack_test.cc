// Users of root's broker that use up what all of them share: the broker's time,
// and the requests that a listener may have half open. Meanwhile another user
// takes slots and sockets, and connects. Prints how long that takes. Needs
// root.
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rxe_user/broker/attacks.h"
#include "rxe_user/broker/hostile_fixture.h"
#include "rxe_user/broker/raw_client.h"
#include "rxe_user/cm/test_end.h"
#include "transport/cm/mad_packet.h"
#include "wire/cm.h"
#include "wire/packet.h"

namespace rxe_user::broker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using transport::cm::EventKind;
using Clock = std::chrono::steady_clock;

const LocalAddress kLoopback = {Ip("127.0.0.1"), 0};
constexpr uid_t kFirstAttacker = 34567;
// An idle machine takes 1 ms and 2 s; these allow for a loaded one.
constexpr milliseconds kLongestWait = seconds(1);
constexpr milliseconds kLongestConnect = seconds(20);

// Runs `what` as kAnother in a child. Returns the milliseconds that it writes
// to its descriptor; empty if it fails.
std::vector<int64_t> AsAnother(const std::function<void(int)>& what) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    Become(kAnother);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    what(ends[1]);
    _exit(0);
  }
  close(ends[1]);
  const UniqueFd from(ends[0]);
  std::vector<int64_t> all;
  int64_t one;
  while (read(from.get(), &one, sizeof(one)) == sizeof(one)) all.push_back(one);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return all;
}

void Say(int to, Clock::duration time) {
  const int64_t us =
      std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  if (write(to, &us, sizeof(us)) != sizeof(us)) _exit(1);
}

// Waits for a slot and a socket, one after the other.
void TakeSlots(int to) {
  for (int i = 0; i < 200; ++i) {
    const Clock::time_point begin = Clock::now();
    RawClient client;
    if (client.Greet() == 0 || !client.OpenAddress(kLoopback).valid()) _exit(2);
    Say(to, Clock::now() - begin);
  }
}

// Connects to the listener.
void ConnectOnce(int to) {
  TestEnd end(8);
  const Clock::time_point begin = Clock::now();
  const transport::cm::CmId id = end.Connect(kLoopback, kLoopback, 0x1002);
  if (end.Expect(EventKind::kReply) != id) _exit(2);
  Say(to, Clock::now() - begin);
  end->Establish(id, {});
}

// Accepts everything.
[[noreturn]] void ListenAndAccept(int ready) {
  TestEnd end(7);
  if (end.Listen(kLoopback) != 0) _exit(1);
  Say(ready, {});
  for (uint32_t qpn = 0x1000;; qpn = (qpn + 1) & 0xffff) {
    const auto event = end.recorder()->Next(std::chrono::hours(1));
    if (event->kind == EventKind::kRequest) end.Accept(event->id, qpn);
  }
}

// Sends REQs with the longest timeouts. The broker passes the REPs to a client
// that does not read them.
class SilentRequester {
 public:
  std::string Start() {
    slot_ = client_.Greet();
    if (slot_ == 0) return "no slot";
    fd_.Reset(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int discover = IP_PMTUDISC_DO;
    setsockopt(fd_.get(), IPPROTO_IP, IP_MTU_DISCOVER, &discover,
               sizeof(discover));
    const SocketAddress any = ToSocketAddress(kLoopback, 0);
    if (bind(fd_.get(), any.get(), any.size) != 0) return "bind";
    sockaddr_in name{};
    socklen_t size = sizeof(name);
    if (getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&name), &size) !=
        0) {
      return "name";
    }
    port_ = ntohs(name.sin_port);
    return "";
  }
  void Send() {
    constexpr uint8_t kLongest = 31;
    wire::CmReq req;
    // The upper twelve bits are the slot.
    req.local_comm_id = uint32_t{slot_} << 20 | (++sent_ & 0xfffff);
    req.service_id = kTestService;
    req.local_ca_guid = 99;
    req.local_qpn = uint32_t{slot_} << 12 | (sent_ & 0xfff);
    req.remote_cm_response_timeout = kLongest;
    req.local_cm_response_timeout = kLongest;
    req.max_cm_retries = 15;
    transport::cm::Mad mad;
    wire::EmitCm({.id = sent_}, req, mad);
    std::array<uint8_t, transport::cm::kMadPacketSize> packet;
    transport::cm::EmitMadPacket({.source = kLoopback.address,
                                  .destination = kLoopback.address,
                                  .source_port = port_},
                                 sent_ & 0xffffff, mad, packet);
    const SocketAddress to = ToSocketAddress(kLoopback, wire::kRoceUdpPort);
    sendto(fd_.get(), packet.data(), packet.size(), 0, to.get(), to.size);
  }

 private:
  RawClient client_;
  uint16_t slot_ = 0;
  uint16_t port_ = 0;
  uint32_t sent_ = 0;
  UniqueFd fd_;
};

// More requests than one address may have half open, and then 200 a second.
std::string RequestWithoutAnswers() {
  static SilentRequester requester;
  const std::string wrong = requester.Start();
  if (!wrong.empty()) return wrong;
  for (int i = 0; i < 1100; ++i) {
    requester.Send();
    if (i % 16 == 0) usleep(2000);
  }
  return KeepDoing([] {
    requester.Send();
    usleep(5000);
  });
}

// How many users make each attack.
struct Users {
  std::string name;
  int rewrite_services = 0;
  int detach_steering = 0;
  int request_without_answers = 0;
};

class BrokerAttackTest : public HostileTest,
                         public testing::WithParamInterface<Users> {
 protected:
  void SetUp() override {
    HostileTest::SetUp();
    if (IsSkipped()) return;
    listener_.emplace([](int ready) { ListenAndAccept(ready); });
    ASSERT_TRUE(listener_->Ready());
  }
  void TearDown() override {
    EndAttack();
    listener_.reset();
    HostileTest::TearDown();
  }

 private:
  // A process of root's.
  class Listener {
   public:
    explicit Listener(const std::function<void(int)>& main) {
      int ends[2];
      EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
      pid_ = fork();
      if (pid_ == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        main(ends[1]);
      }
      close(ends[1]);
      ready_.Reset(ends[0]);
    }
    ~Listener() {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    bool Ready() {
      int64_t said;
      return read(ready_.get(), &said, sizeof(said)) == sizeof(said);
    }

   private:
    pid_t pid_ = 0;
    UniqueFd ready_;
  };
  std::optional<Listener> listener_;
};

TEST_P(BrokerAttackTest, OthersGetSlotsSocketsAndConnections) {
  uid_t uid = kFirstAttacker;
  for (int i = 0; i < GetParam().rewrite_services; ++i) {
    Attack([] { return RewriteServices(kLoopback); }, uid++);
  }
  for (int i = 0; i < GetParam().detach_steering; ++i) {
    const LocalAddress own = {Ip("127.0.1." + std::to_string(i + 1)), 0};
    Attack([&] { return DetachSteering(own); }, uid++);
  }
  for (int i = 0; i < GetParam().request_without_answers; ++i) {
    Attack(RequestWithoutAnswers, uid++);
  }

  std::vector<int64_t> waits = AsAnother(TakeSlots);
  ASSERT_EQ(waits.size(), 200u);
  std::sort(waits.begin(), waits.end());
  const double p50 = static_cast<double>(waits[99]) / 1000;
  const double p99 = static_cast<double>(waits[197]) / 1000;
  const std::vector<int64_t> connected = AsAnother(ConnectOnce);
  ASSERT_EQ(connected.size(), 1u);
  const double connect = static_cast<double>(connected[0]) / 1000;
  std::printf("%s: slot and socket p50 %.1f, p99 %.1f ms; connection %.0f ms\n",
              GetParam().name.c_str(), p50, p99, connect);
  EXPECT_LT(p99, kLongestWait.count());
  EXPECT_LT(connect, kLongestConnect.count());
  ExpectVictimUnharmed();
}

INSTANTIATE_TEST_SUITE_P(
    By, BrokerAttackTest,
    testing::Values(Users{.name = "Nobody"},
                    Users{.name = "RewrittenServices", .rewrite_services = 1},
                    Users{.name = "DetachedSteering", .detach_steering = 1},
                    Users{.name = "SilentRequests",
                          .request_without_answers = 1},
                    Users{.name = "SeveralAtOnce",
                          .rewrite_services = 2,
                          .detach_steering = 2,
                          .request_without_answers = 2}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rxe_user::broker
