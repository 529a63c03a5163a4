#include "rxe_user/memory/region_table.h"

#include <array>

#include "gtest/gtest.h"

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

TEST_F(RegionTableTest, NamesTheBytes) {
  ASSERT_EQ(Translate(0x1000 + 10, 20), MemoryStatus::kOk);
  ASSERT_EQ(spans_.size(), 1u);
  EXPECT_EQ(spans_[0].data, bytes_.data() + 10);
  EXPECT_EQ(spans_[0].length, 20u);
  EXPECT_EQ(Translate(0x1000, 100), MemoryStatus::kOk);
}

TEST_F(RegionTableTest, ChecksKeyDomainRangeAndRights) {
  EXPECT_EQ(Translate(0x1000, 1, 0, 7, key_ ^ 1), MemoryStatus::kBadKey);
  EXPECT_EQ(Translate(0x1000, 1, 0, 8), MemoryStatus::kBadKey);
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

TEST_F(RegionTableTest, RemovedAndReplaced) {
  Region region;
  region.key = key_;
  region.pd = 7;
  region.host = bytes_.data() + 50;
  region.length = 10;
  EXPECT_TRUE(table_.Replace(region));
  ASSERT_EQ(Translate(3, 7), MemoryStatus::kOk);
  EXPECT_EQ(spans_[0].data, bytes_.data() + 53);
  EXPECT_TRUE(table_.Remove(key_));
  EXPECT_FALSE(table_.Remove(key_));
  EXPECT_FALSE(table_.Replace(region));
  EXPECT_EQ(Translate(3, 7), MemoryStatus::kBadKey);
}

TEST_F(RegionTableTest, RegionsAreNotInvalidated) {
  EXPECT_EQ(table_.Invalidate(key_, 7, 1), MemoryStatus::kNoRight);
  EXPECT_EQ(table_.Invalidate(key_, 8, 1), MemoryStatus::kBadKey);
  EXPECT_EQ(table_.Invalidate(key_ ^ 1, 7, 1), MemoryStatus::kBadKey);
  EXPECT_EQ(Translate(0x1000, 1), MemoryStatus::kOk);
}

}  // namespace
}  // namespace rxe_user
