#include "verbs_api/rsockets/protocol.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

namespace rsockets {
namespace {

TEST(MessageTest, TheUpperThreeBitsAreTheOperation) {
  EXPECT_EQ(Encode({Op::kData, 0x1234}), 0x00001234u);
  EXPECT_EQ(Encode({Op::kCredits, 0x10001}), 0x80010001u);
  EXPECT_EQ(Encode({Op::kIomap, 3}), 0xc0000003u);
  EXPECT_EQ(Encode({Op::kControl, static_cast<uint32_t>(Control::kShutdown)}),
            0xe0000002u);
  const Message message = Decode(0xdfffffff);
  EXPECT_EQ(message.op, Op::kIomap);
  EXPECT_EQ(message.data, kMaxMessageData);
}

TEST(MessageTest, DataDoNotReachIntoTheOperation) {
  EXPECT_EQ(Encode({Op::kData, 0xffffffff}), kMaxMessageData);
}

TEST(ConnectionDataTest, BytesAreThoseOfTheDocument) {
  ConnectionData data;
  data.credits = 0x0180;
  data.iomap_entries = 5;
  data.target_list = {0x0102030405060708, 0x11121314, 2};
  data.data = {0x2122232425262728, 0x31323334, 0x10000};
  const std::vector<uint8_t> expected = {
      1,    2,    0x01, 0x80, 0,    0,    0,    5,     // fixed part
      1,    2,    3,    4,    5,    6,    7,    8,     // target list
      0x11, 0x12, 0x13, 0x14, 0,    0,    0,    2,     //
      0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28,  // first buffer
      0x31, 0x32, 0x33, 0x34, 0,    1,    0,    0};
  const auto bytes = Encode(data);
  EXPECT_EQ(std::vector<uint8_t>(bytes.begin(), bytes.end()), expected);
}

TEST(ConnectionDataTest, ComesBackFromLongerPrivateData) {
  ConnectionData data;
  data.big_endian = true;
  data.credits = 384;
  data.iomap_entries = 512;
  data.target_list = {1, 2, 3};
  data.data = {4, 5, 6};
  const auto encoded = Encode(data);
  std::vector<uint8_t> bytes(encoded.begin(), encoded.end());
  bytes.resize(196, 0xee);
  const auto parsed = ParseConnectionData(bytes);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_TRUE(parsed->big_endian);
  EXPECT_TRUE(parsed->has_iomap);
  EXPECT_EQ(parsed->credits, 384);
  EXPECT_EQ(parsed->iomap_entries, 512u);
  EXPECT_EQ(parsed->target_list, data.target_list);
  EXPECT_EQ(parsed->data, data.data);
}

TEST(ConnectionDataTest, OtherVersionsAndShortOnesAreRefused) {
  ConnectionData data;
  data.target_list.length = 2;
  auto bytes = Encode(data);
  EXPECT_TRUE(ParseConnectionData(bytes).has_value());
  EXPECT_FALSE(ParseConnectionData(std::span(bytes).first(39)).has_value());
  bytes[0] = 2;
  EXPECT_FALSE(ParseConnectionData(bytes).has_value());
}

TEST(ConnectionDataTest, ATargetListWithoutEntriesIsRefused) {
  EXPECT_FALSE(ParseConnectionData(Encode(ConnectionData{})).has_value());
}

TEST(ConnectionDataTest, APeerWithoutMappingsHasNone) {
  ConnectionData data;
  data.has_iomap = false;
  data.iomap_entries = 7;
  data.target_list.length = 2;
  const auto parsed = ParseConnectionData(Encode(data));
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->iomap_entries, 0u);
}

TEST(EntryTest, EntriesAreInTheReadersByteOrder) {
  const Buffer buffer = {0x0102030405060708, 0x11121314, 0x21222324};
  const bool to_big = std::endian::native == std::endian::little;
  const std::array<uint8_t, 16> big = {
      1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24};
  EXPECT_EQ(EncodeBuffer(buffer, to_big), big);
  const auto iomap = EncodeIomap({0x4142434445464748, buffer}, to_big);
  EXPECT_EQ(iomap[0], 0x41);
  EXPECT_EQ(iomap[7], 0x48);
  EXPECT_TRUE(std::equal(big.begin(), big.end(), iomap.begin() + 8));
}

TEST(IomapEntriesTest, ManyAreRounded) {
  EXPECT_EQ(RoundIomapEntries(0), 0u);
  EXPECT_EQ(RoundIomapEntries(128), 128u);
  EXPECT_EQ(ScaleIomapEntries(1024), 0x84);
  EXPECT_EQ(RoundIomapEntries(1024), 1024u);
  EXPECT_EQ(RoundIomapEntries(1000), 768u);
  EXPECT_EQ(RoundIomapEntries(0xffffffff), 127u << 8);
}

}  // namespace
}  // namespace rsockets
