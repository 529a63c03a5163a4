// DC initiators and targets (mlx5dv_create_qp(3)) on a device that looks like
// mlx5.
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

constexpr uint64_t kKey = 0x1122334455667788;
constexpr uint64_t kOperations =
    IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
    IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
    IBV_QP_EX_WITH_LOCAL_INV;

class Mlx5DcTest : public PairTest {
 protected:
  // A target, its receive queue, its completion queue and its memory.
  struct Target : Side {
    ibv_srq* srq = nullptr;
  };

  Mlx5DcTest() { make_pair_ = false; }

  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    ah_ = MakeAh(pd_);
    ASSERT_NE(ah_, nullptr);
    MakeInitiator(&a_);
    MakeTarget(&target_, kKey);
  }
  void TearDown() override {
    DestroySide(&a_);
    DestroySide(&b_);
    DestroyTarget(&target_);
    if (ah_ != nullptr) {
      EXPECT_EQ(ibv_destroy_ah(ah_), 0);
    }
    PairTest::TearDown();
  }

  ibv_ah* MakeAh(ibv_pd* pd) {
    ibv_ah_attr attr = {};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = gid_;
    attr.grh.sgid_index = gid_index_;
    attr.grh.hop_limit = 64;
    return ibv_create_ah(pd, &attr);
  }
  void MakeMemory(Side* side) {
    side->memory.assign(kMemory, 0);
    side->mr = ibv_reg_mr(pd_, side->memory.data(), kMemory, kAllAccess);
    ASSERT_NE(side->mr, nullptr);
  }
  ibv_qp_init_attr_ex Attributes(const Side& side) {
    ibv_qp_init_attr_ex attr = {};
    attr.qp_type = IBV_QPT_DRIVER;
    attr.send_cq = attr.recv_cq = side.cq;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = pd_;
    return attr;
  }
  ibv_qp_init_attr_ex OfInitiator(const Side& side) {
    ibv_qp_init_attr_ex attr = Attributes(side);
    attr.cap.max_send_wr = 32;
    attr.cap.max_send_sge = 2;
    attr.cap.max_inline_data = 64;
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = kOperations;
    return attr;
  }
  static mlx5dv_qp_init_attr Initiator() {
    mlx5dv_qp_init_attr mlx5 = {};
    mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    mlx5.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
    return mlx5;
  }
  static mlx5dv_qp_init_attr TargetWith(uint64_t key) {
    mlx5dv_qp_init_attr mlx5 = {};
    mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    mlx5.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
    mlx5.dc_init_attr.dct_access_key = key;
    return mlx5;
  }

  void MakeInitiator(Side* side, const ConnectOptions& options = {}) {
    side->cq = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
    ASSERT_NE(side->cq, nullptr);
    MakeMemory(side);
    ibv_qp_init_attr_ex attr = OfInitiator(*side);
    mlx5dv_qp_init_attr mlx5 = Initiator();
    side->qp = mlx5dv_create_qp(context_, &attr, &mlx5);
    ASSERT_NE(side->qp, nullptr) << std::strerror(errno);
    ASSERT_EQ(InitiatorToRts(side->qp, options), 0);
  }
  int InitiatorToRts(ibv_qp* qp, const ConnectOptions& options = {}) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    if (const int error = ibv_modify_qp(
            qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT)) {
      return error;
    }
    attr = RtrAttributes(0, options);
    attr.ah_attr.grh.dgid = {};  // it has no peer of its own
    if (const int error = ibv_modify_qp(
            qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV)) {
      return error;
    }
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = options.timeout;
    attr.retry_cnt = options.retry_cnt;
    attr.rnr_retry = options.rnr_retry;
    attr.max_rd_atomic = options.max_rd_atomic;
    attr.sq_psn = 0xfffffe;
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
                             IBV_QP_SQ_PSN);
  }
  void MakeTarget(Target* target, uint64_t key) {
    target->cq = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
    ASSERT_NE(target->cq, nullptr);
    MakeMemory(target);
    ibv_srq_init_attr srq = {};
    srq.attr = {32, 1, 0};
    target->srq = ibv_create_srq(pd_, &srq);
    ASSERT_NE(target->srq, nullptr);
    ibv_qp_init_attr_ex attr = Attributes(*target);
    attr.srq = target->srq;
    mlx5dv_qp_init_attr mlx5 = TargetWith(key);
    target->qp = mlx5dv_create_qp(context_, &attr, &mlx5);
    ASSERT_NE(target->qp, nullptr) << std::strerror(errno);
    ToInit(target->qp);
    ibv_qp_attr to = RtrAttributes(0);
    to.ah_attr.grh.dgid = {};
    ASSERT_EQ(ibv_modify_qp(target->qp, &to,
                            IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV |
                                IBV_QP_PATH_MTU),
              0);
  }
  void DestroyTarget(Target* target) {
    ibv_srq* const srq = target->srq;
    DestroySide(target);
    if (srq != nullptr) {
      EXPECT_EQ(ibv_destroy_srq(srq), 0);
    }
    target->srq = nullptr;
  }
  void ReceiveAt(Target* target, uint64_t id, size_t offset, uint32_t length) {
    ibv_sge sge = target->Sge(offset, length);
    ibv_recv_wr wr = {};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad;
    ASSERT_EQ(ibv_post_srq_recv(target->srq, &wr, &bad), 0);
  }

  // Posts what `build` begins on `from`, to `dctn`.
  template <typename Build>
  int PostTo(Side& from, uint32_t dctn, uint64_t key, uint64_t id,
             size_t offset, uint32_t length, Build&& build) {
    ibv_qp_ex* const qp = ibv_qp_to_qp_ex(from.qp);
    ibv_wr_start(qp);
    qp->wr_id = id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    build(qp);
    mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(qp), ah_, dctn, key);
    ibv_wr_set_sge(qp, from.mr->lkey, from.address(offset), length);
    return ibv_wr_complete(qp);
  }
  int SendTo(Side& from, const Target& to, uint64_t id, size_t offset,
             uint32_t length, uint64_t key = kKey) {
    return PostTo(from, to.qp->qp_num, key, id, offset, length,
                  [](ibv_qp_ex* qp) { ibv_wr_send(qp); });
  }

  ibv_ah* ah_ = nullptr;
  Target target_;
};

TEST_F(Mlx5DcTest, SendsAndImmediateData) {
  FillPattern(a_.memory.data(), 10000, 1);
  ReceiveAt(&target_, 10, 0, 10000);
  ASSERT_EQ(SendTo(a_, target_, 1, 0, 10000), 0);
  ExpectSuccess(a_.cq, 1);
  ibv_wc wc = ExpectSuccess(target_.cq, 10);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.byte_len, 10000u);
  EXPECT_EQ(wc.qp_num, target_.qp->qp_num);
  EXPECT_EQ(wc.wc_flags & IBV_WC_GRH, 0u);
  EXPECT_TRUE(HasPattern(target_.memory.data(), 10000, 1));

  ReceiveAt(&target_, 11, 0, 10);
  ASSERT_EQ(PostTo(a_, target_.qp->qp_num, kKey, 2, 0, 10,
                   [](ibv_qp_ex* qp) { ibv_wr_send_imm(qp, 0x12345678); }),
            0);
  ExpectSuccess(a_.cq, 2);
  wc = ExpectSuccess(target_.cq, 11);
  EXPECT_NE(wc.wc_flags & IBV_WC_WITH_IMM, 0u);
  EXPECT_EQ(wc.imm_data, 0x12345678u);
}

// A memory key at the target: the wire form has a CRC-32C after each block.
TEST_F(Mlx5DcTest, ReadsAndWritesAKeyWithSignatures) {
  constexpr uint32_t kWire = 4 * 516;
  b_.cq = ibv_create_cq(context_, 4, nullptr, nullptr, 0);
  ASSERT_NE(b_.cq, nullptr);
  ibv_qp_init_attr_ex attr = Attributes(b_);
  attr.qp_type = IBV_QPT_RC;
  attr.cap = {4, 4, 1, 1, 128};
  attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
  mlx5dv_qp_init_attr mlx5 = {};
  mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
  mlx5.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;
  b_.qp = mlx5dv_create_qp(context_, &attr, &mlx5);
  ASSERT_NE(b_.qp, nullptr) << std::strerror(errno);
  ASSERT_EQ(ToRts(b_.qp, b_.qp->qp_num), 0);
  mlx5dv_mkey_init_attr init = {pd_,
                                MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
                                    MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE,
                                4};
  mlx5dv_mkey* const mkey = mlx5dv_create_mkey(&init);
  ASSERT_NE(mkey, nullptr);
  mlx5dv_sig_crc crc = {MLX5DV_SIG_CRC_TYPE_CRC32C, 0xffffffff};
  mlx5dv_sig_block_domain domain = {};
  domain.sig_type = MLX5DV_SIG_TYPE_CRC;
  domain.sig.crc = &crc;
  domain.block_size = MLX5DV_BLOCK_SIZE_512;
  mlx5dv_sig_block_attr signature = {};
  signature.wire = &domain;
  signature.check_mask = MLX5DV_SIG_MASK_CRC32C;
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(b_.qp);
  mlx5dv_qp_ex* const table = mlx5dv_qp_ex_from_ibv_qp_ex(qp);
  mlx5dv_mkey_conf_attr conf = {};
  ibv_sge sge = target_.Sge(0, 4 * 512);
  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  mlx5dv_wr_mkey_configure(table, mkey, 3, &conf);
  mlx5dv_wr_set_mkey_access_flags(table, kAllAccess);
  mlx5dv_wr_set_mkey_layout_list(table, 1, &sge);
  mlx5dv_wr_set_mkey_sig_block(table, &signature);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  ExpectSuccess(b_.cq, 1);

  FillPattern(target_.memory.data(), 4 * 512, 3);
  const std::vector<uint8_t> data(target_.memory.begin(),
                                  target_.memory.begin() + 4 * 512);
  ASSERT_EQ(
      PostTo(a_, target_.qp->qp_num, kKey, 2, 0, kWire,
             [&](ibv_qp_ex* from) { ibv_wr_rdma_read(from, mkey->rkey, 0); }),
      0);
  ExpectSuccess(a_.cq, 2);
  for (size_t block = 0; block < 4; ++block) {
    EXPECT_EQ(std::memcmp(a_.memory.data() + block * 516,
                          data.data() + block * 512, 512),
              0);
  }
  std::fill(target_.memory.begin(), target_.memory.end(), uint8_t{0});
  const auto write = [&](uint64_t id) {
    ASSERT_EQ(PostTo(a_, target_.qp->qp_num, kKey, id, 0, kWire,
                     [&](ibv_qp_ex* from) {
                       ibv_wr_rdma_write(from, mkey->rkey, 0);
                     }),
              0);
    ExpectSuccess(a_.cq, id);
  };
  write(3);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), target_.memory.begin()));
  mlx5dv_mkey_err error;
  ASSERT_EQ(mlx5dv_mkey_check(mkey, &error), 0);
  EXPECT_EQ(error.err_type, MLX5DV_MKEY_NO_ERR);
  a_.memory[2 * 516 + 515] ^= 1;
  write(4);
  ASSERT_EQ(mlx5dv_mkey_check(mkey, &error), 0);
  EXPECT_EQ(error.err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD);
  EXPECT_EQ(error.err.sig.offset, 2u * 516);
  EXPECT_EQ(error.err.sig.actual_value ^ error.err.sig.expected_value,
            uint64_t{1} << 24);
  EXPECT_EQ(mlx5dv_destroy_mkey(mkey), 0);
}

// An initiator without streams ignores the stream that a request names.
TEST_F(Mlx5DcTest, ARequestMayNameAStream) {
  ReceiveAt(&target_, 10, 0, 8);
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(a_.qp);
  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(qp);
  mlx5dv_wr_set_dc_addr_stream(mlx5dv_qp_ex_from_ibv_qp_ex(qp), ah_,
                               target_.qp->qp_num, kKey, 7);
  ibv_wr_set_sge(qp, a_.mr->lkey, a_.address(), 8);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  ExpectSuccess(a_.cq, 1);
  ExpectSuccess(target_.cq, 10);
}

// With streams, an error ends its stream alone.
TEST_F(Mlx5DcTest, AnErrorFlushesItsStreamAlone) {
  DestroyQp(&a_);
  ibv_qp_init_attr_ex attr = OfInitiator(a_);
  mlx5dv_qp_init_attr mlx5 = Initiator();
  mlx5.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
  const auto with = [&](uint8_t concurrent, uint8_t errored) {
    mlx5.dc_init_attr.dci_streams = {concurrent, errored};
    return mlx5dv_create_qp(context_, &attr, &mlx5);
  };
  EXPECT_EQ(with(7, 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(with(1, 7), nullptr);
  EXPECT_EQ(errno, EINVAL);
  a_.qp = with(2, 1);
  ASSERT_NE(a_.qp, nullptr) << std::strerror(errno);
  ASSERT_EQ(InitiatorToRts(a_.qp), 0);
  const auto write = [&](uint64_t id, uint16_t stream, uint32_t rkey) {
    ibv_qp_ex* const qp = ibv_qp_to_qp_ex(a_.qp);
    ibv_wr_start(qp);
    qp->wr_id = id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, rkey, target_.address());
    mlx5dv_wr_set_dc_addr_stream(mlx5dv_qp_ex_from_ibv_qp_ex(qp), ah_,
                                 target_.qp->qp_num, kKey, stream);
    ibv_wr_set_sge(qp, a_.mr->lkey, a_.address(), 8);
    ASSERT_EQ(ibv_wr_complete(qp), 0);
  };
  const uint32_t rkey = target_.mr->rkey;
  write(1, 60000, rkey + 1);
  write(2, 60000, rkey);
  write(3, 5, rkey);
  ExpectStatus(a_.cq, 1, IBV_WC_REM_ACCESS_ERR);
  ExpectStatus(a_.cq, 2, IBV_WC_WR_FLUSH_ERR);
  ExpectSuccess(a_.cq, 3);
  EXPECT_EQ(StateOf(a_.qp), IBV_QPS_RTS);
  EXPECT_EQ(mlx5dv_dci_stream_id_reset(a_.qp, 5), EINVAL);
  EXPECT_EQ(mlx5dv_dci_stream_id_reset(a_.qp, 60000), 0);
  write(4, 60000, rkey);
  ExpectSuccess(a_.cq, 4);
  // With a second failed stream, the limit is exceeded.
  write(5, 5, rkey + 1);
  write(6, 6, rkey + 1);
  ExpectStatus(a_.cq, 5, IBV_WC_REM_ACCESS_ERR);
  ExpectStatus(a_.cq, 6, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(StateOf(a_.qp), IBV_QPS_ERR);
  EXPECT_EQ(mlx5dv_dci_stream_id_reset(a_.qp, 5), EINVAL);

  EXPECT_EQ(mlx5dv_dci_stream_id_reset(nullptr, 5), EINVAL);
  EXPECT_EQ(mlx5dv_dci_stream_id_reset(target_.qp, 5), EINVAL);
}

TEST_F(Mlx5DcTest, WritesReadsAndAtomics) {
  const uint32_t rkey = target_.mr->rkey;
  const auto to = [&](uint64_t id, size_t offset, uint32_t length,
                      auto&& build) {
    ASSERT_EQ(PostTo(a_, target_.qp->qp_num, kKey, id, offset, length, build),
              0);
    ExpectSuccess(a_.cq, id);
  };
  FillPattern(a_.memory.data(), 100000, 7);
  to(1, 0, 100000,
     [&](ibv_qp_ex* qp) { ibv_wr_rdma_write(qp, rkey, target_.address(64)); });
  EXPECT_TRUE(HasPattern(target_.memory.data() + 64, 100000, 7));
  to(2, 200000, 100000,
     [&](ibv_qp_ex* qp) { ibv_wr_rdma_read(qp, rkey, target_.address(64)); });
  EXPECT_TRUE(HasPattern(a_.memory.data() + 200000, 100000, 7));
  ReceiveAt(&target_, 20, 0, 1);
  to(3, 0, 8, [&](ibv_qp_ex* qp) {
    ibv_wr_rdma_write_imm(qp, rkey, target_.address(64), 9);
  });
  EXPECT_EQ(ExpectSuccess(target_.cq, 20).opcode, IBV_WC_RECV_RDMA_WITH_IMM);

  uint64_t value = 40;
  std::memcpy(target_.memory.data(), &value, sizeof(value));
  to(4, 0, 8, [&](ibv_qp_ex* qp) {
    ibv_wr_atomic_fetch_add(qp, rkey, target_.address(), 2);
  });
  std::memcpy(&value, a_.memory.data(), sizeof(value));
  EXPECT_EQ(value, 40u);
  to(5, 0, 8, [&](ibv_qp_ex* qp) {
    ibv_wr_atomic_cmp_swp(qp, rkey, target_.address(), 42, 17);
  });
  std::memcpy(&value, a_.memory.data(), sizeof(value));
  EXPECT_EQ(value, 42u);
  std::memcpy(&value, target_.memory.data(), sizeof(value));
  EXPECT_EQ(value, 17u);
}

// Each change of target waits for all earlier requests, and connects. Requests
// complete in the order of posting.
TEST_F(Mlx5DcTest, OneInitiatorWritesToSeveralTargets) {
  constexpr int kTargets = 3;
  std::vector<std::unique_ptr<Target>> targets;
  for (int i = 0; i < kTargets; ++i) {
    targets.push_back(std::make_unique<Target>());
    MakeTarget(targets.back().get(), kKey + static_cast<uint64_t>(i));
  }
  for (uint64_t id = 0; id < 30; ++id) {
    const auto at = static_cast<size_t>(id % kTargets);
    Target& to = *targets[at];
    a_.memory[id] = static_cast<uint8_t>(id + 1);
    ASSERT_EQ(PostTo(a_, to.qp->qp_num, kKey + at, id, id, 1,
                     [&](ibv_qp_ex* qp) {
                       ibv_wr_rdma_write(qp, to.mr->rkey, to.address(id));
                     }),
              0);
  }
  for (uint64_t id = 0; id < 30; ++id) {
    ExpectSuccess(a_.cq, id);
    EXPECT_EQ(targets[id % kTargets]->memory[id], id + 1);
  }
  for (auto& target : targets) DestroyTarget(target.get());
}

TEST_F(Mlx5DcTest, SeveralInitiatorsShareATarget) {
  MakeInitiator(&b_);
  for (uint64_t id = 0; id < 8; ++id) ReceiveAt(&target_, id, 64 * id, 64);
  for (uint64_t id = 0; id < 4; ++id) {
    ASSERT_EQ(SendTo(a_, target_, id, 0, 8), 0);
    ASSERT_EQ(SendTo(b_, target_, id, 0, 8), 0);
  }
  for (uint64_t id = 0; id < 4; ++id) {
    ExpectSuccess(a_.cq, id);
    ExpectSuccess(b_.cq, id);
  }
  for (uint64_t id = 0; id < 8; ++id) ExpectSuccess(target_.cq, id);
}

// All connect at once. A CONNECT that arrives while DcConnections::kMaxWaiting
// connections of this address wait for their first data gets no answer, and is
// sent again.
TEST_F(Mlx5DcTest, AThousandInitiatorsShareATarget) {
  constexpr size_t kInitiators = 1000;
  Side from;
  from.cq = ibv_create_cq(context_, kInitiators, nullptr, nullptr, 0);
  ASSERT_NE(from.cq, nullptr);
  MakeMemory(&from);
  FillPattern(from.memory.data(), 8 * kInitiators, 1);
  std::vector<ibv_qp*> initiators;
  for (size_t i = 0; i < kInitiators; ++i) {
    ibv_qp_init_attr_ex attr = OfInitiator(from);
    attr.cap.max_send_wr = 1;
    mlx5dv_qp_init_attr mlx5 = Initiator();
    initiators.push_back(mlx5dv_create_qp(context_, &attr, &mlx5));
    ASSERT_NE(initiators.back(), nullptr) << std::strerror(errno);
    ASSERT_EQ(InitiatorToRts(initiators.back()), 0);
  }
  // The second time they are connected.
  for (int round = 0; round < 2; ++round) {
    target_.memory.assign(target_.memory.size(), 0);
    for (size_t i = 0; i < kInitiators; ++i) {
      from.qp = initiators[i];
      ASSERT_EQ(PostTo(from, target_.qp->qp_num, kKey, i, 8 * i, 8,
                       [&](ibv_qp_ex* qp) {
                         ibv_wr_rdma_write(qp, target_.mr->rkey,
                                           target_.address(8 * i));
                       }),
                0);
    }
    std::vector<bool> done(kInitiators);
    for (size_t i = 0; i < kInitiators; ++i) {
      const ibv_wc wc = Next(from.cq);
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
      ASSERT_LT(wc.wr_id, kInitiators);
      EXPECT_FALSE(done[wc.wr_id]);
      done[wc.wr_id] = true;
    }
    EXPECT_TRUE(HasPattern(target_.memory.data(), 8 * kInitiators, 1));
  }
  for (ibv_qp* const qp : initiators) EXPECT_EQ(ibv_destroy_qp(qp), 0);
  from.qp = nullptr;
  DestroySide(&from);
}

TEST_F(Mlx5DcTest, RefusesWrongAttributes) {
  const auto refused = [&](int error, ibv_qp_init_attr_ex attr,
                           mlx5dv_qp_init_attr mlx5) {
    errno = 0;
    EXPECT_EQ(mlx5dv_create_qp(context_, &attr, &mlx5), nullptr);
    EXPECT_EQ(errno, error);
  };
  ibv_qp_init_attr_ex attr = OfInitiator(a_);
  attr.cap.max_recv_wr = 1;
  refused(EINVAL, attr, Initiator());
  attr = OfInitiator(a_);
  attr.cap.max_recv_sge = 1;
  refused(EINVAL, attr, Initiator());
  attr = OfInitiator(a_);
  attr.send_cq = nullptr;
  refused(EINVAL, attr, Initiator());
  attr = Attributes(target_);
  refused(EINVAL, attr, TargetWith(1));
  attr.srq = target_.srq;
  attr.recv_cq = nullptr;
  refused(EINVAL, attr, TargetWith(1));
  // An SRQ is tolerated at an initiator, and no send queue at a target.
  attr = OfInitiator(a_);
  attr.srq = target_.srq;
  mlx5dv_qp_init_attr mlx5 = Initiator();
  ibv_qp* qp = mlx5dv_create_qp(context_, &attr, &mlx5);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  attr = Attributes(target_);
  attr.srq = target_.srq;
  attr.send_cq = nullptr;
  mlx5 = TargetWith(1);
  qp = mlx5dv_create_qp(context_, &attr, &mlx5);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(Mlx5DcTest, ATargetNeitherSendsNorReceivesByItself) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTS;
  EXPECT_EQ(ibv_modify_qp(target_.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN),
            EINVAL);
  EXPECT_EQ(Receive(target_, 1, 0, 8), EINVAL);
  EXPECT_EQ(Send(target_, IBV_WR_SEND, 1, 0, 8), EINVAL);
  EXPECT_EQ(StateOf(target_.qp), IBV_QPS_RTR);
  ReceiveAt(&target_, 10, 0, 8);
  ASSERT_EQ(SendTo(a_, target_, 1, 0, 8), 0);
  ExpectSuccess(a_.cq, 1);
}

TEST_F(Mlx5DcTest, ARequestNeedsOneAddress) {
  EXPECT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 8), EINVAL);
  EXPECT_EQ(Receive(a_, 1, 0, 8), EINVAL);
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(a_.qp);
  mlx5dv_qp_ex* const mlx5 = mlx5dv_qp_ex_from_ibv_qp_ex(qp);
  const auto posted = [&](auto&& call) {
    ibv_wr_start(qp);
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(qp);
    ibv_wr_set_sge(qp, a_.mr->lkey, a_.address(), 8);
    call();
    return ibv_wr_complete(qp);
  };
  const uint32_t dctn = target_.qp->qp_num;
  EXPECT_EQ(posted([] {}), EINVAL);
  EXPECT_EQ(posted([&] { mlx5dv_wr_set_dc_addr(mlx5, nullptr, dctn, kKey); }),
            EINVAL);
  EXPECT_EQ(posted([&] {
              mlx5dv_wr_set_dc_addr(mlx5, ah_, dctn, kKey);
              mlx5dv_wr_set_dc_addr(mlx5, ah_, dctn, kKey);
            }),
            EINVAL);
  ibv_pd* const pd = ibv_alloc_pd(context_);
  ibv_ah* const other = MakeAh(pd);
  EXPECT_EQ(posted([&] { mlx5dv_wr_set_dc_addr(mlx5, other, dctn, kKey); }),
            EINVAL);
  EXPECT_EQ(ibv_destroy_ah(other), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  // RoCE has no address without a GRH.
  ibv_ah_attr local = {};
  local.port_num = 1;
  local.dlid = 1;
  errno = 0;
  EXPECT_EQ(ibv_create_ah(pd_, &local), nullptr);
  EXPECT_EQ(errno, EINVAL);
  // Setters before any request, and after an abort.
  ibv_wr_start(qp);
  mlx5dv_wr_set_dc_addr(mlx5, ah_, dctn, kKey);
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  ibv_wr_start(qp);
  ibv_wr_send(qp);
  mlx5dv_wr_set_dc_addr(mlx5, ah_, dctn, kKey);
  ibv_wr_abort(qp);
  ExpectNothing(a_.cq);
  ReceiveAt(&target_, 10, 0, 8);
  EXPECT_EQ(posted([&] { mlx5dv_wr_set_dc_addr(mlx5, ah_, dctn, kKey); }), 0);
  ExpectSuccess(target_.cq, 10);
}

TEST_F(Mlx5DcTest, NoAnswerToAWrongKeyOrNumber) {
  ConnectOptions options;
  options.timeout = 8;  // 1 ms
  options.retry_cnt = 1;
  const auto silent = [&](uint32_t dctn, uint64_t key) {
    MakeInitiator(&b_, options);
    ASSERT_EQ(
        PostTo(b_, dctn, key, 1, 0, 8, [](ibv_qp_ex* qp) { ibv_wr_send(qp); }),
        0);
    ExpectStatus(b_.cq, 1, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(StateOf(b_.qp), IBV_QPS_ERR);
    DestroySide(&b_);
  };
  silent(target_.qp->qp_num, kKey + 1);
  silent(target_.qp->qp_num ^ 0x100, kKey);
  silent(a_.qp->qp_num, kKey);
  // The initiator's own number as that of the target.
  MakeInitiator(&b_, options);
  ASSERT_EQ(PostTo(b_, b_.qp->qp_num, kKey, 1, 0, 8,
                   [](ibv_qp_ex* qp) { ibv_wr_send(qp); }),
            0);
  ExpectStatus(b_.cq, 1, IBV_WC_RETRY_EXC_ERR);
  DestroySide(&b_);
  // Connected queue pairs, which are not affected.
  Side c, d;
  MakeSide(&c);
  MakeSide(&d);
  Connect(&c, &d);
  ASSERT_EQ(Receive(d, 30, 0, 8), 0);
  silent(d.qp->qp_num, kKey);
  ExpectNothing(d.cq);
  EXPECT_EQ(StateOf(d.qp), IBV_QPS_RTS);
  ASSERT_EQ(Send(c, IBV_WR_SEND, 31, 0, 8), 0);
  ExpectSuccess(c.cq, 31);
  ExpectSuccess(d.cq, 30);
  DestroySide(&c);
  DestroySide(&d);
  // The DC key may be right in one request and wrong in the next.
  ReceiveAt(&target_, 10, 0, 8);
  MakeInitiator(&b_, options);
  ASSERT_EQ(SendTo(b_, target_, 1, 0, 8), 0);
  ASSERT_EQ(SendTo(b_, target_, 2, 0, 8, kKey + 1), 0);
  ExpectSuccess(b_.cq, 1);
  ExpectStatus(b_.cq, 2, IBV_WC_RETRY_EXC_ERR);
  // RESET makes it usable again.
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(b_.qp, &attr, IBV_QP_STATE), 0);
  ASSERT_EQ(InitiatorToRts(b_.qp), 0);
  ReceiveAt(&target_, 11, 0, 8);
  ASSERT_EQ(SendTo(b_, target_, 3, 0, 8), 0);
  ExpectSuccess(b_.cq, 3);
}

TEST_F(Mlx5DcTest, AnAccessErrorEndsTheConnectionOnly) {
  MakeInitiator(&b_);
  ASSERT_EQ(PostTo(b_, target_.qp->qp_num, kKey, 1, 0, 8,
                   [&](ibv_qp_ex* qp) {
                     ibv_wr_rdma_write(qp, target_.mr->rkey + 1,
                                       target_.address());
                   }),
            0);
  ExpectStatus(b_.cq, 1, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(StateOf(target_.qp), IBV_QPS_RTR);
  ReceiveAt(&target_, 10, 0, 8);
  ASSERT_EQ(SendTo(a_, target_, 2, 0, 8), 0);
  ExpectSuccess(a_.cq, 2);
  ExpectSuccess(target_.cq, 10);
  // The event at the target that its initiator's error causes.
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(event.element.qp, target_.qp);
  ibv_ack_async_event(&event);
}

TEST_F(Mlx5DcTest, ADestroyedTargetIsSilent) {
  ConnectOptions options;
  options.timeout = 8;
  options.retry_cnt = 1;
  MakeInitiator(&b_, options);
  ReceiveAt(&target_, 10, 0, 8);
  ASSERT_EQ(SendTo(b_, target_, 1, 0, 8), 0);
  ExpectSuccess(b_.cq, 1);
  const uint32_t dctn = target_.qp->qp_num;
  DestroyTarget(&target_);
  ASSERT_EQ(
      PostTo(b_, dctn, kKey, 2, 0, 8, [](ibv_qp_ex* qp) { ibv_wr_send(qp); }),
      0);
  ExpectStatus(b_.cq, 2, IBV_WC_RETRY_EXC_ERR);
}

// A device that does not look like mlx5 has no DC, whatever objects are passed.
TEST_F(Mlx5DcTest, NotOnAPlainDevice) {
  ibv_device** const list = ibv_get_device_list(nullptr);
  ibv_context* plain = nullptr;
  for (ibv_device** d = list; *d != nullptr; ++d) {
    if (std::strcmp(ibv_get_device_name(*d), "plain") == 0) {
      plain = ibv_open_device(*d);
    }
  }
  ibv_free_device_list(list);
  ASSERT_NE(plain, nullptr);
  ibv_qp_init_attr_ex attr = OfInitiator(a_);
  mlx5dv_qp_init_attr mlx5 = Initiator();
  EXPECT_EQ(mlx5dv_create_qp(plain, &attr, &mlx5), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  // ibv_create_qp_ex creates no DC queue pair on the other device either.
  errno = 0;
  EXPECT_EQ(ibv_create_qp_ex(context_, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);

  ibv_pd* const pd = ibv_alloc_pd(plain);
  ASSERT_NE(pd, nullptr);
  mlx5dv_mkey_init_attr mkey = {pd, MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 4};
  errno = 0;
  EXPECT_EQ(mlx5dv_create_mkey(&mkey), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_cq_init_attr_ex cq_attr = {};
  cq_attr.cqe = 1;
  errno = 0;
  EXPECT_EQ(mlx5dv_create_cq(plain, &cq_attr, nullptr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  uint32_t number;
  EXPECT_EQ(mlx5dv_reserved_qpn_alloc(plain, &number), EOPNOTSUPP);
  EXPECT_EQ(mlx5dv_reserved_qpn_dealloc(plain, 1), EOPNOTSUPP);
  mlx5dv_context device = {};
  EXPECT_EQ(mlx5dv_query_device(plain, &device), EOPNOTSUPP);
  mlx5dv_clock_info clock;
  EXPECT_EQ(mlx5dv_get_clock_info(plain, &clock), EOPNOTSUPP);

  ibv_ah* const ah = MakeAh(pd);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(mlx5dv_map_ah_to_qp(ah, 1), EOPNOTSUPP);
  ibv_cq* const cq = ibv_create_cq(plain, 4, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  attr = {};
  attr.qp_type = IBV_QPT_RC;
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {4, 4, 1, 1, 0};
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd;
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
  ibv_qp* const qp = ibv_create_qp_ex(plain, &attr);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(qp)), nullptr);
  EXPECT_EQ(mlx5dv_modify_qp_udp_sport(qp, 0xc001), EOPNOTSUPP);
  EXPECT_EQ(mlx5dv_dci_stream_id_reset(qp, 1), EOPNOTSUPP);
  // An address handle of the plain device at an initiator of the other one.
  ibv_qp_ex* const from = ibv_qp_to_qp_ex(a_.qp);
  ibv_wr_start(from);
  ibv_wr_send(from);
  mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(from), ah,
                        target_.qp->qp_num, kKey);
  ibv_wr_set_sge(from, a_.mr->lkey, a_.address(), 8);
  EXPECT_EQ(ibv_wr_complete(from), EINVAL);
  ExpectNothing(a_.cq);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_close_device(plain), 0);
}

}  // namespace
}  // namespace conformance
