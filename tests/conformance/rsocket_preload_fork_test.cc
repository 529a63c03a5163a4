// Children of a program under librspreload.so, and their sockets.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "rxe_user/testing/watched_thread.h"
#include "tests/conformance/rsocket_preload_fixture.h"

namespace {

// How many threads this thread can still start.
thread_local int threads_left = 1000;

}  // namespace

// Replaces the C library's function.
extern "C" __attribute__((visibility("default"))) int pthread_create(
    pthread_t* thread, const pthread_attr_t* attr, void* (*start)(void*),
    void* argument) {
  if (threads_left-- == 0) {
    threads_left = 0;
    return EAGAIN;
  }
  static const auto real = reinterpret_cast<decltype(&pthread_create)>(
      dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attr, start, argument);
}

namespace conformance {
namespace {

// Two threads that fork meet in a handler: the first one waits until the other
// one is there as well, or blocked.
std::atomic<bool> forks_meet = false;
std::atomic<pid_t> forking[2] = {0, 0};
std::atomic<bool> first_is_there = false;
std::atomic<bool> both_are_there = false;

void Meet() {
  if (!forks_meet) return;
  if (first_is_there.exchange(true)) {
    both_are_there = true;
    return;
  }
  const int other = forking[0] == gettid() ? 1 : 0;
  while (forking[other] == 0) std::this_thread::yield();
  rxe_user::AwaitSleep(forking[other], both_are_there);
}

// Called between the handlers of librspreload.so, which the first socket
// registers, and those of the libraries.
const bool meets = [] {
  if (!kPreloads || std::getenv("LD_PRELOAD") == nullptr) return false;
  const auto create = reinterpret_cast<void* (*)()>(
      dlsym(RTLD_DEFAULT, "rdma_create_event_channel"));
  return create != nullptr && create() != nullptr &&
         pthread_atfork(&Meet, nullptr, nullptr) == 0;
}();

// A child of vfork shares its parent's memory, but what it closes and
// duplicates is its own.
TEST_F(PreloadTest, AChildOfVforkChangesNothing) {
  Connect();
  const int number = fcntl(server_, F_DUPFD_CLOEXEC, 300);
  ASSERT_GE(number, 300);
  ASSERT_EQ(close(number), 0);
  const int server = server_, epoll = epoll_;
  Add(server, EPOLLIN);
  const pid_t child = vfork();
  if (child == 0) {
    dup2(server, number);
    close(server);
    close(epoll);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(write(number, "x", 1), -1);
  EXPECT_EQ(errno, EBADF);
  Send(client_, "hello");
  ExpectAll({server_}, EPOLLIN);
  EXPECT_EQ(Receive(server_, 5), "hello");
  ASSERT_EQ(close(std::exchange(server_, -1)), 0);
  EXPECT_EQ(Receive(client_, 1), "");
}

// A child that libc does not know of, with its own copy of the memory, is
// independent.
TEST_F(PreloadTest, AChildOfCloneHasItsOwnDescriptors) {
  Connect();
  const int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(zero, 0);
  const auto child =
      static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  ASSERT_GE(child, 0);
  if (child == 0) {
    char byte = 'x';
    if (dup2(zero, server_) != server_) _exit(1);
    _exit(read(server_, &byte, 1) == 1 && byte == 0 ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(close(zero), 0);
  Send(client_, "hello");
  EXPECT_EQ(Receive(server_, 5), "hello");
}

// Other threads are in calls when one forks.
TEST_F(PreloadTest, BytesStayInOrderWhenAnotherThreadForks) {
  constexpr int kRounds = 30;
  for (int i = 0; i < kRounds && !HasFailure(); ++i) {
    Connect();
    rxe_user::WatchedThread reads([&] {
      std::string got;
      char byte;
      while (recv(server_, &byte, 1, 0) == 1) got += byte;
      EXPECT_EQ(got, "0123456789") << "round " << i;
    });
    ASSERT_TRUE(reads.AwaitSleep());
    const pid_t child = fork();
    if (child == 0) _exit(0);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    for (char byte = '0'; byte <= '9'; ++byte) Send(client_, {byte});
    EXPECT_EQ(shutdown(client_, SHUT_WR), 0);
    reads.join();
    for (int* const fd : {&client_, &server_}) {
      EXPECT_EQ(close(std::exchange(*fd, -1)), 0);
    }
  }
}

TEST_F(PreloadTest, PollingDuringAForkSeesData) {
  constexpr int kRounds = 30;
  for (int i = 0; i < kRounds && !HasFailure(); ++i) {
    Connect();
    rxe_user::WatchedThread polls(
        [&] { EXPECT_EQ(Poll(server_, POLLIN), POLLIN) << "round " << i; });
    ASSERT_TRUE(polls.AwaitSleep());
    const pid_t child = fork();
    if (child == 0) _exit(0);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    Send(client_, "a");
    polls.join();
    EXPECT_EQ(Receive(server_, 1), "a");
    for (int* const fd : {&client_, &server_}) {
      EXPECT_EQ(close(std::exchange(*fd, -1)), 0);
    }
  }
}

TEST_F(PreloadTest, TwoThreadsForkAtTheSameTime) {
  ASSERT_TRUE(meets);
  Connect();
  forks_meet = true;
  const auto forks = [](std::atomic<pid_t>& self) {
    self = gettid();
    const pid_t child = fork();
    if (child == 0) _exit(0);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  };
  std::thread one([&] { forks(forking[0]); });
  std::thread two([&] { forks(forking[1]); });
  one.join();
  two.join();
  forks_meet = false;
  EXPECT_TRUE(first_is_there);
  for (const auto& [from, to] :
       {std::pair(server_, client_), std::pair(client_, server_)}) {
    Send(from, "hello");
    ASSERT_EQ(Poll(to, POLLIN), POLLIN);
    EXPECT_EQ(Receive(to, 5), "hello");
  }
}

// The connections that no thread carries end; the program goes on.
TEST_F(PreloadTest, NoThreadCanBeStartedAfterAFork) {
  sigset_t mask, later;
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &mask), 0);
  for (const int left : {0, 1, 2, 3}) {
    Connect();
    threads_left = left;
    const pid_t child = fork();
    if (child == 0) _exit(0);
    threads_left = 1000;
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &later), 0);
    EXPECT_EQ(sigismember(&later, SIGTERM), sigismember(&mask, SIGTERM));
    for (int* const fd : {&client_, &server_}) {
      char byte;
      EXPECT_NE(Poll(*fd, POLLIN), 0) << left;
      EXPECT_LE(recv(*fd, &byte, 1, 0), 0) << left;
    }
    for (int* const fd : {&client_, &server_}) {
      EXPECT_EQ(close(std::exchange(*fd, -1)), 0);
    }
  }
  Connect();
  Send(client_, "a");
  EXPECT_EQ(Receive(server_, 1), "a");
}

// Otherwise the children would not see that the parent has ended.
TEST_F(PreloadTest, LaterChildrenHaveNoEndsOfEarlierOnes) {
  Connect();
  int before = -1;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      int local = 0;
      for (int fd = 0; fd < 1024; ++fd) {
        int domain = 0;
        socklen_t length = sizeof(domain);
        local += getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 &&
                 domain == AF_UNIX;
      }
      _exit(local);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (i == 0) before = WEXITSTATUS(status);
    EXPECT_EQ(WEXITSTATUS(status), before);
  }
  EXPECT_GT(before, 0);
}

// Time-outs apply to the program, not to the carrying threads.
TEST_F(PreloadTest, ConnectionsThatForkSharesKeepTheirTimeouts) {
  Listen();
  const timeval timeout = {.tv_sec = 0, .tv_usec = 50000};
  ASSERT_EQ(
      setsockopt(listener_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)),
      0);
  Connect();
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(Poll(server_, POLLIN, 200), 0) << "it has ended";
  char byte;
  EXPECT_EQ(recv(server_, &byte, 1, 0), -1);
  EXPECT_EQ(errno, EAGAIN);
  Send(client_, "a");
  EXPECT_EQ(Poll(server_, POLLIN), POLLIN);
  EXPECT_EQ(Receive(server_, 1), "a");
}

// Non-blocking connections are carried by blocking threads.
TEST_F(PreloadTest, NonblockingConnectionsAreCarried) {
  constexpr size_t kMuch = 3 << 20;
  Connect();
  ASSERT_EQ(fcntl(server_, F_SETFL, O_NONBLOCK), 0);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(fcntl(server_, F_SETFL, 0), 0);
  const std::string bytes(kMuch, 'a');
  for (const auto& [from, to] :
       {std::pair(server_, client_), std::pair(client_, server_)}) {
    std::thread sends([&, fd = from] { Send(fd, bytes); });
    EXPECT_TRUE(Receive(to, kMuch) == bytes);
    sends.join();
  }
}

}  // namespace
}  // namespace conformance
