// Process-wide events: fork, exec, a limit on open files.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

// --- A limit on open files.

class FileLimitTest : public PairTest {
 protected:
  FileLimitTest() { make_pair_ = false; }

  // Runs `step`, which returns an errno value, with fewer open files than it
  // needs, down to none: it must fail each time. Then runs it with enough.
  void Starve(const char* name, const std::function<int()>& step) {
    rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    int error = EMFILE;
    for (int room = 0; error != 0 && room < 100; ++room) {
      const int lowest = dup(STDERR_FILENO);
      close(lowest);
      const rlimit tight = {static_cast<rlim_t>(lowest + room),
                            before.rlim_max};
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
      errno = 0;
      error = step();
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
      if (room == 0 || error != 0) {
        EXPECT_EQ(error, EMFILE) << name << " with room for " << room << ": "
                                 << std::strerror(error);
      }
    }
    EXPECT_EQ(error, 0) << name;
  }
  ibv_qp* StarveCreateQp(ibv_cq* cq) {
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq;
    init.cap = {1, 1, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    ibv_qp* qp = nullptr;
    Starve("ibv_create_qp", [&] {
      qp = ibv_create_qp(pd_, &init);
      return qp == nullptr ? errno : 0;
    });
    return qp;
  }
};

TEST_F(FileLimitTest, EveryStepFailsWithEmfile) {
  testing::internal::CaptureStderr();
  // Until then the device has no sockets.
  ibv_device** list = nullptr;
  Starve("ibv_get_device_list", [&] {
    list = ibv_get_device_list(nullptr);
    return list == nullptr ? errno : 0;
  });
  ASSERT_NE(list, nullptr);
  ASSERT_NE(list[0], nullptr);
  ibv_context* context = nullptr;
  Starve("ibv_open_device", [&] {
    context = ibv_open_device(list[0]);
    return context == nullptr ? errno : 0;
  });
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(ibv_close_device(context), 0);
  ibv_free_device_list(list);
  ibv_comp_channel* channel = nullptr;
  Starve("ibv_create_comp_channel", [&] {
    channel = ibv_create_comp_channel(context_);
    return channel == nullptr ? errno : 0;
  });
  ASSERT_NE(channel, nullptr);
  ibv_cq* cq = ibv_create_cq(context_, 4, nullptr, channel, 0);
  ASSERT_NE(cq, nullptr);
  ibv_qp* qp = StarveCreateQp(cq);
  ASSERT_NE(qp, nullptr);
  ToInit(qp);
  Starve("ibv_modify_qp", [&] {
    ibv_qp_attr attr = RtrAttributes(qp->qp_num);
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                             IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  });
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("ulimit -n"), std::string::npos) << said;
  // The message must not name a wrong cause.
  for (const char* wrong : {"no device", "to itself", "taken"}) {
    EXPECT_EQ(said.find(wrong), std::string::npos) << said;
  }
}

// Starts a process that uses the device until `*stop` is closed. Returns when
// it uses it.
pid_t StartAnotherUser(int* stop);

// A running port broker passes descriptors, which count too.
TEST_F(FileLimitTest, BesideAPortBrokerThatRuns) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's own allocator may hang in a child of fork";
#endif
  int stop = -1;
  const pid_t other = StartAnotherUser(&stop);
  ASSERT_GT(other, 0);
  testing::internal::CaptureStderr();
  ibv_cq* cq = ibv_create_cq(context_, 4, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  ibv_qp* qp = StarveCreateQp(cq);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  testing::internal::GetCapturedStderr();
  close(stop);
  int status = -1;
  EXPECT_EQ(waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
}

// --- exec.

// The descriptors that a newly executed program has.
std::string Inherited() {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    execl("/bin/ls", "ls", "/proc/self/fd", nullptr);
    _exit(99);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return text;
}

class ForkTest : public PairTest {
 protected:
  void SetUp() override {
    before_ = Inherited();
    PairTest::SetUp();
  }
  std::string before_;
};

TEST_F(ForkTest, ExecInTheMiddleOfTrafficInheritsNothing) {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> done{0};
  std::thread traffic([&] {
    for (uint64_t i = 0; !stop; ++i) {
      ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, i, 0, 20'000, IBV_SEND_SIGNALED,
                     b_.address(), b_.mr->rkey),
                0);
      ExpectSuccess(a_.cq, i);
      ++done;
    }
  });
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(Inherited(), before_);
    // Traffic continues.
    const uint64_t seen = done;
    const int64_t limit = NowMs() + kTimeoutMs;
    while (done == seen && NowMs() < limit) std::this_thread::yield();
    ASSERT_NE(done, seen);
  }
  stop = true;
  traffic.join();
}

// --- fork.

// Whether a queue pair can be created on a newly opened device. Calls
// `meanwhile` while it exists.
bool MakesItsOwn(const std::function<void()>& meanwhile = [] {}) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ibv_context* context = count > 0 ? ibv_open_device(list[0]) : nullptr;
  ibv_pd* pd = context == nullptr ? nullptr : ibv_alloc_pd(context);
  ibv_cq* cq =
      pd == nullptr ? nullptr : ibv_create_cq(context, 4, nullptr, nullptr, 0);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* qp = cq == nullptr ? nullptr : ibv_create_qp(pd, &init);
  if (qp != nullptr) meanwhile();
  return qp != nullptr && ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 &&
         ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0;
}

pid_t StartAnotherUser(int* stop) {
  int begun[2];
  int end[2];
  if (pipe2(begun, O_CLOEXEC) != 0 || pipe2(end, O_CLOEXEC) != 0) return -1;
  const pid_t child = fork();
  char byte = 0;
  if (child == 0) {
    close(end[1]);
    const bool made = MakesItsOwn([&] {
      (void)!write(begun[1], &byte, 1);
      (void)!read(end[0], &byte, 1);
    });
    _exit(made ? 0 : 1);
  }
  close(begun[1]);
  close(end[0]);
  const ssize_t n = read(begun[0], &byte, 1);
  close(begun[0]);
  *stop = end[1];
  return n == 1 ? child : -1;
}

// The parent's threads hold its locks at times. The child must not wait for
// them: it has none of the objects, but can create its own.
TEST_F(ForkTest, AChildNeitherHangsNorHasAnything) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's own allocator may hang in such a child";
#elif defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer ends such a child that starts threads";
#endif
  ibv_comp_channel* channel = ibv_create_comp_channel(context_);
  ASSERT_NE(channel, nullptr);
  Side c;
  MakeSide(&c, {}, 256, channel);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  // These threads take the locks of lookups, devices and objects.
  threads.emplace_back([&] {
    while (!stop) {
      ibv_free_device_list(ibv_get_device_list(nullptr));
      ibv_cq* cq = ibv_create_cq(context_, 1, nullptr, channel, 0);
      ASSERT_NE(cq, nullptr);
      ASSERT_EQ(ibv_destroy_cq(cq), 0);
    }
  });
  // This one takes those of rings and channels.
  threads.emplace_back([&] {
    ibv_wc wc;
    while (!stop) {
      ibv_req_notify_cq(c.cq, 0);
      ibv_poll_cq(c.cq, 1, &wc);
      ASSERT_EQ(ibv_resize_cq(c.cq, 256), 0);
    }
  });
  threads.emplace_back([&] {
    for (uint64_t i = 0; !stop; ++i) {
      ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, i, 0, 64, IBV_SEND_SIGNALED,
                     b_.address(), b_.mr->rkey),
                0);
      ExpectSuccess(a_.cq, i);
    }
  });
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      ibv_wc wc;
      ibv_cq* cq;
      void* cq_context;
      int wrong = 0;
      if (ibv_poll_cq(c.cq, 1, &wc) >= 0) wrong |= 1;
      if (ibv_req_notify_cq(c.cq, 0) == 0) wrong |= 2;
      if (ibv_get_cq_event(channel, &cq, &cq_context) == 0) wrong |= 4;
      if (Send(a_, IBV_WR_SEND, 0, 0, 0) == 0) wrong |= 8;
      if (ibv_alloc_pd(context_) != nullptr) wrong |= 16;
      // As clean-up code does.
      if (ibv_destroy_qp(c.qp) != 0 || ibv_destroy_cq(c.cq) != 0 ||
          ibv_dereg_mr(c.mr) != 0 || ibv_destroy_comp_channel(channel) != 0 ||
          ibv_close_device(context_) != 0) {
        wrong |= 32;
      }
      if (!MakesItsOwn()) wrong |= 64;
      _exit(wrong);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  DestroySide(&c);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(ForkTest, AChildPrintsTheReason) {
  testing::internal::CaptureStderr();
  const pid_t child = fork();
  if (child == 0) {
    // Clean-up prints nothing; any other use prints one line.
    ibv_destroy_qp(b_.qp);
    ibv_alloc_pd(context_);
    ibv_alloc_pd(context_);
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said,
            "rxe_user: the device was opened before fork() and stayed with the "
            "parent process; open it after forking\n");
}

// --- exit.

class ExitTest : public PairTest,
                 public ::testing::WithParamInterface<void (*)(int)> {
 protected:
  static constexpr uint64_t kRounds = 500;  // so that it counts as polling

  ExitTest() { make_pair_ = false; }

  // Another process that only polls, and ends as soon as it has received the
  // last message.
  [[noreturn]] void ReceiveAndExit(int from_parent, int to_parent) {
    alarm(60);
    context_ = nullptr;  // the parent's
    PairTest::SetUp();
    MakeSide(&b_);
    uint32_t peer = 0;
    if (HasFailure() ||
        write(to_parent, &b_.qp->qp_num, sizeof(peer)) != sizeof(peer) ||
        read(from_parent, &peer, sizeof(peer)) != sizeof(peer) ||
        ToRts(b_.qp, peer) != 0) {
      _exit(1);
    }
    for (uint64_t i = 0; i < 64; ++i) Receive(b_, i, 0, 8);
    (void)!write(to_parent, "", 1);
    for (uint64_t i = 0; i < kRounds; ++i) {
      ibv_wc wc;
      while (ibv_poll_cq(b_.cq, 1, &wc) == 0) {
      }
      if (i + 1 == kRounds) break;
      if (wc.status != IBV_WC_SUCCESS) _exit(2);
      Receive(b_, i, 0, 8);
    }
    GetParam()(0);
    std::abort();
  }
};

// With a network card the acknowledgement is sent before the program can see
// the completion.
TEST_P(ExitTest, ReceivedMessagesAreAcknowledged) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer does not bear such a child";
#endif
  for (int round = 0; round < 5; ++round) {
    int to_child[2];
    int to_parent[2];
    ASSERT_EQ(pipe2(to_child, O_CLOEXEC), 0);
    ASSERT_EQ(pipe2(to_parent, O_CLOEXEC), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) ReceiveAndExit(to_child[0], to_parent[1]);
    MakeSide(&a_);
    uint32_t peer = 0;
    char ready = 0;
    ASSERT_EQ(read(to_parent[0], &peer, sizeof(peer)), 4);
    ASSERT_EQ(ToRts(a_.qp, peer), 0);
    ASSERT_EQ(write(to_child[1], &a_.qp->qp_num, sizeof(peer)), 4);
    ASSERT_EQ(read(to_parent[0], &ready, 1), 1);
    for (uint64_t i = 0; i < kRounds; ++i) {
      ASSERT_EQ(Send(a_, IBV_WR_SEND, i, 0, 8), 0);
      ExpectSuccess(a_.cq, i);
      ASSERT_FALSE(HasFailure()) << i;
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    DestroySide(&a_);
    for (const int fd :
         {to_child[0], to_child[1], to_parent[0], to_parent[1]}) {
      close(fd);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, ExitTest,
                         ::testing::Values(&std::exit, &std::quick_exit),
                         [](const auto& info) {
                           return info.index == 0 ? "Exit" : "QuickExit";
                         });

}  // namespace
}  // namespace conformance
