// Memory keys with block signatures (mlx5dv_wr_set_mkey_sig_block(3)), as the
// transport uses them.
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/memory/guarded_copy.h"
#include "rxe_user/memory/region_table.h"
#include "transport/base/work.h"

namespace rxe_user {
namespace {

using transport::MemoryStatus;
using transport::MkeyConfiguration;
using transport::Sge;
using transport::SpanList;
using Kind = SignatureError::Kind;
using Layout = MkeyConfiguration::Layout;
using Transform = MkeyConfiguration::Transform;

constexpr transport::PdId kPd = 7;
constexpr uint64_t kVa = 0x1000;  // of the region
constexpr uint32_t kAll = transport::kMkeyRights;

constexpr SignatureDomain kCrc32c = {
    .guard = GuardKind::kCrc32c, .ones_seed = true, .block_size = 512};
constexpr SignatureDomain kT10 = {.guard = GuardKind::kT10Crc,
                                  .counts_up = true,
                                  .block_size = 512,
                                  .app_tag = 0x1234,
                                  .ref_tag = 7};

class SignedMkeyTest : public testing::Test {
 protected:
  SignedMkeyTest() {
    PrepareGuardedAccess();
    Region region;
    region.pd = kPd;
    region.access = transport::kAccessLocalWrite;
    region.host = bytes_.data();
    region.length = bytes_.size();
    region.iova = kVa;
    region_ = table_.Add(region);
    key_ = table_.AddMkey(kPd, 4, {.signatures = true});
    for (size_t i = 0; i < bytes_.size(); ++i) {
      bytes_[i] = static_cast<uint8_t>(i * 7 + i / 256);
    }
  }

  MemoryStatus Configure(const std::vector<Sge>& list,
                         std::optional<SignatureConfig> signature,
                         Transform change = Transform::kSet) {
    std::array<uint8_t, kPackedSignatureConfig> packed{};
    if (signature) Pack(*signature, packed);
    return table_.ConfigureMkey({.key = key_,
                                 .pd = kPd,
                                 .access = kAll,
                                 .layout = Layout::kList,
                                 .list = list,
                                 .change = change,
                                 .transform = packed});
  }
  MemoryStatus Translate(uint64_t va, uint64_t length,
                         uint32_t access = transport::kAccessLocalRead,
                         transport::PdId pd = kPd) {
    spans_.clear();
    return table_.Translate(
        {.key = key_, .pd = pd, .access = access, .va = va, .length = length},
        &spans_);
  }
  // Reads as for a packet's payload.
  std::vector<uint8_t> Read(uint64_t va, size_t length) {
    std::vector<uint8_t> out(length, 0xee);
    EXPECT_EQ(Translate(va, length), MemoryStatus::kOk);
    EXPECT_EQ(spans_.size(), 1u);
    EXPECT_TRUE(table_.CopyFrom(out.data(), spans_[0].data, length, false));
    return out;
  }
  void Write(uint64_t va, std::span<const uint8_t> data) {
    ASSERT_EQ(Translate(va, data.size(), transport::kAccessLocalWrite),
              MemoryStatus::kOk);
    ASSERT_TRUE(table_.CopyTo(spans_[0].data, data.data(), data.size(), false));
  }
  Kind Check() {
    EXPECT_EQ(table_.TakeMkeyError(key_, &error_), 0);
    return error_.kind;
  }
  std::vector<uint8_t> Data(size_t at, size_t length) const {
    return {bytes_.begin() + static_cast<std::ptrdiff_t>(at),
            bytes_.begin() + static_cast<std::ptrdiff_t>(at + length)};
  }

  std::array<uint8_t, 16384> bytes_{};
  RegionTable table_;
  uint32_t region_ = 0;
  uint32_t key_ = 0;
  SpanList spans_;
  SignatureError error_;
};

TEST_F(SignedMkeyTest, InsertsOnTheWireAndStripsAgain) {
  ASSERT_EQ(Configure({{kVa, 1024, region_}},
                      SignatureConfig{.wire = kCrc32c, .check_mask = 0xf0}),
            MemoryStatus::kOk);
  const std::vector<uint8_t> wire = Read(0, 1032);
  EXPECT_EQ(std::vector<uint8_t>(wire.begin(), wire.begin() + 512),
            Data(0, 512));
  EXPECT_EQ(std::vector<uint8_t>(wire.begin() + 516, wire.begin() + 1028),
            Data(512, 512));
  EXPECT_EQ(Translate(0, 1033), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Translate(1032, 1), MemoryStatus::kOutOfRange);
  // The same in pieces, each of which the transport translates anew.
  ASSERT_EQ(Configure({{kVa + 4096, 500, region_}, {kVa + 8192, 524, region_}},
                      std::nullopt, Transform::kKeep),
            MemoryStatus::kOk);
  for (size_t at = 0; at < wire.size(); at += 100) {
    Write(at,
          std::span(wire).subspan(at, std::min<size_t>(100, wire.size() - at)));
  }
  EXPECT_EQ(Data(4096, 500), Data(0, 500));
  EXPECT_EQ(Data(8192, 524), Data(500, 524));
  EXPECT_EQ(Check(), Kind::kNone);
}

TEST_F(SignedMkeyTest, AddsToMemoryAndStripsOnTheWire) {
  const SignatureConfig config = {.memory = kT10, .check_mask = 0xff};
  ASSERT_EQ(Configure({{kVa, 1040, region_}}, config), MemoryStatus::kOk);
  const std::vector<uint8_t> data = Data(8192, 1024);
  Write(0, data);
  EXPECT_EQ(bytes_[512 + 2], 0x12);
  EXPECT_EQ(bytes_[512 + 3], 0x34);
  EXPECT_EQ(bytes_[512 + 7], 7);
  EXPECT_EQ(bytes_[1032 + 7], 8);
  EXPECT_EQ(Read(0, 1024), data);
  EXPECT_EQ(Check(), Kind::kNone);
  EXPECT_EQ(Translate(0, 1025), MemoryStatus::kOutOfRange);
  EXPECT_FALSE(table_.HasDataError(key_));
  // After a wrong byte the transfer continues, and the key records the error.
  bytes_[700] ^= 1;
  EXPECT_NE(Read(0, 1024), data);
  EXPECT_TRUE(table_.HasDataError(key_));
  EXPECT_EQ(Check(), Kind::kGuard);
  EXPECT_EQ(error_.offset, 520u);
  EXPECT_FALSE(table_.HasDataError(key_));
  EXPECT_EQ(Check(), Kind::kNone);
}

// The preceding bytes of the block, which were not transferred, are read from
// memory.
TEST_F(SignedMkeyTest, AnyPartAlone) {
  ASSERT_EQ(Configure({{kVa, 5000, region_}},
                      SignatureConfig{.wire = kT10, .check_mask = 0xff}),
            MemoryStatus::kOk);
  const std::vector<uint8_t> wire = Read(0, 5000 + 9 * 8);
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    const size_t at = random() % wire.size();
    const size_t length = 1 + random() % (wire.size() - at);
    ASSERT_EQ(Read(at, length),
              std::vector<uint8_t>(
                  wire.begin() + static_cast<std::ptrdiff_t>(at),
                  wire.begin() + static_cast<std::ptrdiff_t>(at + length)));
  }
}

// Several transfers at a time, each in its own block. Each signature arrives in
// two pieces.
TEST_F(SignedMkeyTest, InterleavedTransfersAreCheckedApart) {
  ASSERT_EQ(Configure({{kVa, 4096, region_}},
                      SignatureConfig{.wire = kT10, .check_mask = 0xff}),
            MemoryStatus::kOk);
  std::vector<uint8_t> wire = Read(0, 4096 + 64);
  wire[5 * 520 + 515] ^= 4;  // the application tag of block 5
  std::array<size_t, 8> at{};
  for (int turn = 0; turn < 48; ++turn) {
    for (size_t i = 0; i < at.size(); ++i) {
      const size_t part = std::min<size_t>(11, 520 - at[i]);
      if (part == 0) continue;
      Write(i * 520 + at[i], std::span(wire).subspan(i * 520 + at[i], part));
      at[i] += part;
    }
  }
  EXPECT_EQ(Check(), Kind::kAppTag);
  EXPECT_EQ(error_.offset, 5u * 520);
  EXPECT_EQ(Check(), Kind::kNone);
}

// A block is rewritten from its middle. The state of its first half is then out
// of date for transfers that have stopped inside it.
TEST_F(SignedMkeyTest, BytesThatAreWrittenAgainAreReadAgain) {
  ASSERT_EQ(Configure({{kVa, 1024, region_}},
                      SignatureConfig{.wire = kT10, .check_mask = 0xff}),
            MemoryStatus::kOk);
  const std::vector<uint8_t> before = Read(0, 1040);
  // A READ and a WRITE stop at byte 300.
  Read(0, 300);
  Write(0, std::span(before).first(300));
  // Another WRITE changes an earlier byte.
  const uint8_t changed = before[100] ^ 0xff;
  Write(100, {&changed, 1});
  std::vector<uint8_t> rest = Read(300, 220);
  EXPECT_EQ(std::vector<uint8_t>(rest.begin(), rest.begin() + 212),
            std::vector<uint8_t>(before.begin() + 300, before.begin() + 512));
  const std::vector<uint8_t> after = Read(0, 1040);
  EXPECT_NE(after[512], before[512]);
  EXPECT_EQ(rest,
            std::vector<uint8_t>(after.begin() + 300, after.begin() + 520));
  // The first WRITE continues, with the signature of the present bytes.
  Write(300, std::span(after).subspan(300, 220));
  EXPECT_EQ(Check(), Kind::kNone);
}

TEST_F(SignedMkeyTest, KeepsResetsAndRefusesSignatures) {
  const SignatureConfig config = {.wire = kCrc32c};
  EXPECT_FALSE(table_.NeedsOrder(key_));
  ASSERT_EQ(Configure({{kVa, 512, region_}}, config), MemoryStatus::kOk);
  EXPECT_TRUE(table_.NeedsOrder(key_));
  EXPECT_EQ(Translate(515, 1), MemoryStatus::kOk);
  ASSERT_EQ(Configure({{kVa, 1024, region_}}, std::nullopt, Transform::kKeep),
            MemoryStatus::kOk);
  EXPECT_EQ(Translate(1031, 1), MemoryStatus::kOk);
  // An invalid configuration has no effect.
  SignatureConfig bad = config;
  bad.wire.block_size = 511;
  EXPECT_EQ(Configure({{kVa, 512, region_}}, bad), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Translate(1031, 1), MemoryStatus::kOk);
  ASSERT_EQ(Configure({{kVa, 1024, region_}}, std::nullopt, Transform::kNone),
            MemoryStatus::kOk);
  EXPECT_EQ(Translate(1024, 1), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Translate(1023, 1), MemoryStatus::kOk);
  EXPECT_EQ(spans_[0].data, bytes_.data() + 1023);
  EXPECT_FALSE(table_.NeedsOrder(key_));
  EXPECT_EQ(Check(), Kind::kNone);

  key_ = table_.AddMkey(kPd, 4, {});
  EXPECT_EQ(Configure({{kVa, 512, region_}}, config), MemoryStatus::kNoRight);
  EXPECT_EQ(table_.TakeMkeyError(key_, &error_), EINVAL);
  EXPECT_EQ(table_.TakeMkeyError(region_, &error_), EINVAL);
  EXPECT_FALSE(table_.NeedsOrder(region_));
}

TEST_F(SignedMkeyTest, ItsRulesAreThoseOfAllKeys) {
  ASSERT_EQ(Configure({{kVa, 512, region_}, {kVa, 512, region_ + 1}},
                      SignatureConfig{.wire = kCrc32c}),
            MemoryStatus::kOk);
  EXPECT_EQ(Translate(0, 516), MemoryStatus::kOk);
  EXPECT_EQ(Translate(0, 516, 0, kPd + 1), MemoryStatus::kWrongDomain);
  // The region of the second piece does not exist.
  EXPECT_EQ(Translate(0, 517), MemoryStatus::kBadKey);
  // Atomics are refused, both by their right and by the copy.
  EXPECT_EQ(Translate(0, 8, transport::kAccessRemoteAtomic),
            MemoryStatus::kNoRight);
  ASSERT_EQ(Translate(0, 8, transport::kAccessRemoteWrite), MemoryStatus::kOk);
  uint64_t original = 0;
  EXPECT_FALSE(table_.CompareSwap(spans_[0].data, 0, 1, &original));
  EXPECT_FALSE(table_.FetchAdd(spans_[0].data, 1, &original));
}

TEST_F(SignedMkeyTest, WithdrawnBetweenTranslationAndCopy) {
  const SignatureConfig config = {.wire = kCrc32c};
  ASSERT_EQ(Configure({{kVa, 8192, region_}}, config), MemoryStatus::kOk);
  ASSERT_EQ(Translate(8000, 100), MemoryStatus::kOk);
  uint8_t* const address = spans_[0].data;
  std::array<uint8_t, 100> out;
  EXPECT_TRUE(table_.CopyFrom(out.data(), address, out.size(), false));
  ASSERT_EQ(Configure({{kVa, 1, region_}}, std::nullopt, Transform::kKeep),
            MemoryStatus::kOk);
  EXPECT_FALSE(table_.CopyFrom(out.data(), address, out.size(), false));
  ASSERT_EQ(Configure({{kVa, 8192, region_}}, std::nullopt, Transform::kNone),
            MemoryStatus::kOk);
  EXPECT_FALSE(table_.CopyTo(address, out.data(), out.size(), false));
  ASSERT_EQ(Configure({{kVa, 8192, region_}}, config), MemoryStatus::kOk);
  EXPECT_TRUE(table_.CopyTo(address, out.data(), out.size(), false));
  table_.Remove(region_);
  EXPECT_FALSE(table_.CopyFrom(out.data(), address, out.size(), false));
  table_.RemoveMkey(key_);
  EXPECT_FALSE(table_.CopyTo(address, out.data(), out.size(), false));
}

// mlx5dv_wr_memcpy from one such key to another.
TEST_F(SignedMkeyTest, CopiesBetweenSuchKeys) {
  ASSERT_EQ(Configure({{kVa, 4096, region_}},
                      SignatureConfig{.wire = kT10, .check_mask = 0xff}),
            MemoryStatus::kOk);
  ASSERT_EQ(Translate(0, 4160), MemoryStatus::kOk);
  const uint8_t* const from = spans_[0].data;
  key_ = table_.AddMkey(kPd, 4, {.signatures = true});
  ASSERT_EQ(Configure({{kVa + 8192, 4096, region_}},
                      SignatureConfig{.wire = kT10, .check_mask = 0xff}),
            MemoryStatus::kOk);
  ASSERT_EQ(Translate(0, 4160, transport::kAccessLocalWrite),
            MemoryStatus::kOk);
  EXPECT_TRUE(table_.Copy(spans_[0].data, from, 4160));
  EXPECT_EQ(Data(8192, 4096), Data(0, 4096));
  EXPECT_EQ(Check(), Kind::kNone);
}

TEST_F(SignedMkeyTest, TooLong) {
  // More than 2^38 bytes: 64 entries of 4 GiB fit, but not with their
  // signatures.
  key_ = table_.AddMkey(kPd, 64, {.signatures = true});
  const std::vector<Sge> list(64, Sge{kVa, 0xffffffff, region_});
  EXPECT_EQ(Configure(list, SignatureConfig{.wire = kCrc32c}),
            MemoryStatus::kOutOfRange);
  EXPECT_EQ(Configure(list, SignatureConfig{.memory = kCrc32c}),
            MemoryStatus::kOk);
}

TEST_F(SignedMkeyTest, ReconfiguredUnderTraffic) {
  const SignatureConfig config = {.wire = kT10, .check_mask = 0xff};
  ASSERT_EQ(Configure({{kVa, 4096, region_}}, config), MemoryStatus::kOk);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      std::array<uint8_t, 1024> out;
      for (uint64_t i = 0; i < 20000; ++i) {
        SpanList spans;
        if (table_.Translate({.key = key_,
                              .pd = kPd,
                              .va = i * 100 % 3000,
                              .length = out.size()},
                             &spans) == MemoryStatus::kOk) {
          (void)table_.CopyFrom(out.data(), spans[0].data,
                                std::min(out.size(), spans[0].length), false);
        }
      }
    });
  }
  for (int i = 0; i < 3000; ++i) {
    const uint32_t length = i % 3 == 0 ? 1 : 2048 + i % 2000;
    EXPECT_EQ(Configure({{kVa, length, region_}}, config,
                        i % 5 == 0 ? Transform::kNone : Transform::kSet),
              MemoryStatus::kOk);
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace rxe_user
