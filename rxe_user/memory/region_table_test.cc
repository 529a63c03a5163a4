#include "rxe_user/memory/region_table.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/memory/guarded_copy.h"
#include "wire/icrc.h"

namespace rxe_user {
namespace {

using transport::MemoryAccess;
using transport::MemoryStatus;
using transport::SpanList;

class RegionTableTest : public testing::Test {
 protected:
  RegionTableTest() {
    Region region;
    region.pd = 7;
    region.access = transport::kAccessLocalWrite | transport::kAccessRemoteRead;
    region.host = bytes_.data();
    region.length = bytes_.size();
    region.iova = 0x1000;
    key_ = table_.Add(region);
  }
  MemoryStatus Translate(uint64_t va, uint64_t length, uint32_t access = 0,
                         transport::PdId pd = 7, uint32_t key = 0) {
    spans_.clear();
    MemoryAccess wanted;
    wanted.key = key != 0 ? key : key_;
    wanted.pd = pd;
    wanted.access = access;
    wanted.va = va;
    wanted.length = length;
    return table_.Translate(wanted, &spans_);
  }

  std::array<uint8_t, 100> bytes_{};
  RegionTable table_;
  uint32_t key_;
  SpanList spans_;
};

TEST_F(RegionTableTest, TranslatesToBytes) {
  ASSERT_EQ(Translate(0x1000 + 10, 20), MemoryStatus::kOk);
  ASSERT_EQ(spans_.size(), 1u);
  EXPECT_EQ(spans_[0].data, bytes_.data() + 10);
  EXPECT_EQ(spans_[0].length, 20u);
  EXPECT_EQ(Translate(0x1000, 100), MemoryStatus::kOk);
}

TEST_F(RegionTableTest, OnlyLargeRegionsAreCold) {
  ASSERT_EQ(Translate(0x1000, 100), MemoryStatus::kOk);
  EXPECT_FALSE(spans_[0].cold);
  Region large;
  large.pd = 7;
  large.iova = 0x1000;
  large.host = bytes_.data();
  large.length = 4 << 20;
  const uint32_t key = table_.Add(large);
  ASSERT_EQ(Translate(0x1000, 100, 0, 7, key), MemoryStatus::kOk);
  EXPECT_TRUE(spans_.back().cold);
}

TEST_F(RegionTableTest, ChecksKeyDomainRangeAndRights) {
  EXPECT_EQ(Translate(0x1000, 1, 0, 7, key_ ^ 1), MemoryStatus::kBadKey);
  EXPECT_EQ(Translate(0x1000, 1, 0, 8), MemoryStatus::kWrongDomain);
  EXPECT_EQ(Translate(0x0fff, 1), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Translate(0x1000, 101), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Translate(0x1000 + 100, 1), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Translate(UINT64_MAX, 2), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Translate(0x1000, UINT64_MAX), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Translate(0x1001, UINT64_MAX), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Translate(0x1000, 1, transport::kAccessRemoteRead),
            MemoryStatus::kOk);
  EXPECT_EQ(Translate(0x1000, 1, transport::kAccessRemoteWrite),
            MemoryStatus::kNoRight);
  EXPECT_EQ(Translate(0x1000, 1, transport::kAccessRemoteAtomic),
            MemoryStatus::kNoRight);
  EXPECT_TRUE(spans_.empty());
}

// Looks up in turns more regions than the recent table holds.
TEST_F(RegionTableTest, ManyRegions) {
  std::vector<uint32_t> keys;
  for (uint64_t i = 0; i < 100; ++i) {
    Region region;
    region.pd = 7;
    region.host = bytes_.data() + i;
    region.length = 1;
    keys.push_back(table_.Add(region));
  }
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(Translate(0, 1, 0, 7, keys[i]), MemoryStatus::kOk);
      EXPECT_EQ(spans_[0].data, bytes_.data() + i);
    }
  }
  EXPECT_EQ(Translate(0, 1, 0, 7, 0x80000000), MemoryStatus::kBadKey);
  for (const uint32_t key : keys) {
    EXPECT_EQ(table_.Remove(key), 0);
    EXPECT_EQ(Translate(0, 1, 0, 7, key), MemoryStatus::kBadKey);
  }
}

// Once one thread has replaced a region, no thread sees the old one, and none
// sees a mixture.
TEST_F(RegionTableTest, ReplacedDuringLookups) {
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> begun = 1;  // newest region that a thread may see
  std::atomic<uint64_t> done = 1;   // oldest one
  const auto shape = [&](uint64_t i) {
    Region region;
    region.key = key_;
    region.pd = 7;
    region.host = bytes_.data() + i % 50;
    region.length = i;
    region.iova = i * 1000;
    return region;
  };
  ASSERT_EQ(table_.Replace(shape(1)), 0);
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&] {
      SpanList spans;
      while (!stop) {
        const uint64_t i = done;
        MemoryAccess wanted;
        wanted.key = key_;
        wanted.pd = 7;
        wanted.va = i * 1000;
        wanted.length = i;
        spans.clear();
        const MemoryStatus status = table_.Translate(wanted, &spans);
        if (begun != i) continue;
        ASSERT_EQ(status, MemoryStatus::kOk);
        ASSERT_EQ(spans[0].data, bytes_.data() + i % 50);
        // The previous region is gone.
        wanted.va = (i - 1) * 1000;
        wanted.length = i - 1;
        ASSERT_EQ(table_.Translate(wanted, &spans), MemoryStatus::kOutOfRange);
      }
    });
  }
  for (uint64_t i = 2; i < 20'000; ++i) {
    begun = i;
    ASSERT_EQ(table_.Replace(shape(i)), 0);
    done = i;
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
}

TEST_F(RegionTableTest, RemovedAndReplaced) {
  Region region;
  region.key = key_;
  region.pd = 7;
  region.host = bytes_.data() + 50;
  region.length = 10;
  EXPECT_EQ(table_.Replace(region), 0);
  ASSERT_EQ(Translate(3, 7), MemoryStatus::kOk);
  EXPECT_EQ(spans_[0].data, bytes_.data() + 53);
  EXPECT_EQ(table_.Remove(key_), 0);
  EXPECT_EQ(table_.Remove(key_), ENOENT);
  EXPECT_EQ(table_.Replace(region), ENOENT);
  EXPECT_EQ(Translate(3, 7), MemoryStatus::kBadKey);
}

TEST_F(RegionTableTest, CopiesWithAnIcrc) {
  PrepareGuardedAccess();
  std::vector<uint8_t> from(3000, 5), to(3000);
  for (size_t size : {0, 1, 2048, 3000}) {
    uint32_t icrc = 9;
    ASSERT_TRUE(
        table_.CopyFromWithIcrc(to.data(), from.data(), size, false, &icrc));
    EXPECT_TRUE(std::equal(to.begin(), to.begin() + size, from.begin()));
    EXPECT_EQ(icrc, wire::IcrcFlow::Extend(9, {from.data(), size}));
  }
  uint32_t icrc = 9;
  EXPECT_FALSE(table_.CopyFromWithIcrc(to.data(), nullptr, 3000, false, &icrc));
}

TEST_F(RegionTableTest, RegionsAreNotInvalidated) {
  EXPECT_EQ(table_.Invalidate({key_, 7, 1}), MemoryStatus::kNoRight);
  EXPECT_EQ(table_.Invalidate({key_, 8, 1}), MemoryStatus::kWrongDomain);
  EXPECT_EQ(table_.Invalidate({key_ ^ 1, 7, 1}), MemoryStatus::kBadKey);
  EXPECT_EQ(Translate(0x1000, 1), MemoryStatus::kOk);
}

TEST_F(RegionTableTest, NullMemoryReadsAsZeroAndDropsWrites) {
  Region null;
  null.pd = 7;
  null.access = transport::kAccessLocalWrite;
  null.host = reinterpret_cast<uint8_t*>(kNullMemory);
  null.length = kNullMemory;
  const uint32_t key = table_.Add(null);
  for (const uint64_t va : {uint64_t{0}, uint64_t{0x7fff'ffff'0000}}) {
    ASSERT_EQ(Translate(va, 64, transport::kAccessLocalWrite, 7, key),
              MemoryStatus::kOk);
    std::array<uint8_t, 64> bytes;
    bytes.fill(5);
    EXPECT_TRUE(table_.CopyTo(spans_[0].data, bytes.data(), 64, false));
    EXPECT_TRUE(table_.CopyFrom(bytes.data(), spans_[0].data, 64, false));
    EXPECT_EQ(bytes, (std::array<uint8_t, 64>{}));
    bytes.fill(5);
    uint32_t icrc = 1;
    EXPECT_TRUE(table_.CopyFromWithIcrc(bytes.data(), spans_[0].data, 64, false,
                                        &icrc));
    EXPECT_EQ(bytes, (std::array<uint8_t, 64>{}));
    EXPECT_EQ(icrc, wire::IcrcFlow::Extend(1, bytes));
  }
  EXPECT_EQ(Translate(kNullMemory, 1, 0, 7, key), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Translate(0, 1, transport::kAccessRemoteRead, 7, key),
            MemoryStatus::kNoRight);
}

}  // namespace
}  // namespace rxe_user
