// rsocket(7): streams.
#include <net/if.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <limits>
#include <thread>
#include <vector>

#include "rxe_user/testing/by_udp.h"
#include "rxe_user/testing/net_namespace.h"
#include "rxe_user/testing/watched_thread.h"
#include "tests/conformance/rsocket_fixture.h"

namespace conformance {
namespace {

constexpr size_t kMuch = 3 << 20;  // more than all buffers

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

// A server with an address whose route can be removed.
constexpr char kAddress[] = "192.0.2.77";

class RouteTest : public RsocketTest {
 protected:
  // Packets through shared memory use no route. The peer process inherits the
  // setting.
  const rxe_user::ByUdp by_udp_;
  void TearDown() override {
    rxe_user::SetRouteTo(kAddress, rxe_user::Route::kLocal);
    RsocketTest::TearDown();
    rxe_user::SetLoopbackAddress(kAddress, false);
  }
  // Returns false if that is not allowed.
  bool ListenThere() {
    if (!rxe_user::SetLoopbackAddress(kAddress, true)) return false;
    listener_ = rsocket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to = Address(0);
    // The device gets the address a moment later.
    while (rbind(listener_, reinterpret_cast<const sockaddr*>(&to),
                 sizeof(to)) != 0) {
      EXPECT_TRUE(errno == ENODEV || errno == EADDRNOTAVAIL)
          << std::strerror(errno);
      if (HasFailure()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(rlisten(listener_, 10), 0);
    port_ = PortOf(listener_);
    return true;
  }
  static sockaddr_in Address(uint16_t port) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    inet_pton(AF_INET, kAddress, &to.sin_addr);
    return to;
  }
};

// Both ends shut down their half before they know that the other has. Data in
// flight still arrives.
TEST_F(RouteTest, CrossingHalfClosesLoseNothing) {
  if (!ListenThere()) GTEST_SKIP() << "not allowed to";
  MakeClient();
  const LoopbackAddress from(AF_INET);
  ASSERT_EQ(rbind(client_, from.get(), from.length), 0);
  const sockaddr_in to = Address(port_);
  std::thread connects([&] {
    EXPECT_EQ(
        rconnect(client_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)),
        0)
        << std::strerror(errno);
  });
  server_ = raccept(listener_, nullptr, nullptr);
  ASSERT_GE(server_, 0);
  connects.join();

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
    // It is in the state before listen.
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

TEST_F(RsocketTest, CallsThatSucceedLeaveErrno) {
  constexpr int kBefore = ENOTEMPTY;
  Listen();
  errno = kBefore;
  const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(errno, kBefore);
  ASSERT_EQ(rbind(fd, LoopbackAddress(AF_INET).get(), sizeof(sockaddr_in)), 0);
  EXPECT_EQ(errno, kBefore);
  ASSERT_EQ(rlisten(fd, 1), 0);
  EXPECT_EQ(errno, kBefore);
  EXPECT_EQ(Events(fd, POLLIN), 0);
  EXPECT_EQ(errno, kBefore);
  ASSERT_EQ(rclose(fd), 0);
  EXPECT_EQ(errno, kBefore);
  // Connected sockets: one thread waits at each end.
  MakeClient();
  std::thread connects([&] {
    errno = kBefore;
    const LoopbackAddress address(AF_INET, port_);
    EXPECT_EQ(rconnect(client_, address.get(), address.length), 0);
    EXPECT_EQ(errno, kBefore);
    EXPECT_EQ(rsend(client_, "a", 1, 0), 1);
    EXPECT_EQ(errno, kBefore);
  });
  server_ = raccept(listener_, nullptr, nullptr);
  EXPECT_GE(server_, 0);
  EXPECT_EQ(errno, kBefore);
  char byte;
  EXPECT_EQ(rrecv(server_, &byte, 1, 0), 1);
  EXPECT_EQ(errno, kBefore);
  connects.join();
  EXPECT_EQ(rshutdown(server_, SHUT_RDWR), 0);
  EXPECT_EQ(errno, kBefore);
  EXPECT_EQ(rclose(std::exchange(server_, -1)), 0);
  EXPECT_EQ(errno, kBefore);
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

TEST_F(RsocketTest, VectorsOfAnImpossibleLength) {
  Connect();
  char byte = 0;
  const iovec one = {&byte, 1};
  for (const int count : {-1, IOV_MAX + 1}) {
    EXPECT_EQ(rreadv(server_, &one, count), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(rwritev(server_, &one, count), -1);
    EXPECT_EQ(errno, EINVAL);
  }
}

TEST_F(RsocketTest, ClosingWakesWaitingThreads) {
  Connect();
  rxe_user::WatchedThread reads([&, socket = server_] {
    char byte;
    EXPECT_EQ(rrecv(socket, &byte, 1, 0), -1);
    EXPECT_EQ(errno, EBADF);
  });
  EXPECT_TRUE(reads.AwaitSleep());
  ASSERT_EQ(rclose(std::exchange(server_, -1)), 0);
  reads.join();
}

TEST_F(RsocketTest, PollTakesSocketsAndOtherDescriptors) {
  Connect();
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  pollfd fds[] = {{server_, POLLIN, 0}, {pipes[0], POLLIN, 0}, {-1, POLLIN, 0}};
  EXPECT_EQ(rpoll(fds, 3, 0), 0);
  {
    rxe_user::WatchedThread waits([&] {
      EXPECT_EQ(rpoll(fds, 3, -1), 1);
      EXPECT_EQ(fds[1].revents, POLLIN);
    });
    EXPECT_TRUE(waits.AwaitSleep());
    ASSERT_EQ(write(pipes[1], "x", 1), 1);
    waits.join();
  }
  SendAll(client_, "y");
  fds[1].fd = -1;
  EXPECT_EQ(rpoll(fds, 3, kSoon), 1);
  EXPECT_EQ(fds[0].revents, POLLIN);
  fd_set set;
  FD_ZERO(&set);
  FD_SET(server_, &set);
  FD_SET(pipes[0], &set);
  timeval time = {.tv_sec = 20, .tv_usec = 0};
  EXPECT_EQ(
      rselect(std::max(server_, pipes[0]) + 1, &set, nullptr, nullptr, &time),
      2);
  close(pipes[0]);
  close(pipes[1]);
}

TEST_F(RsocketTest, OptionsAreKept) {
  MakeClient();
  const auto get = [&](int level, int name) {
    int value = -1;
    socklen_t length = sizeof(value);
    EXPECT_EQ(rgetsockopt(client_, level, name, &value, &length), 0);
    return value;
  };
  const auto set = [&](int level, int name, int value) {
    return rsetsockopt(client_, level, name, &value, sizeof(value));
  };
  EXPECT_EQ(set(SOL_SOCKET, SO_SNDBUF, 50000), 0);
  EXPECT_EQ(get(SOL_SOCKET, SO_SNDBUF), 100000);
  EXPECT_EQ(set(IPPROTO_TCP, TCP_NODELAY, 1), 0);
  EXPECT_EQ(get(IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(set(SOL_SOCKET, SO_KEEPALIVE, 1), 0);
  EXPECT_EQ(set(IPPROTO_TCP, TCP_KEEPIDLE, 0), -1);
  EXPECT_EQ(set(IPPROTO_TCP, TCP_KEEPIDLE, 1), 0);
  EXPECT_EQ(set(SOL_RDMA, RDMA_SQSIZE, 1), 0);
  EXPECT_EQ(get(SOL_RDMA, RDMA_SQSIZE), 16);
  EXPECT_EQ(set(SOL_RDMA, RDMA_IOMAPSIZE, 5), 0);
  EXPECT_EQ(get(SOL_RDMA, RDMA_IOMAPSIZE), 5);
  EXPECT_EQ(set(SOL_SOCKET, 12345, 1), -1);
  EXPECT_EQ(errno, ENOPROTOOPT);
  Connect();
  EXPECT_EQ(set(SOL_RDMA, RDMA_SQSIZE, 100), -1);
  EXPECT_EQ(errno, EINVAL);
  const std::string bytes = Pattern(kMuch);
  std::thread sends([&] { SendAll(client_, bytes); });
  EXPECT_TRUE(Receive(server_, kMuch) == bytes);
  sends.join();
}

TEST_F(RsocketTest, ATimeoutEndsWaiting) {
  Connect();
  const timeval time = {.tv_sec = 0, .tv_usec = 20000};
  ASSERT_EQ(rsetsockopt(server_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)),
            0);
  char byte;
  EXPECT_EQ(rrecv(server_, &byte, 1, 0), -1);
  EXPECT_EQ(errno, EAGAIN);
}

// Some programs mean "never" by the largest number.
TEST_F(RsocketTest, AHugeTimeoutDoesNotEndWaiting) {
  Connect();
  const timeval time = {.tv_sec = std::numeric_limits<time_t>::max(),
                        .tv_usec = 0};
  ASSERT_EQ(rsetsockopt(server_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)),
            0);
  char byte;
  rxe_user::WatchedThread reads(
      [&] { EXPECT_EQ(rrecv(server_, &byte, 1, 0), 1); });
  EXPECT_TRUE(reads.AwaitSleep());
  SendAll(client_, "x");
  reads.join();
  rxe_user::WatchedThread selects([&] {
    fd_set read;
    FD_ZERO(&read);
    FD_SET(server_, &read);
    timeval limit = time;
    EXPECT_EQ(rselect(server_ + 1, &read, nullptr, nullptr, &limit), 1);
  });
  EXPECT_TRUE(selects.AwaitSleep());
  SendAll(client_, "x");
  selects.join();
}

// A connection is often closed, and waits, in a destructor of its thread.
TEST_F(RsocketTest, ThreadsThatWaitInTheirDestructorsLeaveNothing) {
  Connect();
  const timeval soon = {.tv_sec = 0, .tv_usec = 1000};
  ASSERT_EQ(rsetsockopt(client_, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)),
            0);
  pthread_key_t key;
  ASSERT_EQ(pthread_key_create(&key,
                               [](void* client) {
                                 char byte;
                                 const int fd = *static_cast<int*>(client);
                                 EXPECT_EQ(rrecv(fd, &byte, 1, 0), -1);
                                 EXPECT_EQ(errno, EAGAIN);
                               }),
            0);
  const auto count = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = count();
  for (int i = 0; i < 20; ++i) {
    std::thread([&] {
      char byte;
      EXPECT_EQ(rrecv(client_, &byte, 1, 0), -1);
      EXPECT_EQ(pthread_setspecific(key, &client_), 0);
    }).join();
  }
  EXPECT_EQ(count(), before);
  EXPECT_EQ(pthread_key_delete(key), 0);
}

// The sockets of this program with small descriptor numbers, without the
// rtnetlink sockets of libnl.
std::vector<int> SmallSockets() {
  std::vector<int> sockets;
  for (int fd = 0; fd < 512; ++fd) {
    int domain;
    socklen_t length = sizeof(domain);
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 &&
        domain != AF_NETLINK) {
      sockets.push_back(fd);
    }
  }
  return sockets;
}
const std::vector<int> inherited_sockets = SmallSockets();

// select(2) is limited to 1,024, and some programs only accept small numbers.
// An rsocket needs no socket of its own, so all sockets are the library's
// shared ones.
TEST_F(RsocketTest, SharedSocketsHaveLargeNumbers) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_cur < 1024) GTEST_SKIP() << "there is no room";
  Connect();
  EXPECT_EQ(SmallSockets(), inherited_sockets);
}

TEST_F(RsocketTest, NumbersThatAreNoSockets) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  for (const int fd : {-1, pipes[0], 1 << 30}) {
    char byte;
    EXPECT_EQ(rrecv(fd, &byte, 1, 0), -1);
    EXPECT_EQ(errno, EBADF);
    EXPECT_EQ(rclose(fd), -1);
    EXPECT_EQ(errno, EBADF);
    EXPECT_EQ(rlisten(fd, 1), -1);
    EXPECT_EQ(errno, EBADF);
  }
  close(pipes[0]);
  close(pipes[1]);
  EXPECT_EQ(rsocket(AF_UNIX, SOCK_STREAM, 0), -1);
  EXPECT_EQ(rsocket(AF_INET, SOCK_RAW, 0), -1);
}

// Nothing remains of a socket that was closed with close(2).
TEST_F(RsocketTest, ANumberThatWasClosedOtherwise) {
  MakeClient();
  const int old = client_;
  ASSERT_EQ(close(old), 0);
  MakeClient();
  ASSERT_EQ(client_, old);
  Connect();
  SendAll(server_, "a");
  EXPECT_EQ(Events(client_, POLLIN, kSoon), POLLIN);
  EXPECT_EQ(Receive(client_, 1), "a");
}

TEST_F(RsocketTest, CallsInTheWrongState) {
  MakeClient();
  char byte = 0;
  EXPECT_EQ(rrecv(client_, &byte, 1, 0), -1);
  EXPECT_EQ(errno, ENOTCONN);
  EXPECT_EQ(rsend(client_, &byte, 1, 0), -1);
  EXPECT_EQ(errno, ENOTCONN);
  EXPECT_EQ(rshutdown(client_, SHUT_RDWR), -1);
  EXPECT_EQ(errno, ENOTCONN);
  EXPECT_EQ(raccept(client_, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  Connect();
  const LoopbackAddress address(AF_INET, port_);
  EXPECT_EQ(rconnect(client_, address.get(), address.length), -1);
  EXPECT_EQ(errno, EISCONN);
  EXPECT_EQ(rconnect(client_, address.get(), 3), -1);
  EXPECT_EQ(errno, EINVAL);
}

// --- Memory of the peer.

class IomapTest : public RsocketTest {
 protected:
  void ConnectWithMappings(int count) {
    MakeClient();
    Listen();
    for (const int fd : {client_, listener_}) {
      ASSERT_EQ(
          rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &count, sizeof(count)), 0);
    }
    Connect();
  }
  // The client has a mapping when it has read this message.
  void Tell() {
    SendAll(server_, "m");
    ASSERT_EQ(Receive(client_, 1), "m");
  }
};

TEST_F(IomapTest, ManyBytesAreWrittenWhereTheyBelong) {
  ConnectWithMappings(2);
  std::string memory(1 << 20, '\0');
  ASSERT_EQ(riomap(server_, memory.data(), memory.size(), PROT_WRITE, 0, 4096),
            4096);
  Tell();
  const std::string bytes = Pattern(memory.size() - 100);
  ASSERT_EQ(riowrite(client_, bytes.data(), bytes.size(), 4196, 0),
            bytes.size());
  SendAll(client_, "d");
  ASSERT_EQ(Receive(server_, 1), "d");
  EXPECT_TRUE(memory.substr(100) == bytes);
  EXPECT_EQ(memory.substr(0, 100), std::string(100, '\0'));
  EXPECT_EQ(riounmap(server_, memory.data(), memory.size()), 0);
  EXPECT_EQ(riounmap(server_, memory.data(), memory.size()), -1);
}

TEST_F(IomapTest, BeyondTheMappingsNothingIsWritten) {
  ConnectWithMappings(1);
  std::string memory(100, '\0');
  ASSERT_EQ(riomap(server_, memory.data(), 100, PROT_WRITE, 0, 0), 0);
  EXPECT_EQ(riomap(server_, memory.data(), 100, PROT_WRITE, 0, 1000), -1);
  EXPECT_EQ(errno, ENOMEM);
  Tell();
  EXPECT_EQ(riowrite(client_, "0123456789", 10, 95, 0), 5u);
  EXPECT_EQ(riowrite(client_, "0123456789", 10, 100, 0),
            static_cast<size_t>(-1));
  EXPECT_EQ(errno, EINVAL);
}

// Waiting threads get the error of their own end.
TEST_F(RsocketTest, AnEndWhoseQueuePairCannotBeMade) {
  const int too_much = 1 << 20;
  Listen();
  MakeClient();
  ASSERT_EQ(
      rsetsockopt(client_, SOL_RDMA, RDMA_INLINE, &too_much, sizeof(too_much)),
      0);
  const LoopbackAddress address(AF_INET, port_);
  EXPECT_EQ(rconnect(client_, address.get(), address.length), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rclose(client_), 0);

  MakeClient();
  ASSERT_EQ(rsetsockopt(listener_, SOL_RDMA, RDMA_INLINE, &too_much,
                        sizeof(too_much)),
            0);
  SetNonblocking(client_, true);
  ASSERT_EQ(rconnect(client_, address.get(), address.length), -1);
  ASSERT_EQ(errno, EINPROGRESS);
  while (Events(listener_, POLLIN, 1) == 0) Events(client_, POLLOUT);
  EXPECT_EQ(raccept(listener_, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  // The other end fails, too.
  EXPECT_NE(Events(client_, POLLOUT, kSoon), 0);
  int error = 0;
  socklen_t length = sizeof(error);
  ASSERT_EQ(rgetsockopt(client_, SOL_SOCKET, SO_ERROR, &error, &length), 0);
  EXPECT_EQ(error, ECONNREFUSED);
}

// --- Another process.

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
    // It sleeps meanwhile.
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
