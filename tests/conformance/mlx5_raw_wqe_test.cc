// mlx5dv_wr_raw_wqe (manual page mlx5dv_wr_post(3)): work requests in the
// format of a card. The decoder's own test has more formats
// (verbs_api/libibverbs/raw_wqe_test.cc).
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class Mlx5RawWqeTest : public PairTest {
 protected:
  Mlx5RawWqeTest() { make_pair_ = false; }
  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    MakePair(/*entries=*/1);
  }
  // With a send queue of `entries`.
  void MakePair(uint32_t entries, const ConnectOptions& options = {}) {
    for (Side* side : {&a_, &b_}) {
      side->cq = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
      side->memory.assign(kMemory, 0);
      side->mr = ibv_reg_mr(pd_, side->memory.data(), kMemory, kAllAccess);
      ASSERT_NE(side->mr, nullptr);
      ibv_qp_init_attr_ex attr = {};
      attr.send_cq = attr.recv_cq = side->cq;
      attr.cap = {entries, 16, 2, 1, 64};
      attr.qp_type = IBV_QPT_RC;
      attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      attr.pd = pd_;
      attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
      mlx5dv_qp_init_attr mlx5 = {};
      mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
      mlx5.send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE;
      side->qp = mlx5dv_create_qp(context_, &attr, &mlx5);
      ASSERT_NE(side->qp, nullptr) << std::strerror(errno);
    }
    Connect(&a_, &b_, options);
  }

  // A WQE of `a_`, signaled.
  struct Wqe {
    std::vector<uint8_t> bytes;

    template <typename Segment>
    Wqe& Add(const Segment& segment) {
      const auto* const from = reinterpret_cast<const uint8_t*>(&segment);
      bytes.insert(bytes.end(), from, from + sizeof(segment));
      return *this;
    }
  };
  Wqe Begin(uint8_t opcode, uint32_t imm = 0) {
    mlx5_wqe_ctrl_seg control = {};
    control.opmod_idx_opcode = htobe32(opcode);
    control.qpn_ds = htobe32(a_.qp->qp_num << 8);
    control.fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
    control.imm = htobe32(imm);
    return Wqe().Add(control);
  }
  mlx5_wqe_data_seg Pointer(size_t offset, uint32_t length) {
    return {htobe32(length), htobe32(a_.mr->lkey), htobe64(a_.address(offset))};
  }
  mlx5_wqe_raddr_seg Remote(size_t offset) {
    return {htobe64(b_.address(offset)), htobe32(b_.mr->rkey), 0};
  }
  int PostBytes(uint64_t id, const void* wqe) {
    ibv_qp_ex* const qp = ibv_qp_to_qp_ex(a_.qp);
    ibv_wr_start(qp);
    qp->wr_id = id;
    qp->wr_flags = IBV_SEND_INLINE;  // ignored
    mlx5dv_wr_raw_wqe(mlx5dv_qp_ex_from_ibv_qp_ex(qp), wqe);
    return ibv_wr_complete(qp);
  }
  // Sets the size of the WQE and posts it.
  int Post(uint64_t id, Wqe wqe) {
    wqe.bytes[7] = static_cast<uint8_t>(wqe.bytes.size() / 16);
    return PostBytes(id, wqe.bytes.data());
  }
  void Succeeds(uint64_t id, const Wqe& wqe) {
    ASSERT_EQ(Post(id, wqe), 0) << id;
    EXPECT_EQ(int{ExpectSuccess(a_.cq, id).opcode}, int{MLX5DV_WC_RAW_WQE});
  }
};

TEST_F(Mlx5RawWqeTest, DoesWhatItSays) {
  FillPattern(a_.memory.data(), 3000, 1);
  // Raw requests and others take turns in a queue of one entry.
  for (uint64_t i = 0; i < 10; ++i) {
    ASSERT_EQ(Receive(b_, 100 + i, 10000, 3000), 0);
    if (i % 2 == 0) {
      Succeeds(i, Begin(MLX5_OPCODE_SEND_IMM, 0x01020304)
                      .Add(Pointer(0, 1000))
                      .Add(Pointer(1000, 2000)));
      const ibv_wc wc = ExpectSuccess(b_.cq, 100 + i);
      EXPECT_EQ(wc.imm_data, htobe32(0x01020304));
      EXPECT_EQ(wc.byte_len, 3000u);
    } else {
      ASSERT_EQ(Send(a_, IBV_WR_SEND, i, 0, 3000), 0);
      EXPECT_EQ(ExpectSuccess(a_.cq, i).opcode, IBV_WC_SEND);
      ExpectSuccess(b_.cq, 100 + i);
    }
    EXPECT_TRUE(HasPattern(b_.memory.data() + 10000, 3000, 1));
    std::memset(b_.memory.data() + 10000, 0, 3000);
  }
  Succeeds(
      20,
      Begin(MLX5_OPCODE_RDMA_WRITE).Add(Remote(20000)).Add(Pointer(0, 3000)));
  EXPECT_TRUE(HasPattern(b_.memory.data() + 20000, 3000, 1));
  Succeeds(
      21,
      Begin(MLX5_OPCODE_RDMA_READ).Add(Remote(20000)).Add(Pointer(5000, 3000)));
  EXPECT_TRUE(HasPattern(a_.memory.data() + 5000, 3000, 1));
  uint64_t value = 40;
  std::memcpy(b_.memory.data(), &value, sizeof(value));
  Succeeds(22, Begin(MLX5_OPCODE_ATOMIC_FA)
                   .Add(Remote(0))
                   .Add(mlx5_wqe_atomic_seg{htobe64(2), 0})
                   .Add(Pointer(8000, 8)));
  std::memcpy(&value, a_.memory.data() + 8000, sizeof(value));
  EXPECT_EQ(value, 40u);
  Succeeds(23, Begin(MLX5_OPCODE_ATOMIC_CS)
                   .Add(Remote(0))
                   .Add(mlx5_wqe_atomic_seg{htobe64(17), htobe64(42)})
                   .Add(Pointer(8000, 8)));
  std::memcpy(&value, b_.memory.data(), sizeof(value));
  EXPECT_EQ(value, 17u);
  Succeeds(24, Begin(MLX5_OPCODE_NOP));
}

TEST_F(Mlx5RawWqeTest, CarriesInlineData) {
  struct {
    uint32_t length = htobe32(20 | MLX5_INLINE_SEG);
    char text[28] = "exactly twenty bytes";
  } data;
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  Succeeds(2, Begin(MLX5_OPCODE_SEND).Add(data));
  EXPECT_EQ(ExpectSuccess(b_.cq, 1).byte_len, 20u);
  EXPECT_EQ(std::memcmp(b_.memory.data(), data.text, 20), 0);
}

TEST_F(Mlx5RawWqeTest, WhatIsNotPossiblePostsNothing) {
  const Wqe good = Begin(MLX5_OPCODE_SEND);
  EXPECT_EQ(PostBytes(1, nullptr), EINVAL);
  for (const uint8_t units : {0, 64, 255}) {
    Wqe wqe = good;
    wqe.bytes[7] = units;
    EXPECT_EQ(PostBytes(1, wqe.bytes.data()), EINVAL) << int{units};
  }
  // With the number of another queue pair.
  Wqe other = good;
  other.bytes[6] ^= 1;
  EXPECT_EQ(Post(1, other), EINVAL);
  EXPECT_EQ(Post(1, Begin(MLX5_OPCODE_UMR)), EOPNOTSUPP);
  // More entries than the queue pair has, and inline data with a READ.
  EXPECT_EQ(Post(1, Begin(MLX5_OPCODE_SEND)
                        .Add(Pointer(0, 1))
                        .Add(Pointer(0, 1))
                        .Add(Pointer(0, 1))),
            EINVAL);
  struct {
    uint32_t length = htobe32(4 | MLX5_INLINE_SEG);
    char text[12] = {};
  } data;
  EXPECT_EQ(Post(1, Begin(MLX5_OPCODE_RDMA_READ).Add(Remote(0)).Add(data)),
            EINVAL);
  // A WQE whose last page is not mapped.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* const memory =
      static_cast<uint8_t*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(munmap(memory + page, page), 0);
  Wqe longer = good;
  longer.bytes[7] = 2;
  std::memcpy(memory + page - 16, longer.bytes.data(), 16);
  EXPECT_EQ(PostBytes(1, memory + page - 16), EFAULT);
  EXPECT_EQ(PostBytes(1, memory + page - 8), EFAULT);
  ASSERT_EQ(munmap(memory, page), 0);
  // Outside ibv_wr_start and ibv_wr_complete.
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(a_.qp);
  mlx5dv_wr_raw_wqe(mlx5dv_qp_ex_from_ibv_qp_ex(qp), good.bytes.data());
  ExpectNothing(a_.cq);
  ASSERT_EQ(Receive(b_, 1, 0, 0), 0);
  Succeeds(2, good);
}

// Random bytes are posted or refused. Posted requests complete, with or without
// an error, and neither end hangs.
TEST_F(Mlx5RawWqeTest, AnyBytes) {
  DestroySide(&a_);
  DestroySide(&b_);
  // A peer that has failed may be silent.
  ConnectOptions options;
  options.timeout = 8;  // 1 ms
  options.retry_cnt = 1;
  MakePair(/*entries=*/16, options);
  std::mt19937 random(7);
  constexpr uint8_t kOpcodes[] = {0, 1, 8, 9, 10, 11, 16, 17, 18, 27};
  int posted = 0;
  for (int i = 0; i < 1500; ++i) {
    std::vector<uint8_t> bytes(1024);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    const mlx5_wqe_data_seg pointer =
        Pointer(random() % 1000, 1 + static_cast<uint32_t>(random() % 100));
    for (size_t at = 16; at < bytes.size(); at += 16) {
      if (random() % 2 == 0) std::memcpy(&bytes[at], &pointer, sizeof(pointer));
    }
    bytes[0] = 0;
    bytes[3] = kOpcodes[random() % std::size(kOpcodes)];
    const uint32_t number =
        htobe32(a_.qp->qp_num << 8 | static_cast<uint32_t>(1 + random() % 5));
    std::memcpy(&bytes[4], &number, sizeof(number));
    bytes[11] |= MLX5_WQE_CTRL_CQ_UPDATE;
    Receive(b_, 1, 0, 1000);
    const int error = PostBytes(9, bytes.data());
    ASSERT_TRUE(error == 0 || error == EINVAL || error == EOPNOTSUPP) << error;
    if (error != 0) continue;
    ++posted;
    const ibv_wc wc = Next(a_.cq);
    ASSERT_EQ(wc.wr_id, 9u);
    if (wc.status == IBV_WC_SUCCESS) continue;
    // Both ends may be in ERR.
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_RESET;
    for (Side* side : {&a_, &b_}) {
      ASSERT_EQ(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE), 0);
      while (Within(side->cq, 0)) {
      }
    }
    Connect(&a_, &b_, options);
  }
  EXPECT_GT(posted, 150);
}

// A DC request names its target in the WQE.
TEST_F(Mlx5RawWqeTest, DcRequestsNameTheirTarget) {
  constexpr uint64_t kKey = 0x1122334455667788;
  ibv_srq_init_attr srq_attr = {};
  srq_attr.attr = {4, 1, 0};
  ibv_srq* const srq = ibv_create_srq(pd_, &srq_attr);
  ASSERT_NE(srq, nullptr);
  const auto create = [&](mlx5dv_dc_type type, ibv_cq* cq) {
    ibv_qp_init_attr_ex attr = {};
    attr.qp_type = IBV_QPT_DRIVER;
    attr.send_cq = attr.recv_cq = cq;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = pd_;
    mlx5dv_qp_init_attr mlx5 = {};
    mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    mlx5.dc_init_attr.dc_type = type;
    if (type == MLX5DV_DCTYPE_DCT) {
      attr.srq = srq;
      mlx5.dc_init_attr.dct_access_key = kKey;
    } else {
      attr.cap.max_send_wr = 4;
      attr.cap.max_send_sge = 1;
      mlx5.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
      mlx5.send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE;
    }
    return mlx5dv_create_qp(context_, &attr, &mlx5);
  };
  ASSERT_EQ(ibv_destroy_qp(a_.qp), 0);
  a_.qp = create(MLX5DV_DCTYPE_DCI, a_.cq);
  ASSERT_NE(a_.qp, nullptr) << std::strerror(errno);
  ibv_qp* const target = create(MLX5DV_DCTYPE_DCT, b_.cq);
  ASSERT_NE(target, nullptr) << std::strerror(errno);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  ASSERT_EQ(ibv_modify_qp(a_.qp, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT),
            0);
  attr = RtrAttributes(0);
  ASSERT_EQ(
      ibv_modify_qp(a_.qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV),
      0);
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  ASSERT_EQ(ibv_modify_qp(a_.qp, &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                              IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
                              IBV_QP_SQ_PSN),
            0);
  ToInit(target);
  attr = RtrAttributes(0);
  ASSERT_EQ(ibv_modify_qp(target, &attr,
                          IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV |
                              IBV_QP_PATH_MTU),
            0);

  mlx5_wqe_av av = {};
  av.key.dc_key = htobe64(kKey);
  av.dqp_dct = htobe32(MLX5_EXTENDED_UD_AV | target->qp_num);
  av.hop_limit = 64;
  av.grh_gid_fl = htobe32(1u << 30 | uint32_t{gid_index_} << 20);
  std::memcpy(av.rgid, gid_.raw, sizeof(av.rgid));
  FillPattern(a_.memory.data(), 3000, 4);
  Succeeds(1, Begin(MLX5_OPCODE_RDMA_WRITE)
                  .Add(av)
                  .Add(Remote(7000))
                  .Add(Pointer(0, 3000)));
  EXPECT_TRUE(HasPattern(b_.memory.data() + 7000, 3000, 4));
  Succeeds(2, Begin(MLX5_OPCODE_NOP));
  // A GID index beyond the table, and no target.
  av.grh_gid_fl = htobe32(1u << 30 | 255u << 20);
  EXPECT_EQ(Post(3, Begin(MLX5_OPCODE_SEND).Add(av)), EINVAL);
  EXPECT_EQ(Post(3, Begin(MLX5_OPCODE_SEND)), EINVAL);
  EXPECT_EQ(ibv_destroy_qp(target), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

}  // namespace
}  // namespace conformance
