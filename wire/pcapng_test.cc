#include "wire/pcapng.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace wire::pcapng {
namespace {

using Bytes = std::vector<uint8_t>;

uint32_t Word(const Bytes& bytes, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

// The block's length, a multiple of 4, stands before and after its body.
void ExpectOneBlock(const Bytes& bytes, uint32_t type) {
  ASSERT_GE(bytes.size(), 12u);
  EXPECT_EQ(bytes.size() % 4, 0u);
  EXPECT_EQ(Word(bytes, 0), type);
  EXPECT_EQ(Word(bytes, 4), bytes.size());
  EXPECT_EQ(Word(bytes, bytes.size() - 4), bytes.size());
}

TEST(PcapngTest, SectionAndInterface) {
  Bytes section;
  AppendSection("x", &section);
  ExpectOneBlock(section, kSectionHeader);
  EXPECT_EQ(Word(section, 8), kByteOrderMagic);
  EXPECT_EQ(Word(section, 12), 1u);
  EXPECT_EQ(Word(section, 16), 0xffffffffu);

  Bytes interface;
  AppendInterface(LinkType::kLinuxSll, "rxeu0", &interface);
  ExpectOneBlock(interface, kInterfaceDescription);
  EXPECT_EQ(Word(interface, 8), 113u);
  EXPECT_EQ(Word(interface, 12), 0u);
  EXPECT_EQ(Word(interface, 16), 5u << 16 | kInterfaceName);
  // The next option follows the name, which is padded to 8 bytes.
  EXPECT_EQ(Word(interface, 28), 1u << 16 | kInterfaceResolution);
  EXPECT_EQ(Word(interface, 32), 9u);
}

TEST(PcapngTest, ACustomBlockIsPadded) {
  Bytes bytes;
  const uint8_t contents[] = {1, 2, 3, 4, 5};
  AppendCustom(32473, contents, &bytes);
  ExpectOneBlock(bytes, kCustom);
  EXPECT_EQ(Word(bytes, 8), 32473u);
  EXPECT_EQ(Word(bytes, 12), 0x04030201u);
  EXPECT_EQ(Word(bytes, 16), 5u);
  EXPECT_EQ(bytes.size(), 24u);
}

TEST(PcapngTest, APacketWithoutOptionsHasNoEndOfOptions) {
  Bytes bytes;
  const uint8_t headers[] = {1, 2, 3, 4, 5};
  const uint8_t rest[] = {6, 7};
  AppendPacket({.interface = 3,
                .time = (int64_t{5} << 32) + 9,
                .headers = headers,
                .rest = rest,
                .original_size = 1000},
               &bytes);
  ExpectOneBlock(bytes, kEnhancedPacket);
  EXPECT_EQ(Word(bytes, 8), 3u);
  EXPECT_EQ(Word(bytes, 12), 5u);
  EXPECT_EQ(Word(bytes, 16), 9u);
  EXPECT_EQ(Word(bytes, 20), 7u);
  EXPECT_EQ(Word(bytes, 24), 1000u);
  EXPECT_EQ(Word(bytes, 28), 0x04030201u);
  EXPECT_EQ(Word(bytes, 32), 0x00070605u);
  EXPECT_EQ(bytes.size(), 40u);
}

TEST(PcapngTest, CommentDirectionAndCustomOption) {
  Bytes bytes;
  const uint8_t custom[] = {9, 8};
  AppendPacket({.direction = Direction::kSent,
                .comment = "lost",
                .enterprise = 32473,
                .custom = custom},
               &bytes);
  ExpectOneBlock(bytes, kEnhancedPacket);
  EXPECT_EQ(Word(bytes, 28), 4u << 16 | kOptionComment);
  EXPECT_EQ(std::memcmp(bytes.data() + 32, "lost", 4), 0);
  EXPECT_EQ(Word(bytes, 36), 4u << 16 | kPacketFlags);
  EXPECT_EQ(Word(bytes, 40), 2u);
  EXPECT_EQ(Word(bytes, 44), 6u << 16 | kOptionCustom);
  EXPECT_EQ(Word(bytes, 48), 32473u);
  EXPECT_EQ(Word(bytes, 52), 0x0809u);
  EXPECT_EQ(Word(bytes, 56), 0u);  // the end of options
}

TEST(PcapngTest, ALongCommentIsCut) {
  Bytes bytes;
  AppendPacket({.comment = std::string(100'000, 'x')}, &bytes);
  ExpectOneBlock(bytes, kEnhancedPacket);
  EXPECT_EQ(Word(bytes, 28), 4096u << 16 | kOptionComment);
}

}  // namespace
}  // namespace wire::pcapng
