// The descriptors of a memory port's rings and listeners: limits, shortages,
// and connections of other users.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rxe_user/base/close_elsewhere.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/ports/memory_port.h"
#include "rxe_user/ports/memory_port_fixture.h"
#include "rxe_user/testing/descriptors.h"
#include "rxe_user/testing/refused_calls.h"

namespace rxe_user {
namespace {

// --- Descriptors.

// A child process that keeps the sockets open, since it does not run fork
// guards.
class Keeper {
 public:
  // fork(2) that runs no handlers; arm64 has no call of that name.
  Keeper()
      : child_(static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr,
                                            nullptr, nullptr, nullptr))) {
    if (child_ == 0) {
      for (;;) ::pause();
    }
  }
  ~Keeper() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  const pid_t child_;
};

// Low descriptors are left to the program, which may use select(2).
TEST_F(MemoryPortTest, ARingTakesNoLowNumbers) {
  const auto flow = FlowOf(a_, b_);
  const SoftLimit limit(512);
  SendFirst(a_, *flow);
  for (int i = 0; i < 10; ++i) {
    Run(a_);
    Run(b_);
  }
  EXPECT_NE(a_.port->Begin(*flow), nullptr);
  EXPECT_EQ(CountRings(), 0);
}

// Rings use only a part of the soft limit of descriptors. Further peers get
// their packets by UDP.
TEST_F(MemoryPortTest, RingsLeaveDescriptorsToTheProgram) {
  const SoftLimit limit(1040);
  std::array<Lane, 40> lanes;
  std::vector<std::unique_ptr<transport::Flow>> flows;
  for (size_t i = 0; i < lanes.size(); ++i) {
    Open(&lanes[i], ("127.0.1." + std::to_string(i + 1)).c_str(),
         static_cast<uint16_t>(10 + i));
    flows.push_back(FlowOf(lanes[i], b_));
    SendFirst(lanes[i], *flows.back());
    for (int turn = 0; turn < 3; ++turn) {
      Run(lanes[i]);
      Run(b_);
    }
    Run(lanes[i]);
  }
  test_now += MemoryPort::kPause;
  size_t rings = 0;
  for (size_t i = 0; i < lanes.size(); ++i) {
    ASSERT_TRUE(Send(lanes[i], *flows[i], 32, 2));
    rings += UsesMemory(lanes[i], b_) ? 1 : 0;
  }
  EXPECT_EQ(rings, 1040u / 16 / 2);  // both ends are in this process
}

// The control thread used to run endlessly.
TEST_F(MemoryPortTest, ShortDescriptorsAreWaitedFor) {
  const auto flow = FlowOf(a_, b_);
  SendFirst(a_, *flow);
  Run(a_);
  Port::ControlTask& task = *b_.port->control_task();
  ASSERT_TRUE(IsReadable(task.fd()));
  bool refused = false;
  std::thread([&] {
    refused = RefuseCall(SYS_accept4, EMFILE);
    if (refused) Run(b_);
  }).join();
  if (!refused) GTEST_SKIP() << "no seccomp filters here";
  EXPECT_EQ(task.fd(), -1);
  EXPECT_LT(task.time(), Port::ControlTask::Clock::time_point::max());
  // When descriptors are available, the control thread continues.
  EXPECT_TRUE(Work([&] { return a_.port->Begin(*flow) == nullptr; }));
  EXPECT_NE(task.fd(), -1);
}

// A connection that waits in a listener may be another user's, and closing it
// may block.
TEST_F(MemoryPortTest, AListenerIsKeptWhileDescriptorsAreShort) {
  SendFirst(a_, *FlowOf(a_, b_));
  Run(a_);
  bool refused = false;
  std::thread([&] {
    refused = RefuseCall(SYS_accept4, EMFILE);
    if (refused) b_.port->RemoveReceiver(b_.local.address);
  }).join();
  if (!refused) GTEST_SKIP() << "no seccomp filters here";
  // The waiting control thread is woken.
  Port::ControlTask& task = *b_.port->control_task();
  EXPECT_TRUE(IsReadable(task.fd()));
  Run(b_);
  EXPECT_NE(task.fd(), -1);
  EXPECT_FALSE(IsReadable(task.fd()));
}

// A closed listener used to stay in the epoll set, so that the control thread
// never slept again.
TEST_F(MemoryPortTest, AClosedListenerIsNotWatched) {
  const Keeper keeper;
  a_.port->RemoveReceiver(a_.local.address);
  const auto flow = FlowOf(b_, a_);
  SendFirst(b_, *flow);
  Run(b_);
  EXPECT_FALSE(IsReadable(a_.port->control_task()->fd()));
  EXPECT_FALSE(UsesMemory(b_, a_));
}

TEST_F(MemoryPortTest, AClosedConnectionIsNotWatched) {
  const auto flow = FlowOf(a_, b_);
  Join(*flow);
  const Keeper keeper;
  b_.port.reset();
  ASSERT_TRUE(Work([&] { return !UsesMemory(a_, b_); }));
  Run(a_);
  EXPECT_FALSE(IsReadable(a_.port->control_task()->fd()));
}

// A socket that was reported readable may have no data (select(2), "BUGS").
TEST_F(MemoryPortTest, ASocketThatHasNothingIsAskedAgain) {
  const auto flow = FlowOf(a_, b_);
  SendFirst(a_, *flow);
  Run(a_);
  Run(b_);  // accepts
  bool refused = false;
  std::thread([&] {
    refused = RefuseCall(SYS_recvmsg, EAGAIN);
    if (refused) Run(b_);
  }).join();
  if (!refused) GTEST_SKIP() << "no seccomp filters here";
  EXPECT_TRUE(Work([&] { return a_.port->Begin(*flow) == nullptr; }));
}

// --- Other users.

sockaddr_un NameOf(const char* address, int slot, socklen_t* size) {
  const std::string text =
      std::string("rxe_user-memory-") + address + "-0-" + std::to_string(slot);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, text.data(), text.size());
  *size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

// A process of another user that connects to a lane, and leaves a descriptor in
// the connection whose last close takes minutes.
class ForeignClient {
 public:
  ForeignClient(const char* address, int slot) {
    int said[2];
    EXPECT_EQ(::pipe2(said, O_CLOEXEC), 0);
    child_ = ::fork();
    if (child_ == 0) {
      socklen_t size;
      const sockaddr_un name = NameOf(address, slot, &size);
      const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
      UniqueFd slow = SlowToClose();
      const uint8_t byte = 0;
      if (::setresuid(12345, 12345, 12345) == 0 &&
          ::connect(fd, reinterpret_cast<const sockaddr*>(&name), size) == 0 &&
          SendWithDescriptors(fd, {&byte, 1}, {slow.get()})) {
        slow.Reset();  // not the last close
        (void)!::write(said[1], &byte, 1);
      }
      for (;;) ::pause();
    }
    ::close(said[1]);
    char byte;
    EXPECT_EQ(::read(said[0], &byte, 1), 1);
    ::close(said[0]);
  }
  ~ForeignClient() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  pid_t child_;
};

// The number of this process's descriptors that are sockets.
int CountSockets() {
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    count += target.string().starts_with("socket:") ? 1 : 0;
  }
  return count;
}

// Waits for `call`, which runs in another thread. False if it has not returned
// after ten seconds.
bool Returns(std::future<void>* call) {
  return call->wait_for(std::chrono::seconds(10)) == std::future_status::ready;
}

TEST_F(MemoryPortTest, AnAddressIsRemovedInSpiteOfAnotherUsersConnection) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  std::future<void> removed;
  const ForeignClient foreign("127.0.0.1", a_.slot);
  removed = std::async(std::launch::async,
                       [this] { a_.port->RemoveReceiver(a_.local.address); });
  EXPECT_TRUE(Returns(&removed));
}

TEST_F(MemoryPortTest, ALaneIsClosedInSpiteOfAnotherUsersConnection) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  std::future<void> closed;
  const ForeignClient foreign("127.0.0.1", a_.slot);
  closed = std::async(std::launch::async, [this] { a_.port.reset(); });
  EXPECT_TRUE(Returns(&closed));
}

// Other users' connections used to stay open for ever. This must be the last
// test: after it, nothing can be closed.
TEST_F(MemoryPortTest, OtherUsersConnectionsAreKeptInTheListener) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  // Start the processes first: if one inherited a copy of a slow socket,
  // closing ours would return at once.
  const ForeignClient clients[] = {ForeignClient("127.0.0.1", a_.slot),
                                   ForeignClient("127.0.0.1", a_.slot),
                                   ForeignClient("127.0.0.1", a_.slot)};
  // The other end of each slow socket stays.
  const int before = CountSockets() + kMaxClosing;
  for (int i = 0; i < kMaxClosing; ++i) {
    UniqueFd slow = SlowToClose();
    ASSERT_TRUE(CloseElsewhere(slow));
  }
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (CountSockets() != before && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  ASSERT_EQ(CountSockets(), before) << "the threads do not close";
  a_.port->RemoveReceiver(a_.local.address);
  // One UDP socket less, one connection more.
  EXPECT_EQ(CountSockets(), before);
  Run(a_);
  EXPECT_EQ(a_.port->control_task()->fd(), -1);
  EXPECT_LT(a_.port->control_task()->time(),
            Port::ControlTask::Clock::time_point::max());
}

}  // namespace
}  // namespace rxe_user
