// The buffer of packets beyond a gap.
#include "transport/rc/out_of_order_packets.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace transport {
namespace {

using enum OutOfOrderPackets::Inserted;
using Bytes = std::vector<uint8_t>;

TEST(OutOfOrderPacketsTest, OrderCapacityAndReturn) {
  PacketArenaPool pool;
  OutOfOrderPackets held(&pool);
  const Bytes packet(100, 1);
  EXPECT_EQ(held.Insert(1, Bytes(101), 100), kFull);
  // Descending, with odd ones missing at first.
  for (uint64_t psn = 100; psn > 0; psn -= 2) {
    EXPECT_EQ(held.Insert(psn, packet, 100), kBuffered);
    EXPECT_EQ(held.Insert(psn, packet, 100), kCopy);
  }
  for (uint64_t psn = 1; psn < 100; psn += 2) {
    EXPECT_EQ(held.Insert(psn, packet, 100), kBuffered);
  }
  for (uint64_t psn = 1; psn <= 60; ++psn) {
    EXPECT_EQ(held.first_psn(), psn);
    EXPECT_EQ(held.first().size(), 100u);
    held.PopFirst();
  }
  // Freed places are used again, however often.
  uint64_t next = 101;
  while (held.Insert(next, packet, 100) == kBuffered) ++next;
  EXPECT_EQ(held.size(), PacketArena::kMaxPackets);
  for (int round = 0; round < 2000; ++round) {
    held.PopFirst();
    EXPECT_EQ(held.Insert(next++, packet, 100), kBuffered);
  }
  EXPECT_EQ(held.first_psn(), next - PacketArena::kMaxPackets);
  held.Clear();
  EXPECT_TRUE(held.empty());
}

// Two packets with one PSN and different contents: neither stays, and the slot
// is free again.
TEST(OutOfOrderPacketsTest, Conflict) {
  PacketArenaPool pool;
  OutOfOrderPackets held(&pool);
  const Bytes packet(100, 1);
  for (uint64_t psn = 1; psn <= 3; ++psn) held.Insert(psn, packet, 100);
  Bytes again = packet;
  again[4] ^= 0x80;   // FECN
  again[8] ^= 0x80;   // AckReq
  again[99] ^= 0xff;  // ICRC
  EXPECT_EQ(held.Insert(2, again, 100), kCopy);
  for (const size_t at : {0u, 1u, 2u, 12u, 95u}) {
    Bytes other = packet;
    other[at] ^= 1;
    EXPECT_EQ(held.Insert(2, other, 100), kConflict) << at;
    EXPECT_EQ(held.size(), 2u);
    EXPECT_EQ(held.Insert(2, packet, 100), kBuffered);
  }
  EXPECT_EQ(held.Insert(2, Bytes(99, 1), 100), kConflict);
  held.PopFirst();
  EXPECT_EQ(held.first_psn(), 3u);
  for (uint64_t psn = 4; psn < 4 + PacketArena::kMaxPackets - 1; ++psn) {
    EXPECT_EQ(held.Insert(psn, packet, 100), kBuffered);
  }
  EXPECT_EQ(held.Insert(600, packet, 100), kFull);
}

TEST(OutOfOrderPacketsTest, PoolIsBounded) {
  PacketArenaPool pool;
  std::vector<std::unique_ptr<OutOfOrderPackets>> all;
  for (size_t i = 0; i < PacketArenaPool::kMaxArenas; ++i) {
    all.push_back(std::make_unique<OutOfOrderPackets>(&pool));
    EXPECT_EQ(all.back()->Insert(1, Bytes(16), 300), kBuffered);
  }
  OutOfOrderPackets one_more(&pool);
  EXPECT_EQ(one_more.Insert(1, Bytes(16), 300), kFull);
  all.pop_back();
  EXPECT_EQ(one_more.Insert(1, Bytes(16), 300), kBuffered);
}

}  // namespace
}  // namespace transport
