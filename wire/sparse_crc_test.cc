#include "wire/sparse_crc.h"

#include <zlib.h>

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace wire {
namespace {

std::vector<uint8_t> RandomBytes(size_t size) {
  std::mt19937 random(1);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

TEST(SparseCrcTest, EqualsZlibAtEverySize) {
  const std::vector<uint8_t> bytes = RandomBytes(9300);
  for (size_t size = 0; size <= bytes.size(); ++size) {
    // A different alignment for each size.
    const uint8_t* const data = bytes.data() + (bytes.size() - size) % 17;
    const size_t length = std::min(size, bytes.size() - 16);
    ASSERT_EQ(SparseCrc(0, data, length), crc32_z(0, data, length)) << length;
  }
}

TEST(SparseCrcTest, CanBeContinued) {
  const std::vector<uint8_t> bytes = RandomBytes(20000);
  const auto all = static_cast<uint32_t>(crc32_z(0, bytes.data(), 20000));
  for (const size_t first : {0, 1, 8, 899, 900, 1000, 4096, 12345, 20000}) {
    const uint32_t crc = SparseCrc(0, bytes.data(), first);
    EXPECT_EQ(SparseCrc(crc, bytes.data() + first, 20000 - first), all)
        << first;
  }
}

// One bit at a time, so that every quotient bit is tested.
TEST(SparseCrcTest, EachBitCounts) {
  std::vector<uint8_t> bytes(1500);
  const auto zero = static_cast<uint32_t>(crc32_z(0, bytes.data(), 1500));
  EXPECT_EQ(SparseCrc(0, bytes.data(), 1500), zero);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = static_cast<uint8_t>(1 << bit % 8);
    ASSERT_EQ(SparseCrc(7, bytes.data(), 1500), crc32_z(7, bytes.data(), 1500));
    bytes[bit / 8] = 0;
  }
}

}  // namespace
}  // namespace wire
