// Block signatures of memory keys (mlx5dv_wr_set_mkey_sig_block(3),
// mlx5dv_mkey_check(3), mlx5dv_qp_cancel_posted_send_wrs(3)).
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

constexpr uint32_t kSigned = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
                             MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE;

// A domain with all that it points to.
struct Domain {
  mlx5dv_sig_t10dif dif = {};
  mlx5dv_sig_crc crc = {};
  mlx5dv_sig_block_domain domain = {};

  static Domain Crc(mlx5dv_sig_crc_type type, uint64_t seed,
                    mlx5dv_block_size size = MLX5DV_BLOCK_SIZE_512) {
    Domain made;
    made.crc = {type, seed};
    made.domain.sig_type = MLX5DV_SIG_TYPE_CRC;
    made.domain.block_size = size;
    return made;
  }
  static Domain T10(uint16_t app_tag, uint32_t ref_tag) {
    Domain made;
    made.dif = {MLX5DV_SIG_T10DIF_CRC, 0, app_tag, ref_tag,
                MLX5DV_SIG_T10DIF_FLAG_REF_REMAP};
    made.domain.sig_type = MLX5DV_SIG_TYPE_T10DIF;
    made.domain.block_size = MLX5DV_BLOCK_SIZE_512;
    return made;
  }
  const mlx5dv_sig_block_domain* get() {
    if (domain.sig_type == MLX5DV_SIG_TYPE_CRC) {
      domain.sig.crc = &crc;
    } else {
      domain.sig.dif = &dif;
    }
    return &domain;
  }
};

// CRC-32C, bit by bit, as RFC 3720 defines it.
uint32_t Crc32c(const uint8_t* bytes, size_t size) {
  uint32_t crc = 0xffffffff;
  for (size_t i = 0; i < size; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
    }
  }
  return ~crc;
}

class Mlx5SignatureTest : public PairTest {
 protected:
  Mlx5SignatureTest() { make_pair_ = false; }

  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    MakePair(512, 0);
  }
  void TearDown() override {
    for (mlx5dv_mkey* const mkey : mkeys_) {
      EXPECT_EQ(mlx5dv_destroy_mkey(mkey), 0);
    }
    PairTest::TearDown();
  }

  void MakePair(uint32_t max_inline, uint32_t flags) {
    for (Side* side : {&a_, &b_}) {
      if (side->qp != nullptr) DestroySide(side);
      MakeQp(side, max_inline, flags);
      if (HasFatalFailure()) return;
    }
    Connect(&a_, &b_);
    FillPattern(a_.memory.data(), kMemory, 1);
  }
  void MakeQp(Side* side, uint32_t max_inline, uint32_t flags) {
    side->cq = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
    side->memory.assign(kMemory, 0);
    side->mr = ibv_reg_mr(pd_, side->memory.data(), kMemory, kAllAccess);
    ASSERT_NE(side->mr, nullptr);
    ibv_qp_init_attr_ex attr = {};
    attr.send_cq = attr.recv_cq = side->cq;
    attr.cap = {32, 16, 4, 4, max_inline};
    attr.qp_type = IBV_QPT_RC;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd_;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_LOCAL_INV;
    mlx5dv_qp_init_attr mlx5 = {};
    mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS |
                     MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
    mlx5.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;
    mlx5.create_flags = flags;
    side->qp = mlx5dv_create_qp(context_, &attr, &mlx5);
    ASSERT_NE(side->qp, nullptr) << std::strerror(errno);
  }
  mlx5dv_mkey* MakeMkey(uint32_t flags = kSigned) {
    mlx5dv_mkey_init_attr attr = {};
    attr.pd = pd_;
    attr.create_flags = flags;
    attr.max_entries = 32;
    mlx5dv_mkey* const mkey = mlx5dv_create_mkey(&attr);
    EXPECT_NE(mkey, nullptr) << std::strerror(errno);
    mkeys_.push_back(mkey);
    return mkey;
  }
  static mlx5dv_qp_ex* Table(const Side& side) {
    return mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(side.qp));
  }
  // The result of ibv_wr_complete of a configuration.
  int TryConfigure(Side& side, mlx5dv_mkey* mkey, std::vector<ibv_sge> list,
                   const mlx5dv_sig_block_attr* signature,
                   uint32_t conf_flags = 0) {
    ibv_qp_ex* const qp = ibv_qp_to_qp_ex(side.qp);
    mlx5dv_qp_ex* const mlx5 = Table(side);
    mlx5dv_mkey_conf_attr attr = {};
    attr.conf_flags = conf_flags;
    ibv_wr_start(qp);
    qp->wr_id = 100;
    qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    mlx5dv_wr_mkey_configure(
        mlx5, mkey, static_cast<uint8_t>(signature != nullptr ? 3 : 2), &attr);
    mlx5dv_wr_set_mkey_access_flags(mlx5, kAllAccess);
    if (signature != nullptr) mlx5dv_wr_set_mkey_sig_block(mlx5, signature);
    mlx5dv_wr_set_mkey_layout_list(mlx5, static_cast<uint16_t>(list.size()),
                                   list.data());
    return ibv_wr_complete(qp);
  }
  void Configure(Side& side, mlx5dv_mkey* mkey, std::vector<ibv_sge> list,
                 Domain* memory, Domain* wire, uint8_t check_mask = 0xff) {
    mlx5dv_sig_block_attr attr = {};
    attr.mem = memory != nullptr ? memory->get() : nullptr;
    attr.wire = wire != nullptr ? wire->get() : nullptr;
    attr.check_mask = check_mask;
    ASSERT_EQ(TryConfigure(side, mkey, std::move(list), &attr), 0);
    EXPECT_EQ(ExpectSuccess(side.cq, 100).opcode,
              static_cast<ibv_wc_opcode>(MLX5DV_WC_UMR));
  }
  int Post(Side& side, ibv_wr_opcode opcode, uint64_t id,
           std::vector<ibv_sge> list, uint64_t remote = 0, uint32_t rkey = 0,
           unsigned flags = IBV_SEND_SIGNALED) {
    ibv_send_wr wr = {};
    wr.wr_id = id;
    wr.sg_list = list.data();
    wr.num_sge = static_cast<int>(list.size());
    wr.opcode = opcode;
    wr.send_flags = flags;
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    ibv_send_wr* bad;
    return ibv_post_send(side.qp, &wr, &bad);
  }
  int PostReceive(Side& side, uint64_t id, ibv_sge sge) {
    ibv_recv_wr wr = {};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad;
    return ibv_post_recv(side.qp, &wr, &bad);
  }
  mlx5dv_mkey_err Check(mlx5dv_mkey* mkey) {
    mlx5dv_mkey_err error;
    std::memset(&error, 0xa5, sizeof(error));
    EXPECT_EQ(mlx5dv_mkey_check(mkey, &error), 0);
    return error;
  }

  std::vector<mlx5dv_mkey*> mkeys_;
};

// Examples 1 and 1.1 of the manual page.
TEST_F(Mlx5SignatureTest, SendStripsAndReceiveAdds) {
  Domain crc = Domain::Crc(MLX5DV_SIG_CRC_TYPE_CRC32C, 0xffffffff);
  mlx5dv_mkey* const from = MakeMkey();
  mlx5dv_mkey* const to = MakeMkey();
  for (size_t block = 0; block < 8; ++block) {
    uint8_t* const bytes = a_.memory.data() + block * 516;
    const uint32_t guard = Crc32c(bytes, 512);
    std::memcpy(bytes + 512, &guard, sizeof(guard));
  }
  Configure(a_, from, {a_.Sge(0, 8 * 516)}, &crc, nullptr);
  Configure(b_, to, {b_.Sge(0, 8 * 516)}, &crc, nullptr);
  ASSERT_EQ(PostReceive(b_, 1, {0, 8 * 512, to->lkey}), 0);
  ASSERT_EQ(Post(a_, IBV_WR_SEND, 2, {{0, 8 * 512, from->lkey}}), 0);
  ExpectSuccess(a_.cq, 2);
  EXPECT_EQ(ExpectSuccess(b_.cq, 1).byte_len, 8u * 512);
  EXPECT_TRUE(std::equal(b_.memory.begin(), b_.memory.begin() + 8 * 516,
                         a_.memory.begin()));
  EXPECT_EQ(Check(from).err_type, MLX5DV_MKEY_NO_ERR);
  EXPECT_EQ(Check(to).err_type, MLX5DV_MKEY_NO_ERR);

  // A wrong byte of block 3: the message arrives, and the error is reported
  // once.
  a_.memory[3 * 516 + 100] ^= 1;
  ASSERT_EQ(PostReceive(b_, 3, {0, 8 * 512, to->lkey}), 0);
  ASSERT_EQ(Post(a_, IBV_WR_SEND, 4, {{0, 8 * 512, from->lkey}}), 0);
  ExpectSuccess(a_.cq, 4);
  ExpectSuccess(b_.cq, 3);
  const mlx5dv_mkey_err error = Check(from);
  EXPECT_EQ(error.err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD);
  EXPECT_EQ(error.err.sig.offset, 3u * 516);
  EXPECT_EQ(error.err.sig.actual_value,
            Crc32c(a_.memory.data() + 3 * 516, 512));
  uint32_t guard;
  std::memcpy(&guard, a_.memory.data() + 3 * 516 + 512, sizeof(guard));
  EXPECT_EQ(error.err.sig.expected_value, guard);
  EXPECT_EQ(Check(from).err_type, MLX5DV_MKEY_NO_ERR);
  EXPECT_EQ(Check(to).err_type, MLX5DV_MKEY_NO_ERR);
}

// Examples 2 and 2.1: a peer READs and WRITEs the wire form.
TEST_F(Mlx5SignatureTest, ReadInsertsAndWriteStrips) {
  constexpr uint32_t kBlocks = 200;
  constexpr uint32_t kData = kBlocks * 512;
  constexpr uint32_t kWire = kBlocks * 520;
  Domain t10 = Domain::T10(0xabcd, 0x01234567);
  mlx5dv_mkey* const mkey = MakeMkey();
  Configure(a_, mkey, {a_.Sge(0, 1000), a_.Sge(1000, kData - 1000)}, nullptr,
            &t10);
  ASSERT_EQ(Post(b_, IBV_WR_RDMA_READ, 1, {b_.Sge(0, kWire)}, 0, mkey->rkey),
            0);
  ExpectSuccess(b_.cq, 1);
  for (uint32_t block = 0; block < kBlocks; ++block) {
    const uint8_t* const wire = b_.memory.data() + block * 520;
    ASSERT_EQ(std::memcmp(wire, a_.memory.data() + block * 512, 512), 0);
    const uint32_t ref = 0x01234567 + block;
    const uint8_t tags[] = {0xab,
                            0xcd,
                            static_cast<uint8_t>(ref >> 24),
                            static_cast<uint8_t>(ref >> 16),
                            static_cast<uint8_t>(ref >> 8),
                            static_cast<uint8_t>(ref)};
    ASSERT_EQ(std::memcmp(wire + 514, tags, sizeof(tags)), 0) << block;
  }
  // Back, into zeros.
  std::vector<uint8_t> data(a_.memory.begin(), a_.memory.begin() + kData);
  std::fill(a_.memory.begin(), a_.memory.end(), uint8_t{0});
  ASSERT_EQ(Post(b_, IBV_WR_RDMA_WRITE, 2, {b_.Sge(0, kWire)}, 0, mkey->rkey),
            0);
  ExpectSuccess(b_.cq, 2);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), a_.memory.begin()));
  EXPECT_EQ(Check(mkey).err_type, MLX5DV_MKEY_NO_ERR);

  b_.memory[77 * 520 + 519] ^= 0x40;
  ASSERT_EQ(Post(b_, IBV_WR_RDMA_WRITE, 3, {b_.Sge(0, kWire)}, 0, mkey->rkey),
            0);
  ExpectSuccess(b_.cq, 3);
  const mlx5dv_mkey_err error = Check(mkey);
  EXPECT_EQ(error.err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG);
  EXPECT_EQ(error.err.sig.actual_value, 0x01234567u + 77);
  EXPECT_EQ(error.err.sig.expected_value, (0x01234567u + 77) ^ 0x40);
  EXPECT_EQ(error.err.sig.offset, 77u * 520);
  // Beyond the wire form, the access is denied.
  ASSERT_EQ(
      Post(b_, IBV_WR_RDMA_WRITE, 4, {b_.Sge(0, kWire + 1)}, 0, mkey->rkey), 0);
  ExpectStatus(b_.cq, 4, IBV_WC_REM_ACCESS_ERR);
}

// Another signature at each end, and the application tag is wrong.
TEST_F(Mlx5SignatureTest, ConvertsBetweenTwoSignatures) {
  Domain crc = Domain::Crc(MLX5DV_SIG_CRC_TYPE_CRC64_XP10, ~uint64_t{0},
                           MLX5DV_BLOCK_SIZE_4160);
  Domain t10 = Domain::T10(1, 1);
  Domain other = Domain::T10(2, 1);
  mlx5dv_mkey* const from = MakeMkey();
  mlx5dv_mkey* const to = MakeMkey();
  constexpr uint32_t kData = 4160 * 16;
  constexpr uint32_t kWire = kData + kData / 512 * 8;
  Configure(a_, from, {a_.Sge(0, 16 * 4168)}, &crc, &t10, 0);
  Configure(b_, to, {b_.Sge(0, 16 * 4168)}, &crc, &other);
  ASSERT_EQ(PostReceive(b_, 1, {0, kWire, to->lkey}), 0);
  ASSERT_EQ(Post(a_, IBV_WR_SEND, 2, {{0, kWire, from->lkey}}), 0);
  ExpectSuccess(a_.cq, 2);
  EXPECT_EQ(ExpectSuccess(b_.cq, 1).byte_len, kWire);
  for (size_t block = 0; block < 16; ++block) {
    EXPECT_EQ(std::memcmp(a_.memory.data() + block * 4168,
                          b_.memory.data() + block * 4168, 4160),
              0);
  }
  EXPECT_EQ(Check(from).err_type, MLX5DV_MKEY_NO_ERR);
  const mlx5dv_mkey_err error = Check(to);
  EXPECT_EQ(error.err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG);
  EXPECT_EQ(error.err.sig.actual_value, 2u);
  EXPECT_EQ(error.err.sig.expected_value, 1u);
  EXPECT_EQ(error.err.sig.offset, 0u);
}

// A header in plain memory, and a block whose CRC-32C goes elsewhere: as in
// programs that were written for cards.
TEST_F(Mlx5SignatureTest, AHeaderBeforeTheBlock) {
  Domain crc = Domain::Crc(MLX5DV_SIG_CRC_TYPE_CRC32C, 0xffffffff,
                           MLX5DV_BLOCK_SIZE_4096);
  mlx5dv_mkey* const mkey = MakeMkey();
  std::fill_n(b_.memory.begin(), 4116, uint8_t{'a'});
  Configure(a_, mkey, {a_.Sge(8192, 4096), a_.Sge(16384, 4)}, &crc, nullptr);
  ASSERT_EQ(
      Post(a_, IBV_WR_RDMA_READ, 1, {a_.Sge(0, 20), {0, 4096, mkey->lkey}},
           b_.address(), b_.mr->rkey),
      0);
  ExpectSuccess(a_.cq, 1);
  uint32_t guard;
  std::memcpy(&guard, a_.memory.data() + 16384, sizeof(guard));
  EXPECT_EQ(guard, 0x26c74ca2u);
  EXPECT_EQ(a_.memory[8192 + 4095], 'a');
  EXPECT_EQ(Check(mkey).err_type, MLX5DV_MKEY_NO_ERR);
}

TEST_F(Mlx5SignatureTest, StaysUntilItIsReset) {
  Domain crc = Domain::Crc(MLX5DV_SIG_CRC_TYPE_CRC32, 0);
  mlx5dv_mkey* const mkey = MakeMkey();
  Configure(a_, mkey, {a_.Sge(0, 512)}, nullptr, &crc);
  const auto reads = [&](uint32_t length) {
    EXPECT_EQ(Post(b_, IBV_WR_RDMA_READ, 1, {b_.Sge(0, length)}, 0, mkey->rkey),
              0);
    return Next(b_.cq).status == IBV_WC_SUCCESS;
  };
  EXPECT_TRUE(reads(516));
  ASSERT_EQ(TryConfigure(a_, mkey, {a_.Sge(0, 1024)}, nullptr), 0);
  ExpectSuccess(a_.cq, 100);
  EXPECT_TRUE(reads(1032));
  ASSERT_EQ(TryConfigure(a_, mkey, {a_.Sge(0, 1024)}, nullptr,
                         MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR),
            0);
  ExpectSuccess(a_.cq, 100);
  EXPECT_TRUE(reads(1024));
  EXPECT_FALSE(reads(1025));
}

TEST_F(Mlx5SignatureTest, WrongSignaturesFailTheBatch) {
  mlx5dv_mkey* const mkey = MakeMkey();
  const auto refused = [&](auto&& change, int error = EINVAL) {
    Domain memory = Domain::Crc(MLX5DV_SIG_CRC_TYPE_CRC32C, 0);
    Domain wire = Domain::T10(1, 1);
    mlx5dv_sig_block_attr attr = {};
    memory.get();
    wire.get();
    attr.mem = &memory.domain;
    attr.wire = &wire.domain;
    change(&attr, &memory, &wire);
    EXPECT_EQ(TryConfigure(a_, mkey, {a_.Sge(0, 512)}, &attr), error);
  };
  refused([](auto* attr, auto*, auto*) { attr->mem = attr->wire = nullptr; });
  refused([](auto* attr, auto*, auto*) { attr->comp_mask = 1; });
  refused([](auto* attr, auto*, auto*) { attr->flags = 2; });
  // Copies, between different structures.
  refused([](auto* attr, auto*, auto*) {
    attr->flags = MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK;
  });
  refused([](auto* attr, auto*, auto*) {
    attr->flags = MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK;
    attr->wire = nullptr;
  });
  for (const int size : {-1, 5, 512}) {
    refused([&](auto*, Domain* memory, auto*) {
      std::memcpy(&memory->domain.block_size, &size, sizeof(size));
    });
  }
  refused([](auto*, Domain* memory, auto*) { memory->domain.comp_mask = 1; });
  refused(
      [](auto*, Domain* memory, auto*) { memory->domain.sig.crc = nullptr; });
  refused([](auto*, auto*, Domain* wire) { wire->domain.sig.dif = nullptr; });
  refused([](auto*, Domain* memory, auto*) { memory->crc.seed = 1; });
  for (const int type : {-1, 3}) {
    refused([&](auto*, Domain* memory, auto*) {
      std::memcpy(&memory->crc.type, &type, sizeof(type));
    });
    refused([&](auto*, Domain* memory, auto*) {
      std::memcpy(&memory->domain.sig_type, &type, sizeof(type));
    });
    refused([&](auto*, auto*, Domain* wire) {
      std::memcpy(&wire->dif.bg_type, &type, sizeof(type));
    });
  }
  refused([](auto*, auto*, Domain* wire) { wire->dif.bg = 1; });
  refused([](auto*, auto*, Domain* wire) { wire->dif.flags = 8; });

  Domain crc = Domain::Crc(MLX5DV_SIG_CRC_TYPE_CRC32, 0);
  mlx5dv_sig_block_attr good = {};
  good.wire = crc.get();
  // A key that was not created for them, and the setter alone or twice.
  mlx5dv_mkey* const plain = MakeMkey(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT);
  EXPECT_EQ(TryConfigure(a_, plain, {a_.Sge(0, 8)}, &good), EINVAL);
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(a_.qp);
  mlx5dv_mkey_conf_attr conf = {};
  ibv_wr_start(qp);
  mlx5dv_wr_set_mkey_sig_block(Table(a_), &good);
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  ibv_wr_start(qp);
  qp->wr_flags = IBV_SEND_INLINE;
  mlx5dv_wr_mkey_configure(Table(a_), mkey, 2, &conf);
  mlx5dv_wr_set_mkey_sig_block(Table(a_), &good);
  mlx5dv_wr_set_mkey_sig_block(Table(a_), &good);
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  ExpectNothing(a_.cq);

  // Checks.
  mlx5dv_mkey_err error;
  EXPECT_EQ(mlx5dv_mkey_check(plain, &error), EINVAL);
  EXPECT_EQ(mlx5dv_mkey_check(nullptr, &error), EINVAL);
  EXPECT_EQ(mlx5dv_mkey_check(mkey, nullptr), EINVAL);
  EXPECT_EQ(_mlx5dv_mkey_check(mkey, &error, 4), EINVAL);
  EXPECT_EQ(Check(mkey).err_type, MLX5DV_MKEY_NO_ERR);
}

// Signatures take the space of two entries.
TEST_F(Mlx5SignatureTest, TheyShareTheSpaceOfTheLayout) {
  MakePair(0, 0);
  mlx5dv_mkey* const mkey = MakeMkey();
  Domain crc = Domain::Crc(MLX5DV_SIG_CRC_TYPE_CRC32, 0);
  mlx5dv_sig_block_attr attr = {};
  attr.wire = crc.get();
  std::vector<ibv_sge> list(3, a_.Sge(0, 512));
  EXPECT_EQ(TryConfigure(a_, mkey, list, &attr), ENOMEM);
  list.pop_back();
  EXPECT_EQ(TryConfigure(a_, mkey, list, &attr), 0);
  ExpectSuccess(a_.cq, 100);
}

TEST_F(Mlx5SignatureTest, AtomicsAreRefused) {
  mlx5dv_mkey* const mkey = MakeMkey();
  Domain crc = Domain::Crc(MLX5DV_SIG_CRC_TYPE_CRC32, 0);
  Configure(a_, mkey, {a_.Sge(0, 4096)}, nullptr, &crc);
  const std::vector<uint8_t> before = a_.memory;
  ibv_sge sge = b_.Sge(0, 8);
  ibv_send_wr wr = {};
  wr.wr_id = 1;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.atomic.compare_add = 1;
  wr.wr.atomic.rkey = mkey->rkey;
  ibv_send_wr* bad;
  ASSERT_EQ(ibv_post_send(b_.qp, &wr, &bad), 0);
  ExpectStatus(b_.cq, 1, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(a_.memory, before);
}

// The steps of mlx5dv_qp_cancel_posted_send_wrs(3).
TEST_F(Mlx5SignatureTest, PipeliningStopsBeforeTheResponse) {
  MakePair(512, MLX5DV_QP_CREATE_SIG_PIPELINING);
  Domain crc = Domain::Crc(MLX5DV_SIG_CRC_TYPE_CRC32C, 0xffffffff);
  mlx5dv_mkey* const mkey = MakeMkey();
  mlx5dv_qp_ex* const mlx5 = Table(a_);
  EXPECT_EQ(mlx5dv_qp_cancel_posted_send_wrs(mlx5, 2), -EINVAL);
  EXPECT_EQ(mlx5dv_qp_cancel_posted_send_wrs(nullptr, 2), -EINVAL);
  const auto transaction = [&] {
    EXPECT_EQ(Receive(b_, 9, 8192, 16), 0);
    EXPECT_EQ(Post(a_, IBV_WR_RDMA_WRITE, 1, {{0, 512, mkey->lkey}},
                   b_.address(), b_.mr->rkey, 0),
              0);
    EXPECT_EQ(Post(a_, IBV_WR_SEND, 2, {a_.Sge(4096, 16)}, 0, 0,
                   IBV_SEND_SIGNALED | IBV_SEND_FENCE),
              0);
  };
  const uint32_t guard = Crc32c(a_.memory.data(), 512);
  std::memcpy(a_.memory.data() + 512, &guard, sizeof(guard));
  Configure(a_, mkey, {a_.Sge(0, 516)}, &crc, nullptr);
  transaction();
  ExpectSuccess(a_.cq, 2);
  ExpectSuccess(b_.cq, 9);
  EXPECT_EQ(Check(mkey).err_type, MLX5DV_MKEY_NO_ERR);

  a_.memory[3] ^= 1;
  transaction();
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
  EXPECT_EQ(event.element.qp, a_.qp);
  ibv_ack_async_event(&event);
  EXPECT_EQ(StateOf(a_.qp), IBV_QPS_SQD);
  ExpectNothing(a_.cq);
  ExpectNothing(b_.cq);
  EXPECT_EQ(Check(mkey).err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD);
  EXPECT_EQ(mlx5dv_qp_cancel_posted_send_wrs(mlx5, 1), 0);
  EXPECT_EQ(mlx5dv_qp_cancel_posted_send_wrs(mlx5, 2), 1);
  // Another response.
  ASSERT_EQ(Post(a_, IBV_WR_SEND, 3, {a_.Sge(4096, 8)}), 0);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.cur_qp_state = IBV_QPS_SQD;
  ASSERT_EQ(ibv_modify_qp(a_.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
  ExpectSuccess(a_.cq, 2);
  ExpectSuccess(a_.cq, 3);
  EXPECT_EQ(ExpectSuccess(b_.cq, 9).byte_len, 8u);
}

// A peer reads while the key changes: nothing breaks, and what it gets is of
// one of the configurations, or refused.
TEST_F(Mlx5SignatureTest, ReconfiguredUnderTraffic) {
  mlx5dv_mkey* const mkey = MakeMkey();
  Domain crc = Domain::Crc(MLX5DV_SIG_CRC_TYPE_CRC32C, 0);
  Domain t10 = Domain::T10(1, 1);
  Configure(a_, mkey, {a_.Sge(0, 65536)}, nullptr, &t10);
  std::atomic<bool> stop = false;
  std::thread reader([&] {
    while (!stop) {
      if (Post(b_, IBV_WR_RDMA_READ, 1, {b_.Sge(0, 65536)}, 0, mkey->rkey) !=
          0) {
        return;
      }
      if (Next(b_.cq).status != IBV_WC_SUCCESS) return;
    }
  });
  for (int i = 0; i < 200; ++i) {
    Configure(a_, mkey, {a_.Sge(0, 65536)}, nullptr, i % 2 == 0 ? &crc : &t10);
  }
  stop = true;
  reader.join();
  EXPECT_EQ(Check(mkey).err_type, MLX5DV_MKEY_NO_ERR);
}

}  // namespace
}  // namespace conformance
