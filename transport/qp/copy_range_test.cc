#include "transport/qp/copy_range.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "transport/testing/fake_memory.h"

namespace transport {
namespace {

constexpr PdId kPd = 3;

class CopyRangeTest : public ::testing::Test {
 protected:
  CopyRangeTest() {
    for (size_t i = 0; i < source.bytes.size(); ++i) {
      source.bytes[i] = static_cast<uint8_t>(i * 7 + i / 256);
    }
  }
  static MemoryAccess At(const FakeMemory::Region& region, uint64_t offset,
                         uint64_t length, uint32_t access = 0) {
    return {.key = region.lkey,
            .pd = kPd,
            .access = access,
            .va = region.va + offset,
            .length = length};
  }
  MemoryStatus Copy(uint64_t from, uint64_t to, uint64_t length) {
    return CopyRange(&memory, At(source, from, length),
                     At(destination, to, length, kAccessLocalWrite));
  }

  FakeMemory memory;
  FakeMemory::Region& source = memory.Add(0x10000, 20000, kPd, 0);
  FakeMemory::Region& destination =
      memory.Add(0x80000, 20000, kPd, kAccessLocalWrite);
};

TEST_F(CopyRangeTest, SpansOfBothSidesNeedNotMatch) {
  for (const auto& [from_piece, to_piece] :
       std::vector<std::pair<size_t, size_t>>{
           {20000, 20000}, {7, 20000}, {20000, 13}, {64, 100}, {1, 3}}) {
    source.piece = from_piece;
    destination.piece = to_piece;
    std::fill(destination.bytes.begin(), destination.bytes.end(), 0);
    ASSERT_EQ(Copy(5, 11, 9000), MemoryStatus::kOk);
    for (size_t i = 0; i < 9000; ++i) {
      ASSERT_EQ(destination.bytes[11 + i], source.bytes[5 + i]) << i;
    }
    EXPECT_EQ(destination.bytes[10], 0);
    EXPECT_EQ(destination.bytes[11 + 9000], 0);
  }
}

TEST_F(CopyRangeTest, NothingIsCopiedUnlessBothSidesAreGood) {
  EXPECT_EQ(Copy(19000, 0, 1001), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Copy(0, 19000, 1001), MemoryStatus::kOutOfRange);
  EXPECT_EQ(CopyRange(&memory, At(destination, 0, 8),
                      At(source, 0, 8, kAccessLocalWrite)),
            MemoryStatus::kNoRight);
  destination.pd = kPd + 1;
  EXPECT_EQ(Copy(0, 0, 8), MemoryStatus::kBadKey);
  destination.pd = kPd;
  source.valid = false;
  EXPECT_EQ(Copy(0, 0, 8), MemoryStatus::kBadKey);
  EXPECT_EQ(destination.bytes, std::vector<uint8_t>(20000));
}

TEST_F(CopyRangeTest, PagesOfEitherSideMayBeGone) {
  source.faulty = true;
  EXPECT_EQ(Copy(0, 0, 8), MemoryStatus::kFault);
  source.faulty = false;
  destination.faulty = true;
  EXPECT_EQ(Copy(0, 0, 8), MemoryStatus::kFault);
}

}  // namespace
}  // namespace transport
