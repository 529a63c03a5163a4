#include "verbs_api/libibverbs/raw_wqe.h"

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace verbs_api {
namespace {

using transport::SendOpcode;

// Builds a WQE segment by segment.
class Wqe {
 public:
  explicit Wqe(uint8_t opcode, uint8_t flags = 0, uint32_t imm = 0,
               uint16_t stream = 0) {
    control_.opmod_idx_opcode = htobe32(0x123400u | opcode);
    control_.fm_ce_se = flags;
    control_.imm = htobe32(imm);
    control_.dci_stream_channel_id = htobe16(stream);
    bytes_.resize(sizeof(control_));
  }
  template <typename Segment>
  Wqe& Add(const Segment& segment) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(segment));
    std::memcpy(bytes_.data() + at, &segment, sizeof(segment));
    return *this;
  }
  Wqe& Remote(uint64_t address, uint32_t rkey) {
    return Add(mlx5_wqe_raddr_seg{htobe64(address), htobe32(rkey), 0});
  }
  Wqe& Pointer(uint32_t length, uint32_t lkey, uint64_t address) {
    return Add(
        mlx5_wqe_data_seg{htobe32(length), htobe32(lkey), htobe64(address)});
  }
  Wqe& Inline(const char* text) { return Inline(std::strlen(text), text); }
  Wqe& Inline(size_t said, const char* text) {
    Add(htobe32(static_cast<uint32_t>(said) | MLX5_INLINE_SEG));
    bytes_.insert(bytes_.end(), text, text + std::strlen(text));
    bytes_.resize((bytes_.size() + 15) / 16 * 16);
    return *this;
  }
  // The WQE with its actual number of units, or with `units`.
  std::vector<uint8_t> Bytes(int units = -1) {
    const auto ds =
        static_cast<uint32_t>(units >= 0 ? units : bytes_.size() / 16);
    control_.qpn_ds = htobe32(0x123456u << 8 | ds);
    std::memcpy(bytes_.data(), &control_, sizeof(control_));
    return bytes_;
  }

 private:
  mlx5_wqe_ctrl_seg control_ = {};
  std::vector<uint8_t> bytes_;
};

class RawWqeTest : public ::testing::Test {
 protected:
  int Decode(const std::vector<uint8_t>& bytes, bool dc = false) {
    out_ = std::make_unique<RawWqe>();
    return DecodeWqe(bytes, dc, out_.get());
  }
  static mlx5_wqe_av Address() {
    mlx5_wqe_av av = {};
    av.key.dc_key = htobe64(0x1122334455667788);
    av.dqp_dct = htobe32(MLX5_EXTENDED_UD_AV | 0x654321);
    av.stat_rate_sl = 0x53;
    av.tclass = 9;
    av.hop_limit = 64;
    av.grh_gid_fl = htobe32(1u << 30 | 5u << 20 | 0xabcde);
    av.rgid[15] = 7;
    return av;
  }

  std::unique_ptr<RawWqe> out_;
};

TEST_F(RawWqeTest, Sends) {
  ASSERT_EQ(Decode(Wqe(MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE)
                       .Pointer(100, 5, 0x1000)
                       .Pointer(28, 6, 0x2000)
                       .Bytes()),
            0);
  EXPECT_EQ(out_->opcode, SendOpcode::kSend);
  EXPECT_EQ(out_->flags, uint32_t{transport::kSendSignaled});
  EXPECT_EQ(out_->qpn, 0x123456u);
  ASSERT_EQ(out_->num_sge, 2u);
  EXPECT_EQ(out_->sges[1].addr, 0x2000u);
  EXPECT_EQ(out_->sges[1].length, 28u);
  EXPECT_EQ(out_->sges[1].lkey, 6u);
  // An empty message, with immediate data or a key.
  ASSERT_EQ(
      Decode(Wqe(MLX5_OPCODE_SEND_IMM, MLX5_WQE_CTRL_SOLICITED, 0x01020304)
                 .Bytes()),
      0);
  EXPECT_EQ(out_->opcode, SendOpcode::kSendWithImm);
  EXPECT_EQ(out_->imm_be, htobe32(0x01020304));
  EXPECT_EQ(out_->flags, uint32_t{transport::kSendSolicited});
  EXPECT_EQ(out_->num_sge, 0u);
  ASSERT_EQ(
      Decode(Wqe(MLX5_OPCODE_SEND_INVAL, MLX5_WQE_CTRL_FENCE, 77).Bytes()), 0);
  EXPECT_EQ(out_->opcode, SendOpcode::kSendWithInvalidate);
  EXPECT_EQ(out_->invalidate_rkey, 77u);
  EXPECT_EQ(out_->flags, uint32_t{transport::kSendFence});
}

TEST_F(RawWqeTest, WritesReadsAndAtomics) {
  ASSERT_EQ(Decode(Wqe(MLX5_OPCODE_RDMA_WRITE_IMM, 0, 3)
                       .Remote(0x1234567890, 99)
                       .Pointer(8, 5, 0x1000)
                       .Bytes()),
            0);
  EXPECT_EQ(out_->opcode, SendOpcode::kRdmaWriteWithImm);
  EXPECT_EQ(out_->remote_addr, 0x1234567890u);
  EXPECT_EQ(out_->rkey, 99u);
  EXPECT_EQ(out_->num_sge, 1u);
  ASSERT_EQ(
      Decode(Wqe(MLX5_OPCODE_RDMA_READ).Remote(1, 2).Pointer(8, 5, 0).Bytes()),
      0);
  EXPECT_EQ(out_->opcode, SendOpcode::kRdmaRead);
  const mlx5_wqe_atomic_seg operands = {htobe64(11), htobe64(22)};
  ASSERT_EQ(Decode(Wqe(MLX5_OPCODE_ATOMIC_CS)
                       .Remote(1, 2)
                       .Add(operands)
                       .Pointer(8, 5, 0)
                       .Bytes()),
            0);
  EXPECT_EQ(out_->swap, 11u);
  EXPECT_EQ(out_->compare_add, 22u);
  ASSERT_EQ(Decode(Wqe(MLX5_OPCODE_ATOMIC_FA)
                       .Remote(1, 2)
                       .Add(operands)
                       .Pointer(8, 5, 0)
                       .Bytes()),
            0);
  EXPECT_EQ(out_->compare_add, 11u);
}

TEST_F(RawWqeTest, LocalOperations) {
  ASSERT_EQ(Decode(Wqe(MLX5_OPCODE_LOCAL_INVAL, 0, 55).Bytes(), true), 0);
  EXPECT_EQ(out_->opcode, SendOpcode::kLocalInvalidate);
  EXPECT_EQ(out_->invalidate_rkey, 55u);
  EXPECT_EQ(Decode(Wqe(MLX5_OPCODE_LOCAL_INVAL).Remote(1, 2).Bytes()), EINVAL);
  // A NOP may fill any space.
  for (const int units : {1, 2, 63}) {
    std::vector<uint8_t> bytes = Wqe(MLX5_OPCODE_NOP).Bytes(units);
    bytes.resize(static_cast<size_t>(units) * kWqeUnit, 0xff);
    ASSERT_EQ(Decode(bytes, units == 2), 0) << units;
    EXPECT_EQ(out_->opcode, SendOpcode::kNop);
  }
}

TEST_F(RawWqeTest, InlineData) {
  // The first segment fills its unit exactly, the second is padded.
  ASSERT_EQ(Decode(Wqe(MLX5_OPCODE_SEND)
                       .Inline("twelve bytes")
                       .Inline("and more than that")
                       .Bytes()),
            0);
  EXPECT_EQ(out_->flags, uint32_t{transport::kSendInline});
  EXPECT_EQ(std::string(out_->inline_bytes.begin(),
                        out_->inline_bytes.begin() +
                            static_cast<std::ptrdiff_t>(out_->inline_size)),
            "twelve bytesand more than that");
  EXPECT_EQ(Decode(Wqe(MLX5_OPCODE_SEND).Inline("x").Pointer(1, 2, 3).Bytes()),
            EOPNOTSUPP);
  EXPECT_EQ(Decode(Wqe(MLX5_OPCODE_SEND).Pointer(1, 2, 3).Inline("x").Bytes()),
            EOPNOTSUPP);
  // Data up to the end of the WQE, and beyond.
  EXPECT_EQ(Decode(Wqe(MLX5_OPCODE_SEND).Inline(12, "x").Bytes()), 0);
  EXPECT_EQ(Decode(Wqe(MLX5_OPCODE_SEND).Inline(13, "x").Bytes()), EINVAL);
  EXPECT_EQ(Decode(Wqe(MLX5_OPCODE_SEND).Inline(0x7fffffff, "x").Bytes()),
            EINVAL);
  EXPECT_EQ(Decode(Wqe(MLX5_OPCODE_SEND).Inline(0, "").Bytes()), 0);
  EXPECT_EQ(out_->inline_size, 0u);
}

TEST_F(RawWqeTest, DcRequestsNameTheirTarget) {
  ASSERT_EQ(Decode(Wqe(MLX5_OPCODE_RDMA_WRITE, 0, 0, 0x4321)
                       .Add(Address())
                       .Remote(1, 2)
                       .Pointer(8, 5, 0)
                       .Bytes(),
                   true),
            0);
  ASSERT_TRUE(out_->has_target);
  EXPECT_EQ(out_->target.access_key, 0x1122334455667788u);
  EXPECT_EQ(out_->target.dct, 0x654321u);
  EXPECT_EQ(out_->target.service_level, 3);
  EXPECT_EQ(out_->target.traffic_class, 9);
  EXPECT_EQ(out_->target.hop_limit, 64);
  EXPECT_EQ(out_->target.gid_index, 5);
  EXPECT_EQ(out_->target.flow_label, 0xabcdeu);
  EXPECT_EQ(out_->target.gid[15], 7);
  EXPECT_EQ(out_->target.stream, 0x4321);
  EXPECT_EQ(out_->remote_addr, 1u);
  // The short form, and an address without a route, which RoCE needs.
  mlx5_wqe_av av = Address();
  av.dqp_dct = htobe32(0x654321);
  EXPECT_EQ(Decode(Wqe(MLX5_OPCODE_SEND).Add(av).Bytes(), true), EINVAL);
  av = Address();
  av.grh_gid_fl = 0;
  EXPECT_EQ(Decode(Wqe(MLX5_OPCODE_SEND).Add(av).Bytes(), true), EINVAL);
  EXPECT_EQ(Decode(Wqe(MLX5_OPCODE_SEND).Bytes(), true), EINVAL);
}

TEST_F(RawWqeTest, WrongSizes) {
  const auto size = [](int units) {
    const std::vector<uint8_t> bytes = Wqe(MLX5_OPCODE_SEND).Bytes(units);
    return WqeSize(std::span(bytes).first<kWqeUnit>());
  };
  EXPECT_EQ(size(0), 0u);
  EXPECT_EQ(size(1), 16u);
  EXPECT_EQ(size(63), kMaxWqeSize);
  EXPECT_EQ(size(64), 0u);
  EXPECT_EQ(size(65), 0u);
  EXPECT_EQ(size(255), 0u);
  for (const int units : {0, 2, 63, 64, 255}) {
    EXPECT_EQ(Decode(Wqe(MLX5_OPCODE_SEND).Bytes(units)), EINVAL) << units;
  }
  EXPECT_EQ(Decode({}), EINVAL);
  // Segments that the opcode needs are missing.
  EXPECT_EQ(Decode(Wqe(MLX5_OPCODE_RDMA_WRITE).Bytes()), EINVAL);
  EXPECT_EQ(Decode(Wqe(MLX5_OPCODE_ATOMIC_FA).Remote(1, 2).Bytes()), EINVAL);
}

TEST_F(RawWqeTest, UnsupportedOpcodesAndModifiers) {
  for (const uint8_t opcode :
       {MLX5_OPCODE_TSO, MLX5_OPCODE_ATOMIC_MASKED_CS,
        MLX5_OPCODE_ATOMIC_MASKED_FA, MLX5_OPCODE_FMR, MLX5_OPCODE_CONFIG_CMD,
        MLX5_OPCODE_SET_PSV, MLX5_OPCODE_UMR, MLX5_OPCODE_TAG_MATCHING,
        MLX5_OPCODE_FLOW_TBL_ACCESS, MLX5_OPCODE_MMO}) {
    EXPECT_EQ(Decode(Wqe(opcode).Remote(1, 2).Bytes()), EOPNOTSUPP) << opcode;
  }
  std::vector<uint8_t> modified = Wqe(MLX5_OPCODE_SEND).Bytes();
  modified[0] = 1;
  EXPECT_EQ(Decode(modified), EOPNOTSUPP);
}

// Any bytes are either decoded or refused, and the result fits. Each WQE is a
// separate allocation, so that AddressSanitizer detects a read beyond it.
TEST_F(RawWqeTest, AnyBytes) {
  std::mt19937 random(1);
  constexpr uint8_t kOpcodes[] = {0, 1, 8, 9, 10, 11, 16, 17, 18, 27};
  int decoded = 0;
  for (int i = 0; i < 50'000; ++i) {
    const size_t units = 1 + random() % (i % 8 == 0 ? 63 : 8);
    std::vector<uint8_t> bytes(units * kWqeUnit);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    // Mostly a true size, an existing opcode, and small inline segments.
    if (i % 16 != 0) bytes[7] = static_cast<uint8_t>(units);
    if (i % 15 != 0) bytes[0] = 0;
    if (i % 14 != 0) bytes[3] = kOpcodes[random() % std::size(kOpcodes)];
    for (size_t at = kWqeUnit; at < bytes.size(); at += kWqeUnit) {
      if (random() % 2 == 0) {
        const uint32_t word = htobe32((random() % 2 << 31) | random() % 64);
        std::memcpy(bytes.data() + at, &word, sizeof(word));
      }
    }
    const int error = Decode(bytes, i % 3 == 0);
    ASSERT_TRUE(error == 0 || error == EINVAL || error == EOPNOTSUPP);
    if (error != 0) continue;
    ++decoded;
    ASSERT_LE(out_->num_sge, units);
    ASSERT_LE(out_->inline_size, bytes.size());
    ASSERT_TRUE(out_->num_sge == 0 || out_->inline_size == 0);
  }
  EXPECT_GT(decoded, 2'500);
}

}  // namespace
}  // namespace verbs_api
