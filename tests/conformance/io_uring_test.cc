// RXE_USER_IO=auto, uring and uring-sqpoll: a program sees no difference except
// a descriptor, and not even that where the system refuses io_uring.
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "rxe_user/testing/refused_calls.h"
#include "rxe_user/testing/ring_descriptors.h"
#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

using rxe_user::RingDescriptors;

class IoUringTest : public PairTest {
 protected:
  void SetUp() override {
    setenv("RXE_USER_IO", io(), 1);
    testing::internal::CaptureStderr();
    PairTest::SetUp();
  }
  void TearDown() override {
    PairTest::TearDown();
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  }

  virtual const char* io() const { return "uring"; }

  // From either end to the other, and back by READ.
  void ExpectTraffic() {
    for (uint64_t i = 1; i <= 20; ++i) {
      a_.memory[0] = static_cast<uint8_t>(i);
      ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, i, 0, 100'000, IBV_SEND_SIGNALED,
                     b_.address(), b_.mr->rkey),
                0);
      ExpectSuccess(a_.cq, i);
      EXPECT_EQ(b_.memory[0], i);
      ASSERT_EQ(Send(b_, IBV_WR_RDMA_READ, i, 0, 100'000, IBV_SEND_SIGNALED,
                     a_.address(), a_.mr->rkey),
                0);
      ExpectSuccess(b_.cq, i);
    }
  }
};

class AutoTest : public IoUringTest {
 protected:
  const char* io() const override { return "auto"; }
};

class SocketsTest : public IoUringTest {
 protected:
  const char* io() const override { return "sockets"; }
};

// The first test, since rings stay open after their lanes.
TEST_F(SocketsTest, HasNoRing) {
  ExpectTraffic();
  EXPECT_EQ(RingDescriptors(), std::vector<int>());
}

// The second one.
TEST_F(AutoTest, ALaneHasARingAmongTheHighDescriptors) {
  if (syscall(SYS_io_uring_setup, 0, nullptr) != -1 ||
      (errno != EINVAL && errno != EFAULT)) {
    GTEST_SKIP() << "no io_uring here";
  }
  ExpectTraffic();
  const std::vector<int> rings = RingDescriptors();
  ASSERT_FALSE(rings.empty());
  for (const int ring : rings) EXPECT_GE(ring, 512);
}

TEST_F(IoUringTest, CarriesTraffic) { ExpectTraffic(); }

TEST_F(AutoTest, BulkAndSmallMessagesTakeTurns) {
  for (uint64_t turn = 1; turn < 4; ++turn) {
    ExpectTraffic();
    for (uint64_t i = 1; i <= 100; ++i) {
      a_.memory[0] = static_cast<uint8_t>(i * turn);
      ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, i, 0, 8, IBV_SEND_SIGNALED,
                     b_.address(), b_.mr->rkey),
                0);
      ExpectSuccess(a_.cq, i);
      EXPECT_EQ(b_.memory[0], a_.memory[0]);
    }
  }
}

struct Refusal {
  const char* name;
  const char* io;
  long call;
  int error;
};

// The environment variable by which a program with a refused call gets its
// RXE_USER_IO.
constexpr char kRefused[] = "RXE_USER_TEST_REFUSED";

class RefusedProgram : public IoUringTest {
  const char* io() const override { return std::getenv(kRefused); }
  void TestBody() override {
    ExpectTraffic();
    EXPECT_EQ(RingDescriptors(), std::vector<int>());
  }
};

[[maybe_unused]] const testing::TestInfo* const kRefusedProgram =
    std::getenv(kRefused) == nullptr
        ? nullptr
        : testing::RegisterTest(
              "RefusedProgram", "Runs", nullptr, nullptr, __FILE__, __LINE__,
              []() -> RefusedProgram* { return new RefusedProgram; });

// Datagrams of any size go by the ring alone. Without the ring this program
// would have no traffic at all.
class OnlyRingProgram : public IoUringTest {
  void TestBody() override {
    ExpectTraffic();
    for (uint64_t i = 1; i <= 100; ++i) {
      ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, i, 0, 8, IBV_SEND_SIGNALED,
                     b_.address(), b_.mr->rkey),
                0);
      ExpectSuccess(a_.cq, i);
    }
  }
};

constexpr char kOnlyRing[] = "RXE_USER_TEST_ONLY_RING";

[[maybe_unused]] const testing::TestInfo* const kOnlyRingProgram =
    std::getenv(kOnlyRing) == nullptr
        ? nullptr
        : testing::RegisterTest(
              "OnlyRingProgram", "Runs", nullptr, nullptr, __FILE__, __LINE__,
              []() -> OnlyRingProgram* { return new OnlyRingProgram; });

TEST_F(IoUringTest, NoDatagramGoesByAPlainCall) {
  if (RingDescriptors().empty()) GTEST_SKIP() << "no io_uring here";
  const pid_t child = fork();
  if (child == 0) {
    if (!rxe_user::RefuseDatagramCalls(EPERM)) _exit(1);
    ::setenv(kOnlyRing, "1", 1);
    execl("/proc/self/exe", "io_uring_test", "--gtest_filter=OnlyRingProgram.*",
          nullptr);
    _exit(1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

class RefusedIoUringTest : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedIoUringTest, SocketsServeWithoutAWord) {
  const pid_t child = fork();
  if (child == 0) {
    if (!rxe_user::RefuseCall(GetParam().call, GetParam().error)) _exit(1);
    ::setenv(kRefused, GetParam().io, 1);
    execl("/proc/self/exe", "io_uring_test", "--gtest_filter=RefusedProgram.*",
          nullptr);
    _exit(1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// EPERM of io_uring_setup is what kernel.io_uring_disabled gives, too.
INSTANTIATE_TEST_SUITE_P(
    , RefusedIoUringTest,
    testing::Values(Refusal{"Setup", "uring", SYS_io_uring_setup, EPERM},
                    Refusal{"SetupAuto", "auto", SYS_io_uring_setup, EPERM},
                    Refusal{"SetupUnknown", "uring", SYS_io_uring_setup,
                            ENOSYS},
                    Refusal{"SetupMemory", "uring", SYS_io_uring_setup, ENOMEM},
                    Refusal{"Register", "uring", SYS_io_uring_register, EPERM},
                    Refusal{"Enter", "uring", SYS_io_uring_enter, EPERM}),
    [](const auto& info) { return info.param.name; });

class NoLockedMemoryTest : public IoUringTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before_), 0);
    const rlimit none = {0, before_.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    IoUringTest::SetUp();
  }
  void TearDown() override {
    IoUringTest::TearDown();
    EXPECT_EQ(setrlimit(RLIMIT_MEMLOCK, &before_), 0);
  }

 private:
  rlimit before_{};
};

// Whether rings count against the limit depends on the kernel.
TEST_F(NoLockedMemoryTest, RingOrSocketsServeWithoutAWord) { ExpectTraffic(); }

class SqpollTest : public IoUringTest {
 protected:
  const char* io() const override { return "uring-sqpoll"; }
};

TEST_F(SqpollTest, CarriesTraffic) { ExpectTraffic(); }

}  // namespace
}  // namespace conformance
