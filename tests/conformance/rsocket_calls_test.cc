// rsocket(7): errno, waiting, options, descriptors, wrong calls, and the peer's
// memory (riomap).
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <climits>
#include <filesystem>
#include <iterator>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "rxe_user/testing/watched_thread.h"
#include "tests/conformance/rsocket_fixture.h"

namespace conformance {
namespace {

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

TEST_F(RsocketTest, TheDescriptorsFlagsAreTheKernels) {
  MakeClient();
  EXPECT_EQ(rfcntl(client_, F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(rfcntl(client_, F_SETFD, 0), 0);
  EXPECT_EQ(rfcntl(client_, F_GETFD), 0);
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

TEST_F(IomapTest, NothingIsWrittenBeyondTheMappings) {
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

}  // namespace
}  // namespace conformance
