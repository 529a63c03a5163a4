// mlx5dv_create_cq(3), and the clock of its time stamps:
// mlx5dv_get_clock_info(3), mlx5dv_ts_to_ns(3).
#include <infiniband/mlx5dv.h>
#include <time.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "gtest/gtest.h"
#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class Mlx5CompletionQueueTest : public PairTest {
 protected:
  Mlx5CompletionQueueTest() { make_pair_ = false; }
  void TearDown() override {
    unsetenv("MLX5_CQE_SIZE");
    PairTest::TearDown();
  }

  static ibv_cq_init_attr_ex Attributes() {
    ibv_cq_init_attr_ex attr = {};
    attr.cqe = 16;
    attr.wc_flags = uint64_t{IBV_WC_STANDARD_FLAGS} |
                    uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
    return attr;
  }
  static mlx5dv_cq_init_attr Size(uint16_t size) {
    mlx5dv_cq_init_attr mlx5 = {};
    mlx5.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
    mlx5.cqe_size = size;
    return mlx5;
  }
  // 0 or errno.
  int Create(mlx5dv_cq_init_attr mlx5) {
    ibv_cq_init_attr_ex attr = Attributes();
    ibv_cq_ex* const cq = mlx5dv_create_cq(context_, &attr, &mlx5);
    if (cq == nullptr) return errno;
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    return 0;
  }
};

TEST_F(Mlx5CompletionQueueTest, HasTheSizesOfACard) {
  EXPECT_EQ(Create({}), 0);
  EXPECT_EQ(Create(Size(64)), 0);
  EXPECT_EQ(Create(Size(128)), 0);
  EXPECT_EQ(Create(Size(0)), EINVAL);
  EXPECT_EQ(Create(Size(100)), EINVAL);
  setenv("MLX5_CQE_SIZE", "128", 1);
  EXPECT_EQ(Create({}), 0);
  setenv("MLX5_CQE_SIZE", "100", 1);
  EXPECT_EQ(Create({}), EINVAL);
  EXPECT_EQ(Create(Size(64)), 0);  // the program's size counts
}

TEST_F(Mlx5CompletionQueueTest, OnlyLargeCompletionsArePadded) {
  mlx5dv_cq_init_attr mlx5 = Size(128);
  mlx5.comp_mask |= MLX5DV_CQ_INIT_ATTR_MASK_FLAGS;
  mlx5.flags = MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD;
  EXPECT_EQ(Create(mlx5), 0);
  mlx5.cqe_size = 64;
  EXPECT_EQ(Create(mlx5), EINVAL);
  mlx5.cqe_size = 128;
  mlx5.flags = MLX5DV_CQ_INIT_ATTR_FLAGS_RESERVED;
  EXPECT_EQ(Create(mlx5), EINVAL);
  mlx5 = {};
  mlx5.comp_mask = 1 << 10;
  EXPECT_EQ(Create(mlx5), EINVAL);
}

TEST_F(Mlx5CompletionQueueTest, HasOneCompressionFormatOfThoseReported) {
  mlx5dv_context device = {};
  device.comp_mask = MLX5DV_CONTEXT_MASK_CQE_COMPRESION;
  ASSERT_EQ(mlx5dv_query_device(context_, &device), 0);
  ASSERT_NE(device.cqe_comp_caps.max_num, 0u);
  mlx5dv_cq_init_attr mlx5 = {};
  mlx5.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE;
  for (int format = 0; format < 256; ++format) {
    mlx5.cqe_comp_res_format = static_cast<uint8_t>(format);
    const bool single = format != 0 && (format & (format - 1)) == 0;
    const bool good =
        single && (device.cqe_comp_caps.supported_format & format) != 0;
    EXPECT_EQ(Create(mlx5), good ? 0 : EINVAL) << format;
  }
}

TEST_F(Mlx5CompletionQueueTest, ChecksTheOtherArguments) {
  errno = 0;
  EXPECT_EQ(mlx5dv_create_cq(context_, nullptr, nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_cq_init_attr_ex attr = Attributes();
  errno = 0;
  EXPECT_EQ(mlx5dv_create_cq(nullptr, &attr, nullptr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attr.wc_flags = ~uint64_t{0};
  EXPECT_EQ(mlx5dv_create_cq(context_, &attr, nullptr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attr = Attributes();
  attr.cqe = 0;
  EXPECT_EQ(mlx5dv_create_cq(context_, &attr, nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

int64_t WallClock() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

// A completion's time stamp becomes the wall clock between post and poll.
TEST_F(Mlx5CompletionQueueTest, TimeStampsBecomeNanoseconds) {
  ibv_cq_init_attr_ex attr = Attributes();
  mlx5dv_cq_init_attr mlx5 = Size(128);
  ibv_cq_ex* const cq = mlx5dv_create_cq(context_, &attr, &mlx5);
  ASSERT_NE(cq, nullptr) << std::strerror(errno);
  a_.cq = ibv_cq_ex_to_cq(cq);
  a_.memory.assign(kMemory, 0);
  a_.mr = ibv_reg_mr(pd_, a_.memory.data(), kMemory, kAllAccess);
  ASSERT_NE(a_.mr, nullptr);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = a_.cq;
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  a_.qp = ibv_create_qp(pd_, &init);
  ASSERT_NE(a_.qp, nullptr) << std::strerror(errno);
  MakeSide(&b_);
  Connect(&a_, &b_);
  mlx5dv_clock_info early;
  ASSERT_EQ(mlx5dv_get_clock_info(context_, &early), 0);
  const int64_t before = WallClock();
  ASSERT_EQ(Receive(b_, 1, 0, 8), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 2, 0, 8), 0);
  ibv_poll_cq_attr poll = {};
  int error;
  while ((error = ibv_start_poll(cq, &poll)) == ENOENT) {
  }
  ASSERT_EQ(error, 0);
  const int64_t after = WallClock();
  EXPECT_EQ(cq->wr_id, 2u);
  const uint64_t stamp = ibv_wc_read_completion_ts(cq);
  ibv_end_poll(cq);
  mlx5dv_clock_info late;
  ASSERT_EQ(mlx5dv_get_clock_info(context_, &late), 0);
  // By a snapshot from before it, and by one from after it. The two clocks are
  // compared to some microseconds.
  constexpr int64_t kAccuracy = 1'000'000;
  for (mlx5dv_clock_info* info : {&early, &late}) {
    const auto at = static_cast<int64_t>(mlx5dv_ts_to_ns(info, stamp));
    EXPECT_GE(at, before - kAccuracy);
    EXPECT_LE(at, after + kAccuracy);
  }
  EXPECT_EQ(mlx5dv_get_clock_info(context_, nullptr), EINVAL);
  EXPECT_EQ(mlx5dv_get_clock_info(nullptr, &late), EOPNOTSUPP);
}

}  // namespace
}  // namespace conformance
