#include "rxe_user/broker/test_peer.h"

#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "rxe_user/broker/connection.h"
#include "wire/packet.h"

namespace rxe_user::broker {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLong = std::chrono::seconds(30);

bool Readable(int fd, std::chrono::milliseconds wait) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, static_cast<int>(wait.count())) > 0;
}

// Answers a datagram.
void Answer(int fd, uint16_t slot, std::span<const uint8_t> payload,
            const sockaddr* to, socklen_t size) {
  TestAnswer answer = {.slot = slot};
  std::memcpy(&answer.tag, payload.data() + 12, sizeof(answer.tag));
  sendto(fd, &answer, sizeof(answer), 0, to, size);
}

struct OpenSocket {
  int fd;
  LocalAddress address;
};

void OnDatagrams(Slot& slot, const OpenSocket& s) {
  for (;;) {
    uint8_t payload[256];
    SocketAddress from;
    from.size = sizeof(from.storage);
    const ssize_t n =
        recvfrom(s.fd, payload, sizeof(payload), MSG_DONTWAIT,
                 reinterpret_cast<sockaddr*>(&from.storage), &from.size);
    if (n < 0) return;
    if (n < 24) continue;
    const std::span<const uint8_t> bytes(payload, static_cast<size_t>(n));
    if (SlotIn(bytes) == slot.number()) {
      Answer(s.fd, slot.number(), bytes, from.get(), from.size);
      continue;
    }
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&from.storage);
    Stray stray;
    stray.source = wire::IpAddress::FromV4(v4->sin_addr.s_addr);
    stray.source_port = ntohs(v4->sin_port);
    stray.destination = s.address.address;
    stray.bytes = bytes;
    slot.Forward(stray);
  }
}

// The timeout for poll(), in ms.
int UntilMs(Slot::Clock::time_point when) {
  if (when == Slot::Clock::time_point::max()) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(when - Slot::Clock::now());
  return std::max(0, static_cast<int>(left.count()));
}

[[noreturn]] void Serve(int control,
                        const std::vector<LocalAddress>& addresses) {
  const auto fail = [&](const absl::Status& status) {
    const std::string text = "!" + std::string(status.message());
    (void)!write(control, text.data(), text.size());
    _exit(1);
  };
  auto slot = Slot::Acquire();
  if (!slot.ok()) fail(slot.status());
  std::vector<OpenSocket> sockets;
  for (const LocalAddress& address : addresses) {
    const auto fd = (*slot)->OpenAddress(address);
    if (!fd.ok()) fail(fd.status());
    sockets.push_back({*fd, address});
  }
  const uint16_t number = (*slot)->number();
  char answer[1 + sizeof(number)] = {'+'};
  std::memcpy(answer + 1, &number, sizeof(number));
  (void)!write(control, answer, sizeof(answer));
  for (;;) {
    std::vector<pollfd> fds = {{control, POLLIN, 0},
                               {(*slot)->fd(), POLLIN, 0}};
    for (const OpenSocket& s : sockets) fds.push_back({s.fd, POLLIN, 0});
    poll(fds.data(), fds.size(), UntilMs((*slot)->retry_at()));
    if (fds[0].revents != 0) _exit(0);  // the test has ended
    if (fds[1].revents != 0 || Slot::Clock::now() >= (*slot)->retry_at()) {
      (*slot)->OnReadable([&](const Stray& stray) {
        const SocketAddress to =
            ToSocketAddress({stray.source, 0}, stray.source_port);
        Answer(sockets[0].fd, number, stray.bytes, to.get(), to.size);
      });
    }
    for (const OpenSocket& s : sockets) OnDatagrams(**slot, s);
  }
}

void RaiseLoopback() {
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  ASSERT_EQ(ioctl(fd.get(), SIOCGIFFLAGS, &request), 0);
  request.ifr_flags |= IFF_UP;
  ASSERT_EQ(ioctl(fd.get(), SIOCSIFFLAGS, &request), 0);
}

}  // namespace

wire::IpAddress Ip(const std::string& text) {
  return wire::IpAddress::Parse(text).value();
}

bool Eventually(const std::function<bool()>& done) {
  const auto until = Clock::now() + kLong;
  while (!done()) {
    if (Clock::now() > until) return false;
    const timespec pause{0, 2'000'000};
    nanosleep(&pause, nullptr);
  }
  return true;
}

absl::Status PortAvailable(const LocalAddress& local) {
  const auto uses = ProbePorts({&local, 1});
  if (!uses.ok()) return uses.status();
  const std::string& error = uses->front().error;
  return error.empty() ? absl::OkStatus() : absl::UnavailableError(error);
}

pid_t BrokerPid() {
  const UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const SocketAddress name = BrokerAddress();
  if (connect(fd.get(), name.get(), name.size) != 0) return 0;
  ucred peer{};
  socklen_t length = sizeof(peer);
  getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length);
  return peer.pid;
}

pid_t KillBroker() {
  pid_t pid = 0;
  EXPECT_TRUE(Eventually([&] { return (pid = BrokerPid()) > 0; }));
  if (pid > 0) kill(pid, SIGKILL);
  return pid;
}

int PortSockets() {
  int count = 0;
  for (const char* path :
       {"/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"}) {
    std::ifstream in(path);
    std::string line;
    while (std::getline(in, line)) {
      count += line.find(":12B7 ") != std::string::npos;
    }
  }
  return count;
}

bool NameExists() {
  std::ifstream in("/proc/thread-self/net/unix");
  std::string line;
  while (std::getline(in, line)) {
    if (line.find(std::string(kSocketName)) != std::string::npos) return true;
  }
  return false;
}

bool ProcessGone(pid_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

std::vector<uint8_t> PacketFor(uint16_t slot, uint32_t tag) {
  std::vector<uint8_t> p(24);
  p[0] = 4;  // RC SEND ONLY
  const uint32_t qpn = MakeQpn(slot, 7);
  p[5] = static_cast<uint8_t>(qpn >> 16);
  p[6] = static_cast<uint8_t>(qpn >> 8);
  p[7] = static_cast<uint8_t>(qpn);
  std::memcpy(p.data() + 12, &tag, sizeof(tag));
  return p;
}

uint16_t SlotIn(std::span<const uint8_t> packet) {
  return SlotOf(wire::PeekDestQpn(packet).value_or(0));
}

Peer::Peer(std::vector<LocalAddress> addresses,
           const std::function<void()>& before) {
  if (addresses.empty()) addresses.push_back({Ip("127.0.0.1"), 0});
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) abort();
  control_.Reset(ends[0]);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    if (before) before();
    Serve(ends[1], addresses);
  }
  close(ends[1]);
}

Peer::~Peer() {
  if (control_.valid()) Kill();
}

std::string Peer::Start() {
  char answer[1024];
  if (!Readable(control_.get(), kLong)) return "no answer";
  const ssize_t n = read(control_.get(), answer, sizeof(answer));
  if (n <= 0) return "died";
  if (answer[0] == '!') {
    return std::string(answer + 1, static_cast<size_t>(n - 1));
  }
  std::memcpy(&slot_, answer + 1, sizeof(slot_));
  return "";
}

void Peer::Signal(int signal) { kill(pid_, signal); }

void Peer::Kill() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  control_.Reset();
}

Asker::Asker(const wire::IpAddress& to, uint32_t scope_id)
    : to_(ToSocketAddress({to, scope_id}, wire::kRoceUdpPort)),
      fd_(socket(to.is_v4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC,
                 0)) {}

void Asker::Send(const std::vector<uint8_t>& payload) {
  sendto(fd_.get(), payload.data(), payload.size(), 0, to_.get(), to_.size);
}

bool Asker::Ask(uint16_t slot, std::chrono::milliseconds again,
                std::chrono::milliseconds patience) {
  const auto end = Clock::now() + patience;
  ++tag_;
  while (Clock::now() < end) {
    Send(PacketFor(slot, tag_));
    ++asked_;
    const auto until = std::min(end, Clock::now() + again);
    for (;;) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
      if (left.count() <= 0 || !Readable(fd_.get(), left)) break;
      TestAnswer answer{};
      if (recv(fd_.get(), &answer, sizeof(answer), 0) != sizeof(answer))
        continue;
      if (answer.tag == tag_) return answer.slot == slot;
    }
  }
  return false;
}

bool Asker::AskOnce(uint16_t slot) {
  return Ask(slot, std::chrono::seconds(20), std::chrono::seconds(20));
}

void Become(uid_t uid) {
  if (setgid(uid) != 0 || setuid(uid) != 0) _exit(9);
}

PublicBroker::PublicBroker() : before_(getenv("RXE_USER_BROKER")) {
  char folder[] = "/tmp/rxe_user_broker_XXXXXX";
  folder_ = mkdtemp(folder);
  std::filesystem::copy_file(before_, folder_ / "rxe-user-port-broker");
  std::filesystem::permissions(folder_, std::filesystem::perms(0755));
  setenv("RXE_USER_BROKER", (folder_ / "rxe-user-port-broker").c_str(), 1);
}

PublicBroker::~PublicBroker() {
  setenv("RXE_USER_BROKER", before_.c_str(), 1);
  std::filesystem::remove_all(folder_);
}

bool BrokerTest::Root() { return geteuid() == 0; }

void BrokerTest::SetUp() {
  setenv("RXE_USER_BROKER_LINGER_MS", "300", 1);
  ASSERT_NE(getenv("RXE_USER_BROKER"), nullptr) << "names the broker to test";
  if (Root()) {
    ASSERT_EQ(unshare(CLONE_NEWNET), 0);
    RaiseLoopback();
  } else if (!Eventually([] { return PortSockets() == 0; })) {
    GTEST_SKIP() << "UDP port 4791 is in use";
  }
}

void BrokerTest::TearDown() {
  // No test may leave anything behind.
  EXPECT_TRUE(Eventually([] { return !NameExists(); }));
  EXPECT_TRUE(Eventually([] { return PortSockets() == 0; }));
}

}  // namespace rxe_user::broker
