// RXE_USER_IO=uring: a program sees no difference, but for a descriptor, and
// none where the system refuses io_uring.
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "rxe_user/testing/refused_calls.h"
#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

// The numbers of this process's descriptors of rings.
std::vector<int> Rings() {
  std::vector<int> rings;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (std::filesystem::read_symlink(entry.path(), error) ==
        "anon_inode:[io_uring]") {
      rings.push_back(std::stoi(entry.path().filename()));
    }
  }
  return rings;
}

class IoUringTest : public PairTest {
 protected:
  void SetUp() override {
    setenv("RXE_USER_IO", "uring", 1);
    testing::internal::CaptureStderr();
    PairTest::SetUp();
  }
  void TearDown() override {
    PairTest::TearDown();
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  }

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

TEST_F(IoUringTest, ALaneHasARingAmongTheHighDescriptors) {
  if (syscall(SYS_io_uring_setup, 0, nullptr) != -1 ||
      (errno != EINVAL && errno != EFAULT)) {
    GTEST_SKIP() << "no io_uring here";
  }
  ExpectTraffic();
  const std::vector<int> rings = Rings();
  ASSERT_FALSE(rings.empty());
  for (const int ring : rings) EXPECT_GE(ring, 512);
}

// For the rest of this program.
class RefusedIoUringTest : public IoUringTest,
                           public testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(rxe_user::RefuseCall(SYS_io_uring_setup, GetParam()));
    IoUringTest::SetUp();
  }
};

TEST_P(RefusedIoUringTest, SocketsServeWithoutAWord) {
  ExpectTraffic();
  EXPECT_EQ(Rings(), std::vector<int>());
}

INSTANTIATE_TEST_SUITE_P(, RefusedIoUringTest, testing::Values(EPERM, ENOSYS));

}  // namespace
}  // namespace conformance
