// mlx5dv_wr_memcpy (manual page mlx5dv_wr_post(3)).
#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <cstring>

#include "gtest/gtest.h"
#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class Mlx5MemcpyTest : public PairTest {
 protected:
  static constexpr size_t kLarge = 4 << 20;

  Mlx5MemcpyTest() { make_pair_ = false; }
  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    for (Side* side : {&a_, &b_}) {
      side->cq = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
      side->memory.assign(kLarge, 0);
      side->mr = ibv_reg_mr(pd_, side->memory.data(), kLarge, kAllAccess);
      ASSERT_NE(side->mr, nullptr);
      ibv_qp_init_attr_ex attr = {};
      attr.send_cq = attr.recv_cq = side->cq;
      attr.cap = {16, 16, 1, 1, 64};
      attr.qp_type = IBV_QPT_RC;
      attr.comp_mask = IBV_QP_INIT_ATTR_PD;
      attr.pd = pd_;
      mlx5dv_qp_init_attr mlx5 = {};
      mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
      mlx5.send_ops_flags = MLX5DV_QP_EX_WITH_MEMCPY;
      side->qp = mlx5dv_create_qp(context_, &attr, &mlx5);
      ASSERT_NE(side->qp, nullptr) << std::strerror(errno);
    }
    Connect(&a_, &b_);
  }

  int Copy(uint64_t id, uint32_t to_lkey, uint64_t to, uint32_t from_lkey,
           uint64_t from, size_t length,
           unsigned int flags = IBV_SEND_SIGNALED) {
    ibv_qp_ex* const qp = ibv_qp_to_qp_ex(a_.qp);
    ibv_wr_start(qp);
    qp->wr_id = id;
    qp->wr_flags = flags;
    mlx5dv_wr_memcpy(mlx5dv_qp_ex_from_ibv_qp_ex(qp), to_lkey, to, from_lkey,
                     from, length);
    return ibv_wr_complete(qp);
  }
  // Within the memory of `a_`.
  int Copy(uint64_t id, size_t to, size_t from, size_t length) {
    return Copy(id, a_.mr->lkey, a_.address(to), a_.mr->lkey, a_.address(from),
                length);
  }
  // The queue pair has failed; brings it up again.
  void Restart() {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_RESET;
    for (Side* side : {&a_, &b_}) {
      ASSERT_EQ(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE), 0);
    }
    Connect(&a_, &b_);
  }
};

TEST_F(Mlx5MemcpyTest, CopiesUpToTheLargestLength) {
  mlx5dv_context device = {};
  device.comp_mask = MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH;
  ASSERT_EQ(mlx5dv_query_device(context_, &device), 0);
  const size_t most = device.max_wr_memcpy_length;
  ASSERT_GE(kLarge, 2 * most);
  for (const size_t length : {size_t{1}, size_t{7}, size_t{4097}, most}) {
    FillPattern(a_.memory.data(), length, static_cast<uint32_t>(length));
    ASSERT_EQ(Copy(length, most, 0, length), 0);
    const ibv_wc wc = ExpectSuccess(a_.cq, length);
    EXPECT_EQ(int{wc.opcode}, int{MLX5DV_WC_MEMCPY});
    EXPECT_TRUE(HasPattern(a_.memory.data() + most, length,
                           static_cast<uint32_t>(length)));
    EXPECT_EQ(a_.memory[most + length], 0);
    std::memset(a_.memory.data(), 0, kLarge);
  }
  EXPECT_EQ(Copy(1, 0, most, most + 1), EINVAL);
  EXPECT_EQ(Copy(1, 0, most, 0), EINVAL);
  EXPECT_EQ(Copy(1, 0, most, SIZE_MAX), EINVAL);
  ExpectNothing(a_.cq);
}

// A memcpy sees what the request before it has read, and the request after it
// sends what it has copied.
TEST_F(Mlx5MemcpyTest, TakesItsTurnInTheQueue) {
  FillPattern(b_.memory.data(), 50000, 3);
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(a_.qp);
  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = 0;
  ibv_wr_rdma_read(qp, b_.mr->rkey, b_.address());
  ibv_wr_set_sge(qp, a_.mr->lkey, a_.address(), 50000);
  mlx5dv_wr_memcpy(mlx5dv_qp_ex_from_ibv_qp_ex(qp), a_.mr->lkey,
                   a_.address(100000), a_.mr->lkey, a_.address(), 50000);
  qp->wr_id = 3;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(qp, b_.mr->rkey, b_.address(200000));
  ibv_wr_set_sge(qp, a_.mr->lkey, a_.address(100000), 50000);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  ExpectSuccess(a_.cq, 3);
  EXPECT_TRUE(HasPattern(b_.memory.data() + 200000, 50000, 3));
}

TEST_F(Mlx5MemcpyTest, ReadsNullMemoryAsZeros) {
  ibv_mr* const null = ibv_alloc_null_mr(pd_);
  ASSERT_NE(null, nullptr);
  FillPattern(a_.memory.data(), 10000, 1);
  ASSERT_EQ(Copy(1, a_.mr->lkey, a_.address(), null->lkey, 0, 9999), 0);
  ExpectSuccess(a_.cq, 1);
  for (size_t i = 0; i < 9999; ++i) ASSERT_EQ(a_.memory[i], 0) << i;
  ASSERT_EQ(Copy(2, null->lkey, 0, a_.mr->lkey, a_.address(), 9999), 0);
  ExpectSuccess(a_.cq, 2);
  EXPECT_EQ(ibv_dereg_mr(null), 0);
}

TEST_F(Mlx5MemcpyTest, WhatItMayNotTouchIsAProtectionError) {
  ibv_pd* const other_pd = ibv_alloc_pd(context_);
  ASSERT_NE(other_pd, nullptr);
  ibv_mr* const other =
      ibv_reg_mr(other_pd, a_.memory.data(), kLarge, kAllAccess);
  ibv_mr* const read_only = ibv_reg_mr(pd_, a_.memory.data(), kLarge, 0);
  ASSERT_NE(other, nullptr);
  ASSERT_NE(read_only, nullptr);
  const uint32_t good = a_.mr->lkey;
  const auto fails = [&](uint32_t to_lkey, uint64_t to, uint32_t from_lkey,
                         uint64_t from) {
    FillPattern(a_.memory.data(), 64, 5);
    ASSERT_EQ(Copy(1, to_lkey, to, from_lkey, from, 64), 0);
    ExpectStatus(a_.cq, 1, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(StateOf(a_.qp), IBV_QPS_ERR);
    EXPECT_EQ(a_.memory[1000], 0);
    Restart();
  };
  const uint64_t from = a_.address(), to = a_.address(1000);
  fails(other->lkey, to, good, from);
  fails(good, to, other->lkey, from);
  fails(read_only->lkey, to, good, from);
  fails(good, to, good, a_.address(kLarge - 63));
  fails(good, a_.address(kLarge - 63), good, from);
  fails(good, UINT64_MAX - 8, good, from);
  fails(good + 0x12300, to, good, from);
  // As a source it may be read-only.
  ASSERT_EQ(Copy(2, good, to, read_only->lkey, from, 64), 0);
  ExpectSuccess(a_.cq, 2);
  EXPECT_TRUE(HasPattern(a_.memory.data() + 1000, 64, 5));
  EXPECT_EQ(ibv_dereg_mr(read_only), 0);
  EXPECT_EQ(ibv_dereg_mr(other), 0);
  EXPECT_EQ(ibv_dealloc_pd(other_pd), 0);
}

}  // namespace
}  // namespace conformance
