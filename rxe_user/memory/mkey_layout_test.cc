#include "rxe_user/memory/mkey_layout.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace rxe_user {
namespace {

using transport::InterleavedPiece;
using transport::Sge;

struct Byte {
  uint32_t lkey;
  uint64_t va;
  bool operator==(const Byte&) const = default;
};

// The bytes as the manual page defines them, one by one.
std::vector<Byte> Expand(const std::vector<Sge>& list) {
  std::vector<Byte> bytes;
  for (const Sge& sge : list) {
    for (uint64_t i = 0; i < sge.length; ++i) {
      bytes.push_back({sge.lkey, sge.addr + i});
    }
  }
  return bytes;
}
std::vector<Byte> Expand(const std::vector<InterleavedPiece>& pieces,
                         uint32_t repeat_count) {
  std::vector<Byte> bytes;
  for (uint64_t r = 0; r < repeat_count; ++r) {
    for (const InterleavedPiece& piece : pieces) {
      for (uint64_t i = 0; i < piece.bytes; ++i) {
        bytes.push_back(
            {piece.lkey, piece.addr + r * (piece.bytes + piece.skip) + i});
      }
    }
  }
  return bytes;
}

// Reads [offset, offset + length) in steps of at most `most` bytes.
std::vector<Byte> Read(const MkeyLayout& layout, uint64_t offset,
                       uint64_t length, uint64_t most) {
  std::vector<Byte> bytes;
  MkeyLayout::Cursor cursor(layout, offset);
  while (bytes.size() < length) {
    MkeyLayout::Piece piece;
    EXPECT_TRUE(
        cursor.Next(std::min<uint64_t>(most, length - bytes.size()), &piece));
    EXPECT_GT(piece.length, 0u);
    for (uint64_t i = 0; i < piece.length; ++i) {
      bytes.push_back({piece.lkey, piece.va + i});
    }
  }
  return bytes;
}

TEST(MkeyLayoutTest, ReadsWhatTheManualPageSays) {
  std::mt19937_64 random(1);
  const auto below = [&](uint64_t end) { return random() % end; };
  for (int round = 0; round < 2000; ++round) {
    MkeyLayout layout(8);
    std::vector<Byte> expected;
    const size_t entries = 1 + below(8);
    if (below(2) == 0) {
      std::vector<Sge> list;
      for (size_t i = 0; i < entries; ++i) {
        list.push_back({below(1 << 20), static_cast<uint32_t>(below(40)),
                        static_cast<uint32_t>(below(100))});
      }
      ASSERT_TRUE(layout.Set(list));
      expected = Expand(list);
    } else {
      std::vector<InterleavedPiece> pieces;
      for (size_t i = 0; i < entries; ++i) {
        pieces.push_back({.addr = below(1 << 20),
                          .bytes = static_cast<uint16_t>(below(20)),
                          .skip = static_cast<uint16_t>(below(20)),
                          .lkey = static_cast<uint32_t>(below(100))});
      }
      const auto repeat = static_cast<uint32_t>(1 + below(20));
      ASSERT_TRUE(layout.Set(pieces, repeat));
      expected = Expand(pieces, repeat);
    }
    ASSERT_EQ(layout.length(), expected.size());
    if (expected.empty()) continue;
    for (int i = 0; i < 5; ++i) {
      const uint64_t offset = below(expected.size());
      const uint64_t length = 1 + below(expected.size() - offset);
      const auto from = expected.begin() + static_cast<ptrdiff_t>(offset);
      ASSERT_EQ(
          Read(layout, offset, length, 1 + below(64)),
          (std::vector<Byte>(from, from + static_cast<ptrdiff_t>(length))))
          << round;
    }
  }
}

TEST(MkeyLayoutTest, FindsAFarRepetitionAtOnce) {
  MkeyLayout layout(2);
  const std::vector<InterleavedPiece> pieces = {
      {.addr = 1000, .bytes = 1, .skip = 2, .lkey = 1},
      {.addr = 5000, .bytes = 3, .skip = 0, .lkey = 2}};
  ASSERT_TRUE(layout.Set(pieces, UINT32_MAX));
  EXPECT_EQ(layout.length(), uint64_t{4} * UINT32_MAX);
  MkeyLayout::Cursor cursor(layout, layout.length() - 2);
  MkeyLayout::Piece piece;
  ASSERT_TRUE(cursor.Next(100, &piece));
  EXPECT_EQ(piece.lkey, 2u);
  EXPECT_EQ(piece.va, 5000 + uint64_t{3} * (UINT32_MAX - 1) + 1);
  EXPECT_EQ(piece.length, 2u);
}

TEST(MkeyLayoutTest, LongestLengths) {
  MkeyLayout layout(64);
  ASSERT_TRUE(layout.Set(std::vector<Sge>(64, {0, UINT32_MAX, 1})));
  EXPECT_EQ(layout.length(), uint64_t{64} * UINT32_MAX);
  ASSERT_TRUE(
      layout.Set(std::vector<InterleavedPiece>(64, {.addr = 0, .bytes = 65535}),
                 UINT32_MAX));
  EXPECT_EQ(layout.length(), uint64_t{64} * 65535 * UINT32_MAX);
}

TEST(MkeyLayoutTest, RefusesWithoutEffect) {
  MkeyLayout layout(2);
  ASSERT_TRUE(layout.Set(std::vector<Sge>{{1, 10, 1}}));
  EXPECT_FALSE(layout.Set(std::vector<Sge>(3)));
  EXPECT_FALSE(layout.Set(std::vector<InterleavedPiece>(3), 1));
  EXPECT_FALSE(layout.Set(std::vector<InterleavedPiece>(1), 0));
  EXPECT_FALSE(layout.Set(
      std::vector<InterleavedPiece>{{}, {.bytes = 65535, .skip = 1}}, 1));
  EXPECT_EQ(layout.length(), 10u);
  EXPECT_TRUE(layout.Set(
      std::vector<InterleavedPiece>{{.bytes = 65534, .skip = 1}}, 1));
  EXPECT_EQ(layout.length(), 65534u);
}

TEST(MkeyLayoutTest, AddressesDoNotWrap) {
  MkeyLayout layout(2);
  MkeyLayout::Piece piece;
  ASSERT_TRUE(layout.Set(std::vector<Sge>{{UINT64_MAX - 3, 5, 1}}));
  EXPECT_TRUE(MkeyLayout::Cursor(layout, 0).Next(4, &piece));
  EXPECT_FALSE(MkeyLayout::Cursor(layout, 0).Next(5, &piece));
  EXPECT_FALSE(MkeyLayout::Cursor(layout, 4).Next(1, &piece));
  ASSERT_TRUE(layout.Set(
      std::vector<InterleavedPiece>{{.addr = UINT64_MAX - 9, .bytes = 4}}, 3));
  EXPECT_TRUE(MkeyLayout::Cursor(layout, 4).Next(4, &piece));
  EXPECT_FALSE(MkeyLayout::Cursor(layout, 8).Next(4, &piece));
}

}  // namespace
}  // namespace rxe_user
