// rsocket(7): children of fork, and peers in other processes that end.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "rxe_user/testing/net_namespace.h"
#include "tests/conformance/rsocket_fixture.h"
#include "tests/conformance/rsocket_route_fixture.h"

namespace conformance {
namespace {

// Whatever locks the parent's threads hold at the fork.
TEST_F(RsocketTest, CallsInAChildOfForkFailAtOnce) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's own allocator may hang in such a child";
#endif
  Connect();
  std::atomic<bool> goes{true};
  const std::string some = Pattern(1 << 16);
  std::thread sends([&] {
    while (goes) SendAll(client_, some);
    EXPECT_EQ(rshutdown(client_, SHUT_WR), 0);
  });
  std::thread receives([&] {
    std::string bytes(1 << 16, '\0');
    while (rrecv(server_, bytes.data(), bytes.size(), 0) > 0) {
    }
  });
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(10);
      char byte;
      pollfd fd = {.fd = server_, .events = POLLIN, .revents = 0};
      if (rrecv(server_, &byte, 1, 0) != -1 || errno != EBADF) _exit(1);
      if (rsend(client_, &byte, 1, 0) != -1 || errno != EBADF) _exit(2);
      if (rpoll(&fd, 1, 0) != 1 || fd.revents != POLLNVAL) _exit(3);
      if (i % 2 == 0) {
        if (rclose(server_) != 0 || rclose(client_) != 0) _exit(4);
      } else {
        // A new socket gets this number: the first free one.
        while (dup(0) < server_) {
        }
        close(server_);
        if (rsocket(AF_INET, SOCK_STREAM, 0) != server_) _exit(5);
      }
      _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << i;
  }
  goes = false;
  sends.join();
  receives.join();
}

std::set<int> OpenDescriptors() {
  std::set<int> all;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    all.insert(std::stoi(entry.path().filename()));
  }
  // That of the iterator.
  std::erase_if(all, [](int fd) { return fcntl(fd, F_GETFD) < 0; });
  return all;
}

// Those that `open` opens.
template <typename Open>
std::set<int> DescriptorsOf(Open&& open) {
  const std::set<int> before = OpenDescriptors();
  open();
  const std::set<int> after = OpenDescriptors();
  std::set<int> opened;
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                      std::inserter(opened, opened.end()));
  return opened;
}

int DatagramSocket() {
  const int fd = rsocket(AF_INET, SOCK_DGRAM, 0);
  const timeval soon = {.tv_sec = 0, .tv_usec = 1000};
  if (rsetsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)) != 0) {
    return -1;
  }
  return fd;
}

bool WaitsInVain(int rsocket) {
  char byte;
  return rrecv(rsocket, &byte, 1, 0) == -1 && errno == EAGAIN;
}

// In a child of fork: closes all descriptors, and opens a file with `number`.
bool ReplaceAll(int number, struct stat* file) {
  alarm(20);
  return close_range(3, ~0u, 0) == 0 &&
         dup2(open("/dev/zero", O_RDONLY), number) == number &&
         fstat(number, file) == 0;
}

bool Is(int number, const struct stat& file) {
  struct stat now = {};
  return fstat(number, &now) == 0 && now.st_dev == file.st_dev &&
         now.st_ino == file.st_ino;
}

void ExpectThatItEnds(pid_t child) {
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A daemon closes all descriptors after it forked.
TEST_F(RsocketTest, AWaitersNumberIsAnotherFilesInAChildOfFork) {
  const int parents = DatagramSocket();
  // In a thread that has not waited yet.
  std::thread([&] {
    const std::set<int> waiter =
        DescriptorsOf([&] { EXPECT_TRUE(WaitsInVain(parents)); });
    ASSERT_EQ(waiter.size(), 1u);
    const int number = *waiter.begin();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      struct stat file;
      if (!ReplaceAll(number, &file)) _exit(1);
      if (!WaitsInVain(DatagramSocket())) _exit(2);
      _exit(Is(number, file) ? 0 : 3);
    }
    ExpectThatItEnds(child);
  }).join();
  EXPECT_EQ(rclose(parents), 0);
}

TEST_F(RsocketTest, ASocketsNumbersAreOtherFilesInAChildOfFork) {
  int parents = -1;
  std::set<int> numbers = DescriptorsOf([&] { parents = DatagramSocket(); });
  numbers.erase(parents);
  ASSERT_EQ(numbers.size(), 1u);
  const int number = *numbers.begin();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    struct stat file;
    if (!ReplaceAll(number, &file)) _exit(1);
    // A new socket gets this number: the first free one.
    while (dup(0) < parents) {
    }
    close(parents);
    if (DatagramSocket() != parents) _exit(2);
    _exit(Is(number, file) ? 0 : 3);
  }
  ExpectThatItEnds(child);
  EXPECT_EQ(rclose(parents), 0);
}

constexpr char kPort[] = "RXE_USER_TEST_RSOCKET_PORT";

// The environment of this process, which other threads may read, with one more
// setting.
std::vector<char*> EnvironmentWith(std::string& setting) {
  std::vector<char*> all;
  for (char** one = environ; *one != nullptr; ++one) all.push_back(*one);
  all.push_back(setting.data());
  all.push_back(nullptr);
  return all;
}

// Sends as many bytes as requested, and ends without closing.
[[noreturn]] void RunPeer() {
  const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
  const LoopbackAddress address(
      AF_INET, static_cast<uint16_t>(std::atoi(std::getenv(kPort))));
  if (rconnect(fd, address.get(), address.length) != 0) std::exit(1);
  const std::string bytes = Pattern(kMuch);
  if (rsend(fd, bytes.data(), bytes.size(), 0) != ssize_t{kMuch}) std::exit(2);
  std::exit(0);
}

// Connects, and waits to be killed.
[[noreturn]] void RunPeerThatStays() {
  const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
  const LoopbackAddress address(
      AF_INET, static_cast<uint16_t>(std::atoi(std::getenv(kPort))));
  if (rconnect(fd, address.get(), address.length) != 0) std::exit(1);
  if (rsend(fd, "x", 1, 0) != 1) std::exit(2);
  for (;;) pause();
}

class PeerTest : public RsocketTest {
 protected:
  // Runs `test` in another process, which connects.
  void StartPeer(const char* test) {
    Listen();
    std::string port = std::string(kPort) + "=" + std::to_string(port_);
    const std::string filter = std::string("--gtest_filter=") + test;
    const char* const argv[] = {"peer", filter.c_str(), nullptr};
    ASSERT_EQ(
        posix_spawn(&peer_, "/proc/self/exe", nullptr, nullptr,
                    const_cast<char**>(argv), EnvironmentWith(port).data()),
        0);
    server_ = raccept(listener_, nullptr, nullptr);
    ASSERT_GE(server_, 0) << std::strerror(errno);
  }
  void Kill() {
    ASSERT_EQ(kill(peer_, SIGKILL), 0);
    ASSERT_EQ(waitpid(peer_, nullptr, 0), peer_);
  }
  void ExpectThatItEnds() {
    int status = -1;
    ASSERT_EQ(waitpid(peer_, &status, 0), peer_);
    EXPECT_EQ(status, 0);
  }

 private:
  pid_t peer_ = 0;
};

TEST_F(PeerTest, AnotherProcessEndsWithoutClosing) {
  if (std::getenv(kPort) != nullptr) RunPeer();
  StartPeer("PeerTest.AnotherProcessEndsWithoutClosing");
  EXPECT_TRUE(Receive(server_, kMuch + 1) == Pattern(kMuch));
  ExpectThatItEnds();
}

// A program that never waits notices it, too.
TEST_F(PeerTest, AnotherProcessIsKilled) {
  if (std::getenv(kPort) != nullptr) RunPeerThatStays();
  StartPeer("PeerTest.AnotherProcessIsKilled");
  ASSERT_EQ(Receive(server_, 1), "x");
  EXPECT_EQ(Events(server_, POLLIN, 0), 0);
  Kill();
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(kSoon);
  while (Events(server_, POLLIN, 0) == 0 &&
         std::chrono::steady_clock::now() < end) {
  }
  EXPECT_NE(Events(server_, POLLIN, 0), 0);
}

constexpr int kConnections = 6;

// Makes many connections, and ends when the route to the server is gone.
// `linger_seconds`: for SO_LINGER, unless negative.
[[noreturn]] void RunPeerWithManyConnections(int linger_seconds) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(std::getenv(kPort))));
  inet_pton(AF_INET, kAddress, &to.sin_addr);
  const LoopbackAddress from(AF_INET);
  for (int i = 0; i < kConnections; ++i) {
    const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    if (rbind(fd, from.get(), from.length) != 0) std::exit(1);
    if (rconnect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) {
      std::exit(2);
    }
    if (rsend(fd, "x", 1, 0) != 1) std::exit(3);
    const linger lingering = {.l_onoff = linger_seconds >= 0,
                              .l_linger = linger_seconds};
    if (rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &lingering, sizeof(lingering)) !=
        0) {
      std::exit(5);
    }
  }
  char byte;  // the test decides when
  std::exit(read(STDIN_FILENO, &byte, 1) == 1 ? 0 : 4);
}

// A process that ends waits for all its connections at once.
class ManyConnectionsTest : public RouteTest {
 protected:
  // Runs `test` in another process. `most`: shorter than waiting for one
  // connection after the other.
  void ExpectThatItEndsWhosePeersAreGone(const char* test,
                                         std::chrono::seconds least,
                                         std::chrono::seconds most) {
    int go[2];
    ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, go[0], STDIN_FILENO);
    std::string port = std::string(kPort) + "=" + std::to_string(port_);
    const std::string filter = std::string("--gtest_filter=") + test;
    const char* const argv[] = {"peer", filter.c_str(), nullptr};
    pid_t peer;
    ASSERT_EQ(
        posix_spawn(&peer, "/proc/self/exe", &actions, nullptr,
                    const_cast<char**>(argv), EnvironmentWith(port).data()),
        0);
    posix_spawn_file_actions_destroy(&actions);
    std::vector<int> servers;
    for (int i = 0; i < kConnections; ++i) {
      servers.push_back(raccept(listener_, nullptr, nullptr));
      ASSERT_EQ(Receive(servers.back(), 1), "x");
    }
    ASSERT_TRUE(rxe_user::SetRouteTo(kAddress, rxe_user::Route::kBlackhole));
    const auto before = std::chrono::steady_clock::now();
    ASSERT_EQ(write(go[1], "x", 1), 1);
    int status = -1;
    rusage used = {};
    ASSERT_EQ(wait4(peer, &status, 0, &used), peer);
    EXPECT_EQ(status, 0);
    const auto time = std::chrono::steady_clock::now() - before;
    EXPECT_GE(time, least);
    EXPECT_LT(time, most);
    // The process sleeps meanwhile.
    EXPECT_LT(
        std::chrono::seconds(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
            std::chrono::microseconds(used.ru_utime.tv_usec +
                                      used.ru_stime.tv_usec),
        least / 2);
    const linger at_once = {.l_onoff = 1, .l_linger = 0};
    for (const int fd : servers) {
      EXPECT_EQ(
          rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
      EXPECT_EQ(rclose(fd), 0);
    }
    close(go[0]);
    close(go[1]);
  }
};

// Until the retries of their requests are exhausted.
TEST_F(ManyConnectionsTest, TheyAreWaitedFor) {
  if (std::getenv(kPort) != nullptr) RunPeerWithManyConnections(-1);
  if (!ListenThere()) GTEST_SKIP() << "not allowed to";
  ExpectThatItEndsWhosePeersAreGone("ManyConnectionsTest.TheyAreWaitedFor",
                                    std::chrono::seconds(5),
                                    std::chrono::seconds(15));
}

TEST_F(ManyConnectionsTest, TheyLinger) {
  if (std::getenv(kPort) != nullptr) RunPeerWithManyConnections(2);
  if (!ListenThere()) GTEST_SKIP() << "not allowed to";
  ExpectThatItEndsWhosePeersAreGone("ManyConnectionsTest.TheyLinger",
                                    std::chrono::seconds(2),
                                    std::chrono::seconds(6));
}

// The first registered handler of atexit(3) runs last, and may still
// communicate.
constexpr int kRounds = 1000;
int fd_at_exit = -1;

[[noreturn]] void RunPeerThatTalksAtExit() {
  std::atexit([] {
    char byte = 0;
    for (int i = 0; i < kRounds; ++i) {
      if (rrecv(fd_at_exit, &byte, 1, 0) != 1) _exit(3);
      if (rsend(fd_at_exit, &byte, 1, 0) != 1) _exit(4);
    }
  });
  fd_at_exit = rsocket(AF_INET, SOCK_STREAM, 0);
  const LoopbackAddress address(
      AF_INET, static_cast<uint16_t>(std::atoi(std::getenv(kPort))));
  if (rconnect(fd_at_exit, address.get(), address.length) != 0) std::exit(1);
  std::exit(0);
}

TEST_F(PeerTest, TheProgramsExitHandlersComeFirst) {
  if (std::getenv(kPort) != nullptr) RunPeerThatTalksAtExit();
  StartPeer("PeerTest.TheProgramsExitHandlersComeFirst");
  for (int i = 0; i < kRounds; ++i) {
    const std::string byte(1, static_cast<char>(i));
    ASSERT_EQ(rsend(server_, byte.data(), 1, 0), 1) << std::strerror(errno);
    ASSERT_EQ(Receive(server_, 1), byte) << i;
  }
  EXPECT_EQ(Receive(server_, 1), "");
  ExpectThatItEnds();
}

}  // namespace
}  // namespace conformance
