#include "wire/bytes.h"

#include <gtest/gtest.h>

namespace wire {
namespace {

TEST(BytesTest, LoadsBigEndianAtAnyAlignment) {
  const uint8_t bytes[] = {0xff, 0x01, 0x82, 0x03, 0x04,
                           0x05, 0x06, 0x07, 0x08};
  EXPECT_EQ(LoadBe16(bytes + 1), 0x0182u);
  EXPECT_EQ(LoadBe24(bytes + 1), 0x018203u);
  EXPECT_EQ(LoadBe32(bytes + 1), 0x01820304u);
  EXPECT_EQ(LoadBe64(bytes + 1), 0x0182030405060708u);
  EXPECT_EQ(LoadLe32(bytes + 1), 0x04038201u);
}

TEST(BytesTest, StoresWhatLoadsRead) {
  uint8_t bytes[9] = {};
  StoreBe16(bytes + 1, 0x8001);
  EXPECT_EQ(LoadBe16(bytes + 1), 0x8001u);
  StoreBe24(bytes + 1, 0xfe800102);
  EXPECT_EQ(LoadBe24(bytes + 1), 0x800102u);
  EXPECT_EQ(bytes[4], 0) << "only three bytes are written";
  StoreBe32(bytes + 1, 0x80010203);
  EXPECT_EQ(LoadBe32(bytes + 1), 0x80010203u);
  StoreBe64(bytes + 1, 0x8001020304050607);
  EXPECT_EQ(LoadBe64(bytes + 1), 0x8001020304050607u);
  StoreLe32(bytes + 1, 0x80010203);
  EXPECT_EQ(LoadLe32(bytes + 1), 0x80010203u);
  EXPECT_EQ(bytes[1], 3);
  EXPECT_EQ(bytes[0], 0);
}

}  // namespace
}  // namespace wire
