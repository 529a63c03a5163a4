// rsocket(7): connecting, data and closing of streams.
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <thread>

#include "rxe_user/testing/net_namespace.h"
#include "rxe_user/testing/watched_thread.h"
#include "tests/conformance/rsocket_fixture.h"
#include "tests/conformance/rsocket_route_fixture.h"

namespace conformance {
namespace {

class FamilyTest : public RsocketTest,
                   public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Families, FamilyTest,
                         testing::Values(AF_INET, AF_INET6));

TEST_P(FamilyTest, BytesArriveInOrderBothWaysAtOnce) {
  Listen(GetParam());
  Connect();
  // Repeated: two threads wait at each end, and one of them takes the event
  // that the other waits for.
  for (int i = 0; i < 10 && !HasFailure(); ++i) {
    const std::string there = Pattern(kMuch, 1 + i);
    const std::string back = Pattern(kMuch, 101 + i);
    std::thread sends([&] { SendAll(client_, there); });
    std::thread answers([&] { SendAll(server_, back); });
    std::string got;
    std::thread reads([&] { got = Receive(client_, kMuch); });
    EXPECT_TRUE(Receive(server_, kMuch) == there);
    reads.join();
    EXPECT_TRUE(got == back);
    sends.join();
    answers.join();
  }
}

TEST_P(FamilyTest, BothEndsKnowTheirAddresses) {
  Listen(GetParam());
  Connect();
  EXPECT_EQ(PortOf(server_), port_);
  sockaddr_in6 peer = {};
  socklen_t length = sizeof(peer);
  ASSERT_EQ(rgetpeername(client_, reinterpret_cast<sockaddr*>(&peer), &length),
            0);
  EXPECT_EQ(peer.sin6_family, GetParam());
  EXPECT_EQ(ntohs(peer.sin6_port), port_);
  ASSERT_EQ(rgetpeername(server_, reinterpret_cast<sockaddr*>(&peer), &length),
            0);
  EXPECT_EQ(ntohs(peer.sin6_port), PortOf(client_));
}

TEST_F(RsocketTest, AnIpv6SocketShowsIpv4Mapped) {
  listener_ = rsocket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 any = {};
  any.sin6_family = AF_INET6;
  ASSERT_EQ(
      rbind(listener_, reinterpret_cast<const sockaddr*>(&any), sizeof(any)), 0)
      << std::strerror(errno);
  ASSERT_EQ(rlisten(listener_, 1), 0);
  port_ = PortOf(listener_);
  MakeClient();
  const LoopbackAddress address(AF_INET, port_);
  std::thread connects([&] {
    EXPECT_EQ(rconnect(client_, address.get(), address.length), 0)
        << std::strerror(errno);
  });
  sockaddr_in6 names[3] = {};
  socklen_t length = sizeof(names[0]);
  server_ = raccept(listener_, reinterpret_cast<sockaddr*>(&names[0]), &length);
  EXPECT_GE(server_, 0);
  connects.join();
  EXPECT_EQ(length, sizeof(sockaddr_in6));
  EXPECT_EQ(
      rgetpeername(server_, reinterpret_cast<sockaddr*>(&names[1]), &length),
      0);
  EXPECT_EQ(
      rgetsockname(server_, reinterpret_cast<sockaddr*>(&names[2]), &length),
      0);
  for (const sockaddr_in6& name : names) {
    EXPECT_EQ(name.sin6_family, AF_INET6);
    char text[INET6_ADDRSTRLEN];
    EXPECT_STREQ(inet_ntop(AF_INET6, &name.sin6_addr, text, sizeof(text)),
                 "::ffff:127.0.0.1");
  }
  EXPECT_EQ(ntohs(names[0].sin6_port), PortOf(client_));
  EXPECT_EQ(ntohs(names[1].sin6_port), PortOf(client_));
  EXPECT_EQ(ntohs(names[2].sin6_port), port_);
}

TEST_F(RsocketTest, NobodyListens) {
  Listen();
  const uint16_t port = port_;
  ASSERT_EQ(rclose(std::exchange(listener_, -1)), 0);
  MakeClient();
  const LoopbackAddress address(AF_INET, port);
  EXPECT_EQ(rconnect(client_, address.get(), address.length), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  EXPECT_NE(Events(client_, POLLOUT) & POLLHUP, 0);
}

TEST_F(RsocketTest, AFullPipeBlocksAndGoesOn) {
  Connect();
  SetNonblocking(client_, true);
  const std::string bytes = Pattern(kMuch);
  size_t sent = 0;
  // Data in flight, and the server's grants as it accepts, still make room.
  do {
    ssize_t n;
    while ((n = rsend(client_, bytes.data() + sent, 10000, 0)) > 0) {
      sent += static_cast<size_t>(n);
      ASSERT_LT(sent + 10000, kMuch);
    }
    EXPECT_EQ(errno, EAGAIN);
  } while (Events(client_, POLLOUT, 100) != 0);
  EXPECT_TRUE(Receive(server_, sent) == bytes.substr(0, sent));
  EXPECT_EQ(Events(client_, POLLOUT, kSoon), POLLOUT);
  SetNonblocking(client_, false);
  std::thread rest([&] { SendAll(client_, bytes.substr(sent)); });
  EXPECT_TRUE(Receive(server_, kMuch - sent) == bytes.substr(sent));
  rest.join();
}

TEST_F(RsocketTest, ManySmallMessagesWaitForCredits) {
  Connect();
  std::thread reads([&] {
    for (int i = 0; i < 5000; ++i) {
      ASSERT_EQ(Receive(server_, 1), std::string(1, static_cast<char>(i)));
    }
  });
  for (int i = 0; i < 5000; ++i) SendAll(client_, {static_cast<char>(i)});
  reads.join();
}

TEST_F(RsocketTest, NothingToReceive) {
  Connect();
  char byte;
  EXPECT_EQ(rrecv(server_, &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(Events(server_, POLLIN, 10), 0);
}

TEST_F(RsocketTest, PeekingLeavesTheBytesThere) {
  Connect();
  SendAll(client_, "hello");
  ASSERT_EQ(Events(server_, POLLIN, kSoon), POLLIN);
  char bytes[6] = {};
  EXPECT_EQ(rrecv(server_, bytes, 3, MSG_PEEK), 3);
  EXPECT_STREQ(bytes, "hel");
  EXPECT_EQ(Receive(server_, 5), "hello");
}

TEST_F(RsocketTest, WaitAllWaitsForAll) {
  Connect();
  rxe_user::WatchedThread reads([&] {
    char bytes[10];
    EXPECT_EQ(rrecv(server_, bytes, 10, MSG_WAITALL), 10);
    EXPECT_EQ(std::string(bytes, 10), "helloworld");
  });
  SendAll(client_, "hello");
  EXPECT_TRUE(reads.AwaitSleep());
  SendAll(client_, "world");
  reads.join();
}

TEST_F(RsocketTest, VectorsAreFilledOneAfterTheOther) {
  Connect();
  char a[] = "ab", b[] = "", c[] = "cde";
  const iovec out[] = {{a, 2}, {b, 0}, {c, 3}};
  EXPECT_EQ(rwritev(client_, out, 3), 5);
  ASSERT_EQ(Events(server_, POLLIN, kSoon), POLLIN);
  char d[5] = {}, e[5] = {};
  const iovec in[] = {{d, 3}, {e, 4}};
  EXPECT_EQ(rreadv(server_, in, 2), 5);
  EXPECT_STREQ(d, "abc");
  EXPECT_STREQ(e, "de");
}

TEST_F(RsocketTest, HalfOfItIsShut) {
  Connect();
  SendAll(client_, "last");
  ASSERT_EQ(rshutdown(client_, SHUT_WR), 0);
  EXPECT_EQ(rsend(client_, "x", 1, 0), -1);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_EQ(Receive(server_, 100), "last");
  EXPECT_NE(Events(server_, POLLIN | POLLRDHUP) & POLLRDHUP, 0);
  SendAll(server_, "answer");
  EXPECT_EQ(Receive(client_, 6), "answer");
  ASSERT_EQ(rclose(std::exchange(server_, -1)), 0);
  EXPECT_EQ(Receive(client_, 1), "");
}

TEST_F(RsocketTest, DataBeforeTheEndCanBeRead) {
  Connect();
  const std::string bytes = Pattern(50000);
  SendAll(client_, bytes);
  ASSERT_EQ(rclose(std::exchange(client_, -1)), 0);
  EXPECT_TRUE(Receive(server_, 60000) == bytes);
  EXPECT_NE(Events(server_, POLLIN) & POLLHUP, 0);
  EXPECT_EQ(rsend(server_, "x", 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

// Both ends shut down their half before they know that the other has. Data in
// flight still arrives.
TEST_F(RouteTest, CrossingHalfClosesLoseNothing) {
  if (!ListenThere()) GTEST_SKIP() << "not allowed to";
  ASSERT_NO_FATAL_FAILURE(ConnectThere());

  // Nothing reaches the server.
  ASSERT_TRUE(rxe_user::SetRouteTo(kAddress, rxe_user::Route::kBlackhole));
  const std::string bytes = Pattern(10000);
  SendAll(client_, bytes);
  ASSERT_EQ(rshutdown(client_, SHUT_WR), 0);
  ASSERT_EQ(rshutdown(server_, SHUT_WR), 0);
  EXPECT_EQ(Receive(client_, 1), "");
  rxe_user::WatchedThread closes(
      [&] { EXPECT_EQ(rclose(std::exchange(client_, -1)), 0); });
  EXPECT_TRUE(closes.AwaitSleep()) << "it does not wait";
  ASSERT_TRUE(rxe_user::SetRouteTo(kAddress, rxe_user::Route::kLocal));
  EXPECT_TRUE(Receive(server_, bytes.size() + 1) == bytes);
  closes.join();
}

// How often a thread has waited. `status`: its file in /proc.
long Waits(int status) {
  constexpr char kWaits[] = "\nvoluntary_ctxt_switches:";
  char text[4096] = {};
  EXPECT_GT(pread(status, text, sizeof(text) - 1, 0), 0);
  const char* const found = std::strstr(text, kWaits);
  return found == nullptr ? -1 : std::atol(found + std::strlen(kWaits));
}

// A thread that has not waited yet needs a descriptor to wait with.
TEST_F(RouteTest, ClosingWithoutADescriptorLosesNothing) {
  if (!ListenThere()) GTEST_SKIP() << "not allowed to";
  ASSERT_NO_FATAL_FAILURE(ConnectThere());
  // Nothing reaches the server.
  ASSERT_TRUE(rxe_user::SetRouteTo(kAddress, rxe_user::Route::kBlackhole));
  const std::string bytes = Pattern(10000);
  SendAll(client_, bytes);
  std::atomic<pid_t> id = 0;
  std::atomic<bool> may_close = false, closed = false;
  std::thread closes([&] {
    id = gettid();
    while (!may_close) std::this_thread::yield();
    EXPECT_EQ(rclose(std::exchange(client_, -1)), 0);
    closed = true;
  });
  while (id == 0) std::this_thread::yield();
  const std::string path = "/proc/self/task/" + std::to_string(id) + "/status";
  const int status = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(status, 0);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const long before = Waits(status);
  may_close = true;
  while (!closed && Waits(status) < before + 10) std::this_thread::yield();
  EXPECT_FALSE(closed) << "it does not wait";
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(close(status), 0);
  ASSERT_TRUE(rxe_user::SetRouteTo(kAddress, rxe_user::Route::kLocal));
  EXPECT_TRUE(Receive(server_, bytes.size() + 1) == bytes);
  closes.join();
}

std::set<int> Timers() {
  std::set<int> timers;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry, gone) == "anon_inode:[timerfd]") {
      timers.insert(std::stoi(entry.path().filename()));
    }
  }
  return timers;
}

std::atomic<int> signals = 0;

// shutdown(2) has no EINTR: a program does not repeat it.
TEST_F(RouteTest, ASignalDoesNotEndShuttingDown) {
  constexpr int kQueue = 16, kBuffer = 100, kKeepalive = 1;
  if (!ListenThere()) GTEST_SKIP() << "not allowed to";
  MakeClient();
  ASSERT_EQ(rsetsockopt(client_, SOL_RDMA, RDMA_RQSIZE, &kQueue, sizeof(int)),
            0);
  ASSERT_EQ(rsetsockopt(client_, SOL_SOCKET, SO_RCVBUF, &kBuffer, sizeof(int)),
            0);
  ASSERT_NO_FATAL_FAILURE(ConnectThere());
  // The client will owe credits after the first one, half of its queue later,
  // and after the last one.
  SendAll(server_, Pattern(kBuffer));
  for (int i = 1; i < kQueue - 1; ++i) SendAll(server_, "x");
  SendAll(server_, Pattern(kBuffer - (kQueue - 2)));

  // Nothing reaches the server: the client's credits and its keepalive message
  // take all places for control messages.
  ASSERT_TRUE(rxe_user::SetRouteTo(kAddress, rxe_user::Route::kBlackhole));
  EXPECT_EQ(Receive(client_, kBuffer).size(), size_t{kBuffer});
  for (int i = 0; i < kBuffer; ++i) EXPECT_EQ(Receive(client_, 1).size(), 1u);
  const std::set<int> before = Timers();
  ASSERT_EQ(
      rsetsockopt(client_, IPPROTO_TCP, TCP_KEEPIDLE, &kKeepalive, sizeof(int)),
      0);
  ASSERT_EQ(
      rsetsockopt(client_, SOL_SOCKET, SO_KEEPALIVE, &kKeepalive, sizeof(int)),
      0);
  std::set<int> timers = Timers();
  for (const int fd : before) timers.erase(fd);
  ASSERT_EQ(timers.size(), 1u);
  pollfd timer = {.fd = *timers.begin(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&timer, 1, kSoon), 1);
  while (poll(&timer, 1, 0) == 1) EXPECT_EQ(Events(client_, POLLIN, 1), 0);

  struct sigaction counts = {}, old;
  counts.sa_handler = [](int) { ++signals; };
  ASSERT_EQ(sigaction(SIGUSR1, &counts, &old), 0);
  rxe_user::WatchedThread shuts([&] {
    EXPECT_EQ(rshutdown(client_, SHUT_WR), 0) << std::strerror(errno);
  });
  EXPECT_TRUE(shuts.AwaitSleep()) << "it does not wait";
  EXPECT_EQ(pthread_kill(shuts.native_handle(), SIGUSR1), 0);
  while (signals == 0) std::this_thread::yield();
  ASSERT_TRUE(rxe_user::SetRouteTo(kAddress, rxe_user::Route::kLocal));
  shuts.join();
  ASSERT_EQ(Events(server_, POLLIN, kSoon), POLLIN);
  EXPECT_EQ(Receive(server_, 1), "");
  EXPECT_EQ(sigaction(SIGUSR1, &old, nullptr), 0);
}

// A non-blocking call does not wait for other threads either.
TEST_F(RsocketTest, AFullPipeOfAnotherThread) {
  Connect();
  const std::string bytes = Pattern(kMuch);
  rxe_user::WatchedThread sends([&] { SendAll(client_, bytes); });
  ASSERT_TRUE(sends.AwaitSleep());
  rxe_user::WatchedThread tries([&] {
    EXPECT_EQ(rsend(client_, "x", 1, MSG_DONTWAIT), -1);
    EXPECT_EQ(errno, EAGAIN);
  });
  EXPECT_FALSE(tries.AwaitSleep()) << "it waits";
  EXPECT_TRUE(Receive(server_, kMuch) == bytes);
  sends.join();
  tries.join();
}

TEST_F(RsocketTest, ShutdownEndsAccepting) {
  Listen();
  rxe_user::WatchedThread accepts([&] {
    EXPECT_EQ(raccept(listener_, nullptr, nullptr), -1);
    EXPECT_EQ(errno, EINVAL);
  });
  ASSERT_TRUE(accepts.AwaitSleep());
  // There is nothing to send.
  EXPECT_EQ(rshutdown(listener_, SHUT_WR), 0) << std::strerror(errno);
  EXPECT_TRUE(accepts.AwaitSleep()) << "it has ended";
  EXPECT_EQ(rshutdown(listener_, SHUT_RDWR), 0) << std::strerror(errno);
  if (HasFailure()) {
    rclose(std::exchange(listener_, -1));
  }
  accepts.join();
}

TEST_F(RsocketTest, ShutdownResetsTheBacklog) {
  Listen();
  MakeClient();
  SetNonblocking(client_, true);
  const LoopbackAddress address(family_, port_);
  ASSERT_EQ(rconnect(client_, address.get(), address.length), -1);
  ASSERT_EQ(errno, EINPROGRESS);
  while (Events(listener_, POLLIN, 1) == 0) Events(client_, POLLOUT);
  EXPECT_EQ(rshutdown(listener_, SHUT_RD), 0) << std::strerror(errno);
  EXPECT_NE(Events(client_, POLLIN, kSoon) & POLLHUP, 0);
  int error = -1;
  socklen_t length = sizeof(error);
  ASSERT_EQ(rgetsockopt(client_, SOL_SOCKET, SO_ERROR, &error, &length), 0);
  EXPECT_EQ(error, ECONNRESET);
}

// No call waits on the listener meanwhile.
TEST_F(RsocketTest, AListenerThatWasShutRefusesConnections) {
  for (const int family : {AF_INET, AF_INET6}) {
    Listen(family);
    MakeClient();
    SetNonblocking(client_, true);
    ASSERT_EQ(rshutdown(listener_, SHUT_RD), 0) << std::strerror(errno);
    const LoopbackAddress address(family, port_);
    EXPECT_EQ(rconnect(client_, address.get(), address.length), -1);
    EXPECT_EQ(errno, EINPROGRESS) << std::strerror(errno);
    EXPECT_NE(Events(client_, POLLOUT, kSoon), 0) << "nobody answers";
    int error = -1;
    socklen_t length = sizeof(error);
    ASSERT_EQ(rgetsockopt(client_, SOL_SOCKET, SO_ERROR, &error, &length), 0);
    EXPECT_EQ(error, ECONNREFUSED);
    if (HasFailure()) return;
    // The socket is in the state before listen.
    EXPECT_EQ(Events(listener_, POLLIN | POLLOUT), POLLOUT | POLLHUP);
    EXPECT_EQ(raccept(listener_, nullptr, nullptr), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(rshutdown(listener_, SHUT_RD), -1);
    EXPECT_EQ(errno, ENOTCONN);
    EXPECT_EQ(PortOf(listener_), port_);
    ASSERT_EQ(rlisten(listener_, 10), 0) << std::strerror(errno);
    ASSERT_EQ(rclose(std::exchange(client_, -1)), 0);
    Connect();
    for (int* const fd : {&client_, &server_, &listener_}) {
      ASSERT_EQ(rclose(std::exchange(*fd, -1)), 0);
    }
  }
}

// The client gets a connection and its end, although the server closes before
// it knows of the connection.
TEST_F(RsocketTest, TheServerClosesAtOnce) {
  Listen();
  std::atomic<bool> done = false;
  std::thread serves([&] {
    while (!done) {
      const int fd = raccept(listener_, nullptr, nullptr);
      ASSERT_GE(fd, 0) << std::strerror(errno);
      ASSERT_EQ(rclose(fd), 0);
    }
  });
  const LoopbackAddress address(AF_INET, port_);
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    MakeClient();
    EXPECT_EQ(rconnect(client_, address.get(), address.length), 0)
        << i << ": " << std::strerror(errno);
    EXPECT_EQ(Receive(client_, 1), "");
    ASSERT_EQ(rclose(std::exchange(client_, -1)), 0);
  }
  done = true;
  MakeClient();  // ends the accept
  rconnect(client_, address.get(), address.length);
  serves.join();
}

TEST_F(RsocketTest, TheServerShutsDownAtOnce) {
  Listen();
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    MakeClient();
    std::thread connects([&] {
      const LoopbackAddress address(AF_INET, port_);
      EXPECT_EQ(rconnect(client_, address.get(), address.length), 0)
          << i << ": " << std::strerror(errno);
      EXPECT_EQ(Receive(client_, 1), "");
    });
    server_ = raccept(listener_, nullptr, nullptr);
    EXPECT_GE(server_, 0) << std::strerror(errno);
    SetNonblocking(server_, true);
    EXPECT_EQ(rshutdown(server_, SHUT_RDWR), 0) << std::strerror(errno);
    EXPECT_EQ(rclose(std::exchange(server_, -1)), 0);
    connects.join();
    ASSERT_EQ(rclose(std::exchange(client_, -1)), 0);
  }
}

// The interface is the device's, because a listener on all addresses has none.
TEST_F(RsocketTest, LinkLocalAddressesHaveTheirInterface) {
  if (std::system("ip -6 address add fe80::78/64 dev lo nodad") != 0) {
    GTEST_SKIP() << "not allowed to";
  }
  sockaddr_in6 in = {};
  in.sin6_family = AF_INET6;
  in.sin6_scope_id = if_nametoindex("lo");
  ASSERT_EQ(inet_pton(AF_INET6, "fe80::78", &in.sin6_addr), 1);
  // Until the device has the address.
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(kSoon);
  for (bool has_it = false; !has_it;) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    const int probe = rsocket(AF_INET6, SOCK_STREAM, 0);
    has_it =
        rbind(probe, reinterpret_cast<const sockaddr*>(&in), sizeof(in)) == 0;
    ASSERT_EQ(rclose(probe), 0);
  }
  listener_ = rsocket(AF_INET6, SOCK_STREAM, 0);
  in = {};
  in.sin6_family = AF_INET6;
  ASSERT_EQ(
      rbind(listener_, reinterpret_cast<const sockaddr*>(&in), sizeof(in)), 0);
  ASSERT_EQ(rlisten(listener_, 1), 0);
  in.sin6_port = htons(PortOf(listener_));
  in.sin6_scope_id = if_nametoindex("lo");
  ASSERT_EQ(inet_pton(AF_INET6, "fe80::78", &in.sin6_addr), 1);
  client_ = rsocket(AF_INET6, SOCK_STREAM, 0);
  std::thread connects([&] {
    EXPECT_EQ(
        rconnect(client_, reinterpret_cast<const sockaddr*>(&in), sizeof(in)),
        0)
        << std::strerror(errno);
  });
  sockaddr_in6 names[2] = {};
  socklen_t length = sizeof(names[0]);
  server_ = raccept(listener_, reinterpret_cast<sockaddr*>(&names[0]), &length);
  EXPECT_GE(server_, 0);
  connects.join();
  EXPECT_EQ(
      rgetsockname(server_, reinterpret_cast<sockaddr*>(&names[1]), &length),
      0);
  for (const sockaddr_in6& name : names) {
    EXPECT_EQ(name.sin6_scope_id, in.sin6_scope_id);
    EXPECT_EQ(std::memcmp(&name.sin6_addr, &in.sin6_addr, sizeof(in6_addr)), 0);
  }
  // While the address exists: closing notifies the other end.
  for (int* const fd : {&client_, &server_, &listener_}) {
    EXPECT_EQ(rclose(std::exchange(*fd, -1)), 0);
  }
  EXPECT_EQ(std::system("ip -6 address del fe80::78/64 dev lo"), 0);
}

// A second connect(2) returns the state of the connection in progress.
TEST_F(RsocketTest, ConnectingAgain) {
  Listen();
  MakeClient();
  SetNonblocking(client_, true);
  const LoopbackAddress address(AF_INET, port_);
  ASSERT_EQ(rconnect(client_, address.get(), address.length), -1);
  ASSERT_EQ(errno, EINPROGRESS);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(kSoon);
  while (rconnect(client_, address.get(), address.length) != 0) {
    ASSERT_EQ(errno, EALREADY);
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "it does not go on";
  }
  EXPECT_EQ(rconnect(client_, address.get(), address.length), -1);
  EXPECT_EQ(errno, EISCONN);
}

}  // namespace
}  // namespace conformance
