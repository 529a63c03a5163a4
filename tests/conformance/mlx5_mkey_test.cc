// Memory keys of mlx5dv (mlx5dv_wr_post(3)) on a device that looks like mlx5.
#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

constexpr uint64_t kOperations = MLX5DV_QP_EX_WITH_MR_INTERLEAVED |
                                 MLX5DV_QP_EX_WITH_MR_LIST |
                                 MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;

class Mlx5MkeyTest : public PairTest {
 protected:
  Mlx5MkeyTest() { make_pair_ = false; }

  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    for (Side* side : {&a_, &b_}) {
      MakeQp(side, 512);
      if (HasFatalFailure()) return;
    }
    Connect(&a_, &b_);
    mkey_ = MakeMkey(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 32);
    ASSERT_NE(mkey_, nullptr) << std::strerror(errno);
  }
  void TearDown() override {
    if (mkey_ != nullptr) {
      EXPECT_EQ(mlx5dv_destroy_mkey(mkey_), 0);
    }
    PairTest::TearDown();
  }

  void MakeQp(Side* side, uint32_t max_inline) {
    side->cq = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
    side->memory.assign(kMemory, 0);
    side->mr = ibv_reg_mr(pd_, side->memory.data(), kMemory, kAllAccess);
    ASSERT_NE(side->mr, nullptr);
    ibv_qp_init_attr_ex attr = {};
    attr.send_cq = attr.recv_cq = side->cq;
    attr.cap = {16, 16, 1, 1, max_inline};
    attr.qp_type = IBV_QPT_RC;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd_;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_LOCAL_INV |
                          IBV_QP_EX_WITH_SEND_WITH_INV;
    mlx5dv_qp_init_attr mlx5 = {};
    mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    mlx5.send_ops_flags = kOperations;
    side->qp = mlx5dv_create_qp(context_, &attr, &mlx5);
    ASSERT_NE(side->qp, nullptr) << std::strerror(errno);
  }
  mlx5dv_mkey* MakeMkey(uint32_t flags, uint16_t entries) {
    mlx5dv_mkey_init_attr attr = {};
    attr.pd = pd_;
    attr.create_flags = flags;
    attr.max_entries = entries;
    errno = 0;
    mlx5dv_mkey* const mkey = mlx5dv_create_mkey(&attr);
    made_entries_ = attr.max_entries;
    return mkey;
  }
  static mlx5dv_qp_ex* Table(const Side& side) {
    return mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(side.qp));
  }
  // The result of ibv_wr_complete after `build`.
  template <typename Build>
  int Batch(Side& side, Build&& build,
            unsigned flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE) {
    ibv_qp_ex* const qp = ibv_qp_to_qp_ex(side.qp);
    ibv_wr_start(qp);
    qp->wr_id = 100;
    qp->wr_flags = flags;
    build(Table(side));
    return ibv_wr_complete(qp);
  }
  void Configure(Side& side, mlx5dv_mkey* mkey, std::vector<ibv_sge> list,
                 uint32_t access = kAllAccess) {
    ASSERT_EQ(Batch(side,
                    [&](mlx5dv_qp_ex* mlx5) {
                      mlx5dv_wr_mr_list(mlx5, mkey, access,
                                        static_cast<uint16_t>(list.size()),
                                        list.data());
                    }),
              0);
    EXPECT_EQ(ExpectSuccess(side.cq, 100).opcode,
              static_cast<ibv_wc_opcode>(MLX5DV_WC_UMR));
  }
  int Rdma(Side& side, ibv_wr_opcode opcode, uint64_t id, uint64_t addr,
           uint32_t length, uint32_t lkey, uint64_t remote, uint32_t rkey) {
    ibv_sge sge = {addr, length, lkey};
    ibv_send_wr wr = {};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    ibv_send_wr* bad;
    return ibv_post_send(side.qp, &wr, &bad);
  }

  mlx5dv_mkey* mkey_ = nullptr;
  uint16_t made_entries_ = 0;
};

TEST_F(Mlx5MkeyTest, CreatesAndDestroys) {
  EXPECT_EQ(mkey_->lkey, mkey_->rkey);
  EXPECT_EQ(made_entries_, 32);
  mlx5dv_mkey* const other =
      MakeMkey(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
                   MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG,
               5);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(made_entries_, 8);
  EXPECT_NE(other->lkey >> 8, mkey_->lkey >> 8);
  // A domain with a key is in use.
  EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);
  EXPECT_EQ(mlx5dv_destroy_mkey(other), 0);
  EXPECT_EQ(mlx5dv_destroy_mkey(other), EINVAL);
  EXPECT_EQ(mlx5dv_destroy_mkey(nullptr), EINVAL);
  for (const uint32_t flags : {0u, 1u << 20,
                               uint32_t{MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
                                        MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO}}) {
    EXPECT_EQ(MakeMkey(flags, 4), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  EXPECT_EQ(mlx5dv_create_mkey(nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  mlx5dv_mkey_init_attr attr = {};
  attr.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT;
  EXPECT_EQ(mlx5dv_create_mkey(&attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Mlx5MkeyTest, AListIsItsBytesInOrder) {
  Configure(a_, mkey_, {a_.Sge(0, 8), a_.Sge(64, 8), a_.Sge(32, 3)});
  FillPattern(a_.memory.data(), 100, 5);
  std::vector<uint8_t> bytes(a_.memory.begin(), a_.memory.begin() + 8);
  bytes.insert(bytes.end(), &a_.memory[64], &a_.memory[72]);
  bytes.insert(bytes.end(), &a_.memory[32], &a_.memory[35]);
  // As the source of a SEND.
  ASSERT_EQ(Receive(b_, 1, 0, 100), 0);
  ASSERT_EQ(Rdma(a_, IBV_WR_SEND, 2, 0, 19, mkey_->lkey, 0, 0), 0);
  ExpectSuccess(a_.cq, 2);
  EXPECT_EQ(ExpectSuccess(b_.cq, 1).byte_len, 19u);
  EXPECT_EQ(std::memcmp(b_.memory.data(), bytes.data(), 19), 0);
  // From an offset, as the target of a WRITE and of a READ by the peer.
  ASSERT_EQ(Rdma(b_, IBV_WR_RDMA_READ, 3, b_.address(500), 12, b_.mr->lkey, 5,
                 mkey_->rkey),
            0);
  ExpectSuccess(b_.cq, 3);
  EXPECT_EQ(std::memcmp(&b_.memory[500], &bytes[5], 12), 0);
  FillPattern(b_.memory.data(), 19, 9);
  ASSERT_EQ(Rdma(b_, IBV_WR_RDMA_WRITE, 4, b_.address(), 19, b_.mr->lkey, 0,
                 mkey_->rkey),
            0);
  ExpectSuccess(b_.cq, 4);
  EXPECT_EQ(std::memcmp(&a_.memory[0], &b_.memory[0], 8), 0);
  EXPECT_EQ(std::memcmp(&a_.memory[64], &b_.memory[8], 8), 0);
  EXPECT_EQ(std::memcmp(&a_.memory[32], &b_.memory[16], 3), 0);
}

TEST_F(Mlx5MkeyTest, AnInterleavedLayoutAgainstAPlainCopy) {
  std::mt19937 random(1);
  const auto below = [&](uint32_t limit) {
    return static_cast<uint32_t>(random() % limit);
  };
  FillPattern(a_.memory.data(), kMemory, 3);
  for (int round = 0; round < 50; ++round) {
    const uint32_t repeat = 1 + below(20);
    std::vector<mlx5dv_mr_interleaved> pieces(1 + below(5));
    for (size_t i = 0; i < pieces.size(); ++i) {
      pieces[i] = {a_.address(i * 150'000 + below(1000)), 1 + below(3000),
                   below(3000), a_.mr->lkey};
    }
    std::vector<uint8_t> plain;
    for (uint32_t r = 0; r < repeat; ++r) {
      for (const mlx5dv_mr_interleaved& piece : pieces) {
        const auto* from = reinterpret_cast<const uint8_t*>(
            piece.addr + uint64_t{r} * (piece.bytes_count + piece.bytes_skip));
        plain.insert(plain.end(), from, from + piece.bytes_count);
      }
    }
    const int error = Batch(a_, [&](mlx5dv_qp_ex* mlx5) {
      if (round % 2 == 0) {
        mlx5dv_wr_mr_interleaved(mlx5, mkey_, kAllAccess, repeat,
                                 static_cast<uint16_t>(pieces.size()),
                                 pieces.data());
        return;
      }
      mlx5dv_mkey_conf_attr attr = {};
      mlx5dv_wr_mkey_configure(mlx5, mkey_, 2, &attr);
      mlx5dv_wr_set_mkey_layout_interleaved(
          mlx5, repeat, static_cast<uint16_t>(pieces.size()), pieces.data());
      mlx5dv_wr_set_mkey_access_flags(mlx5, kAllAccess);
    });
    ASSERT_EQ(error, 0);
    ExpectSuccess(a_.cq, 100);
    const auto size = static_cast<uint32_t>(plain.size());
    const uint32_t offset = below(size);
    const uint32_t length = 1 + below(size - offset);
    ASSERT_EQ(Rdma(a_, IBV_WR_RDMA_WRITE, 1, offset, length, mkey_->lkey,
                   b_.address(), b_.mr->rkey),
              0);
    ExpectSuccess(a_.cq, 1);
    ASSERT_EQ(std::memcmp(b_.memory.data(), &plain[offset], length), 0)
        << round;
    ASSERT_EQ(Rdma(b_, IBV_WR_RDMA_READ, 2, b_.address(), length, b_.mr->lkey,
                   offset, mkey_->rkey),
              0);
    ExpectSuccess(b_.cq, 2);
    ASSERT_EQ(std::memcmp(b_.memory.data(), &plain[offset], length), 0)
        << round;
  }
}

TEST_F(Mlx5MkeyTest, BoundsRightsAndPiecesAreChecked) {
  // A new key is free: no access.
  ASSERT_EQ(Rdma(a_, IBV_WR_RDMA_WRITE, 1, 0, 8, mkey_->lkey, b_.address(),
                 b_.mr->rkey),
            0);
  ExpectStatus(a_.cq, 1, IBV_WC_LOC_PROT_ERR);
  DestroySide(&a_);
  DestroySide(&b_);
  for (Side* side : {&a_, &b_}) MakeQp(side, 512);
  Connect(&a_, &b_);
  // Beyond its length.
  Configure(a_, mkey_, {a_.Sge(0, 8), a_.Sge(64, 8)},
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  ASSERT_EQ(Rdma(b_, IBV_WR_RDMA_READ, 2, b_.address(), 17, b_.mr->lkey, 0,
                 mkey_->rkey),
            0);
  ExpectStatus(b_.cq, 2, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Mlx5MkeyTest, ARightThatWasNotGivenIsRefused) {
  Configure(a_, mkey_, {a_.Sge(0, 8)}, IBV_ACCESS_REMOTE_READ);
  ASSERT_EQ(Rdma(b_, IBV_WR_RDMA_READ, 1, b_.address(), 8, b_.mr->lkey, 0,
                 mkey_->rkey),
            0);
  ExpectSuccess(b_.cq, 1);
  ASSERT_EQ(Rdma(b_, IBV_WR_RDMA_WRITE, 2, b_.address(), 8, b_.mr->lkey, 0,
                 mkey_->rkey),
            0);
  ExpectStatus(b_.cq, 2, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Mlx5MkeyTest, ARegionThatIsGoneFailsTheAccess) {
  std::vector<uint8_t> memory(64);
  ibv_mr* const mr = ibv_reg_mr(pd_, memory.data(), memory.size(), kAllAccess);
  ASSERT_NE(mr, nullptr);
  Configure(a_, mkey_,
            {{reinterpret_cast<uint64_t>(memory.data()), 8, mr->lkey}});
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  ASSERT_EQ(Rdma(b_, IBV_WR_RDMA_WRITE, 1, b_.address(), 8, b_.mr->lkey, 0,
                 mkey_->rkey),
            0);
  ExpectStatus(b_.cq, 1, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Mlx5MkeyTest, InvalidatedKeysAreFreeAgain) {
  Configure(a_, mkey_, {a_.Sge(0, 8)});
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(a_.qp);
  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_local_inv(qp, mkey_->lkey);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  ExpectSuccess(a_.cq, 1);
  // The key can be configured again.
  Configure(a_, mkey_, {a_.Sge(16, 8)});
  FillPattern(a_.memory.data(), 64, 4);
  ASSERT_EQ(Rdma(b_, IBV_WR_RDMA_READ, 2, b_.address(), 8, b_.mr->lkey, 0,
                 mkey_->rkey),
            0);
  ExpectSuccess(b_.cq, 2);
  EXPECT_EQ(std::memcmp(b_.memory.data(), &a_.memory[16], 8), 0);
  // Free: no access.
  ibv_wr_start(qp);
  qp->wr_id = 1;
  ibv_wr_local_inv(qp, mkey_->lkey);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  ExpectSuccess(a_.cq, 1);
  ASSERT_EQ(Rdma(b_, IBV_WR_RDMA_READ, 3, b_.address(), 8, b_.mr->lkey, 0,
                 mkey_->rkey),
            0);
  ExpectStatus(b_.cq, 3, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Mlx5MkeyTest, APeerInvalidatesOnlyKeysThatPermitIt) {
  mlx5dv_mkey* const permits =
      MakeMkey(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
                   MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE,
               4);
  ASSERT_NE(permits, nullptr);
  Configure(a_, permits, {a_.Sge(0, 8)});
  Configure(a_, mkey_, {a_.Sge(0, 8)});
  const auto invalidate = [&](uint32_t rkey) {
    ASSERT_EQ(Receive(a_, 5, 100, 8), 0);
    ibv_qp_ex* const qp = ibv_qp_to_qp_ex(b_.qp);
    ibv_wr_start(qp);
    qp->wr_id = 6;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send_inv(qp, rkey);
    ibv_wr_set_sge(qp, b_.mr->lkey, b_.address(), 8);
    ASSERT_EQ(ibv_wr_complete(qp), 0);
  };
  invalidate(permits->rkey);
  ExpectSuccess(b_.cq, 6);
  const ibv_wc wc = ExpectSuccess(a_.cq, 5);
  EXPECT_NE(wc.wc_flags & IBV_WC_WITH_INV, 0u);
  EXPECT_EQ(wc.invalidated_rkey, permits->rkey);
  invalidate(mkey_->rkey);
  EXPECT_NE(Next(b_.cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(mlx5dv_destroy_mkey(permits), 0);
}

TEST_F(Mlx5MkeyTest, WrongCallsFailTheBatchAndPostNothing) {
  ibv_sge sges[40];
  for (ibv_sge& sge : sges) sge = a_.Sge(0, 8);
  mlx5dv_mr_interleaved piece = {a_.address(), 8, 8, a_.mr->lkey};
  mlx5dv_mkey_conf_attr attr = {};
  const auto fails = [&](int error, auto&& build) {
    EXPECT_EQ(Batch(a_, build), error);
  };
  // Without IBV_SEND_INLINE.
  EXPECT_EQ(
      Batch(
          a_, [&](mlx5dv_qp_ex* q) { mlx5dv_wr_mr_list(q, mkey_, 1, 1, sges); },
          IBV_SEND_SIGNALED),
      EOPNOTSUPP);
  fails(ENOMEM, [&](auto* q) { mlx5dv_wr_mr_list(q, mkey_, 1, 33, sges); });
  fails(EINVAL, [&](auto* q) { mlx5dv_wr_mr_list(q, mkey_, 1, 0, sges); });
  fails(EINVAL, [&](auto* q) { mlx5dv_wr_mr_list(q, mkey_, 1, 1, nullptr); });
  fails(EINVAL, [&](auto* q) { mlx5dv_wr_mr_list(q, nullptr, 1, 1, sges); });
  fails(EINVAL, [&](auto* q) { mlx5dv_wr_mr_list(q, mkey_, 1 << 6, 1, sges); });
  fails(EINVAL,
        [&](auto* q) { mlx5dv_wr_mr_interleaved(q, mkey_, 1, 0, 1, &piece); });
  piece.bytes_count = 65536;
  piece.bytes_skip = 0;
  fails(EINVAL,
        [&](auto* q) { mlx5dv_wr_mr_interleaved(q, mkey_, 1, 1, 1, &piece); });
  piece.bytes_count = 1;
  piece.bytes_skip = 0xffffffff;
  fails(EINVAL,
        [&](auto* q) { mlx5dv_wr_mr_interleaved(q, mkey_, 1, 1, 1, &piece); });
  // Setters: too few, too many, twice, none of a configuration.
  fails(EINVAL, [&](auto* q) { mlx5dv_wr_mkey_configure(q, mkey_, 1, &attr); });
  fails(EINVAL, [&](auto* q) {
    mlx5dv_wr_mkey_configure(q, mkey_, 2, &attr);
    mlx5dv_wr_set_mkey_access_flags(q, 1);
  });
  fails(EINVAL, [&](auto* q) {
    mlx5dv_wr_mkey_configure(q, mkey_, 1, &attr);
    mlx5dv_wr_set_mkey_access_flags(q, 1);
    mlx5dv_wr_set_mkey_layout_list(q, 1, sges);
  });
  fails(EINVAL, [&](auto* q) {
    mlx5dv_wr_mkey_configure(q, mkey_, 2, &attr);
    mlx5dv_wr_set_mkey_access_flags(q, 1);
    mlx5dv_wr_set_mkey_access_flags(q, 1);
  });
  fails(EINVAL, [&](auto* q) {
    mlx5dv_wr_mkey_configure(q, mkey_, 2, &attr);
    mlx5dv_wr_set_mkey_layout_list(q, 1, sges);
    mlx5dv_wr_set_mkey_layout_interleaved(q, 1, 1, &piece);
  });
  fails(EINVAL, [&](auto* q) { mlx5dv_wr_set_mkey_access_flags(q, 1); });
  // Too few setters, and a complete configuration after that one.
  fails(EINVAL, [&](auto* q) {
    mlx5dv_wr_mkey_configure(q, mkey_, 2, &attr);
    mlx5dv_wr_set_mkey_access_flags(q, 1);
    mlx5dv_wr_mkey_configure(q, mkey_, 1, &attr);
    mlx5dv_wr_set_mkey_access_flags(q, 1);
  });
  // An error between the setters stays, and so does one before.
  fails(EOPNOTSUPP, [&](auto* q) {
    mlx5dv_wr_mkey_configure(q, mkey_, 1, &attr);
    mlx5dv_wr_set_mkey_crypto(q, nullptr);
    mlx5dv_wr_set_mkey_access_flags(q, 1);
  });
  fails(EOPNOTSUPP, [&](auto* q) {
    mlx5dv_wr_set_mkey_crypto(q, nullptr);
    mlx5dv_wr_mkey_configure(q, mkey_, 1, &attr);
    mlx5dv_wr_set_mkey_access_flags(q, 1);
  });
  attr.comp_mask = 1;
  fails(EOPNOTSUPP,
        [&](auto* q) { mlx5dv_wr_mkey_configure(q, mkey_, 0, &attr); });
  attr = {};
  attr.conf_flags = 2;
  fails(EOPNOTSUPP,
        [&](auto* q) { mlx5dv_wr_mkey_configure(q, mkey_, 0, &attr); });
  fails(EINVAL,
        [&](auto* q) { mlx5dv_wr_mkey_configure(q, mkey_, 0, nullptr); });
  // A destroyed key.
  mlx5dv_mkey* const gone = MakeMkey(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 4);
  EXPECT_EQ(mlx5dv_destroy_mkey(gone), 0);
  fails(EINVAL, [&](auto* q) { mlx5dv_wr_mr_list(q, gone, 1, 1, sges); });
  // Aborted in the middle.
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(a_.qp);
  ibv_wr_start(qp);
  qp->wr_flags = IBV_SEND_INLINE;
  attr = {};
  mlx5dv_wr_mkey_configure(Table(a_), mkey_, 2, &attr);
  ibv_wr_abort(qp);
  ExpectNothing(a_.cq);
  Configure(a_, mkey_, {a_.Sge(0, 8)});
}

// Without inline data a work request has space for four entries, one of which
// an interleaved layout needs itself.
TEST_F(Mlx5MkeyTest, ADefaultWorkRequestHoldsFourEntries) {
  DestroySide(&a_);
  DestroySide(&b_);
  for (Side* side : {&a_, &b_}) MakeQp(side, 0);
  Connect(&a_, &b_);
  std::vector<ibv_sge> sges(5, a_.Sge(0, 8));
  std::vector<mlx5dv_mr_interleaved> pieces(4,
                                            {a_.address(), 8, 8, a_.mr->lkey});
  const auto list = [&](uint16_t count) {
    return Batch(a_, [&](mlx5dv_qp_ex* q) {
      mlx5dv_wr_mr_list(q, mkey_, 1, count, sges.data());
    });
  };
  const auto interleaved = [&](uint16_t count) {
    return Batch(a_, [&](mlx5dv_qp_ex* q) {
      mlx5dv_wr_mr_interleaved(q, mkey_, 1, 1, count, pieces.data());
    });
  };
  EXPECT_EQ(list(5), ENOMEM);
  EXPECT_EQ(interleaved(4), ENOMEM);
  EXPECT_EQ(list(4), 0);
  EXPECT_EQ(interleaved(3), 0);
  ExpectSuccess(a_.cq, 100);
  ExpectSuccess(a_.cq, 100);
}

// Properties that a configuration does not set keep their values.
TEST_F(Mlx5MkeyTest, AccessAndLayoutAreSetApart) {
  Configure(a_, mkey_, {a_.Sge(8, 8)}, IBV_ACCESS_REMOTE_READ);
  FillPattern(a_.memory.data(), 64, 6);
  mlx5dv_mkey_conf_attr attr = {};
  ASSERT_EQ(Batch(a_,
                  [&](auto* q) {
                    mlx5dv_wr_mkey_configure(q, mkey_, 1, &attr);
                    ibv_sge sge = a_.Sge(24, 8);
                    mlx5dv_wr_set_mkey_layout_list(q, 1, &sge);
                  }),
            0);
  ExpectSuccess(a_.cq, 100);
  ASSERT_EQ(Rdma(b_, IBV_WR_RDMA_READ, 1, b_.address(), 8, b_.mr->lkey, 0,
                 mkey_->rkey),
            0);
  ExpectSuccess(b_.cq, 1);
  EXPECT_EQ(std::memcmp(b_.memory.data(), &a_.memory[24], 8), 0);
  ASSERT_EQ(Batch(a_,
                  [&](auto* q) {
                    attr.conf_flags = MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR;
                    mlx5dv_wr_mkey_configure(q, mkey_, 1, &attr);
                    mlx5dv_wr_set_mkey_access_flags(q, 0);
                  }),
            0);
  ExpectSuccess(a_.cq, 100);
  ASSERT_EQ(Rdma(b_, IBV_WR_RDMA_READ, 2, b_.address(), 8, b_.mr->lkey, 0,
                 mkey_->rkey),
            0);
  ExpectStatus(b_.cq, 2, IBV_WC_REM_ACCESS_ERR);
}

}  // namespace
}  // namespace conformance
