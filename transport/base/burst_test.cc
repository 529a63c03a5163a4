#include "transport/base/burst.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace transport {
namespace {

AddressVector Av() {
  AddressVector av;
  av.source = *wire::IpAddress::Parse("10.0.0.1");
  av.destination = *wire::IpAddress::Parse("10.0.0.2");
  av.source_port = 0xc000;
  return av;
}

class BurstTest : public ::testing::Test {
 protected:
  // Adds a packet of `bytes`, if it fits.
  static bool Add(Burst* burst, size_t bytes) {
    uint8_t* out = burst->Reserve(bytes);
    if (out == nullptr) return false;
    std::memset(out, 0x11, bytes);
    burst->Commit();
    return true;
  }
  std::vector<uint8_t> buffer = std::vector<uint8_t>(100000);
  Flow flow{Av()};
};

TEST_F(BurstTest, EqualPacketsAndAShorterLast) {
  Burst burst(buffer, 8);
  burst.Begin(&flow);
  EXPECT_TRUE(burst.empty());
  EXPECT_TRUE(Add(&burst, 100));
  EXPECT_FALSE(Add(&burst, 104));  // longer than the first
  EXPECT_TRUE(Add(&burst, 100));
  EXPECT_FALSE(burst.closed());
  EXPECT_TRUE(Add(&burst, 96));
  EXPECT_TRUE(burst.closed());
  EXPECT_FALSE(Add(&burst, 96));
  EXPECT_EQ(burst.segments(), 3);
  EXPECT_EQ(burst.segment_size(), 100u);
  EXPECT_EQ(burst.bytes().size(), 296u);
  burst.Begin(&flow);
  EXPECT_TRUE(burst.empty());
  EXPECT_TRUE(Add(&burst, 200));
}

TEST_F(BurstTest, KeepRoomReservesTheLastPacket) {
  Burst burst(std::span<uint8_t>(buffer).first(420), 4);
  const auto begin = [&] {
    burst.Begin(&flow);
    burst.KeepRoom(20);
  };
  begin();
  EXPECT_FALSE(Add(&burst, 16));  // 20 bytes cannot follow 16
  EXPECT_TRUE(Add(&burst, 100));
  EXPECT_FALSE(Add(&burst, 96));  // it would end the burst
  EXPECT_EQ(burst.Room(96), 0u);
  EXPECT_EQ(burst.Room(100), 2u);
  EXPECT_TRUE(Add(&burst, 100));
  EXPECT_TRUE(Add(&burst, 100));
  EXPECT_EQ(burst.Room(100), 0u);
  EXPECT_FALSE(Add(&burst, 100));  // the last of four segments is kept free
  burst.FreeRoom();
  EXPECT_TRUE(Add(&burst, 20));
  EXPECT_TRUE(burst.closed());
  begin();
  EXPECT_EQ(burst.Room(200), 2u);
  EXPECT_TRUE(Add(&burst, 200));
  EXPECT_TRUE(Add(&burst, 200));
  EXPECT_TRUE((burst.FreeRoom(), Add(&burst, 20)));  // 420 in all
  begin();
  EXPECT_EQ(burst.Room(204), 1u);
  EXPECT_TRUE(Add(&burst, 204));
  EXPECT_FALSE(Add(&burst, 204));
  // Begin drops the reservation.
  burst.Begin(&flow);
  EXPECT_TRUE(Add(&burst, 16));
}

TEST_F(BurstTest, EachIcrcUsesTheIndexAsIpId) {
  Burst burst(buffer, 8);
  burst.Begin(&flow);
  for (int i = 0; i < 3; ++i) Add(&burst, 64);
  for (uint16_t i = 0; i < 3; ++i) {
    const auto packet = burst.bytes().subspan(i * 64, 64);
    EXPECT_TRUE(flow.icrc.Verify(packet, i));
    EXPECT_FALSE(flow.icrc.Verify(packet, static_cast<uint16_t>(i + 1)));
  }
}

TEST_F(BurstTest, AnIcrcComputedDuringTheCopyIsTheSame) {
  std::vector<uint8_t> other_buffer(buffer.size());
  Burst burst(buffer, 8);
  Burst other(other_buffer, 8);
  burst.Begin(&flow);
  other.Begin(&flow);
  constexpr size_t kBytes = 1100;
  constexpr size_t kHeader = 16;
  constexpr size_t kRest = kBytes - kHeader - wire::kIcrcSize;
  for (uint8_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(Add(&burst, kBytes));
    uint8_t* out = other.Reserve(kBytes);
    ASSERT_NE(out, nullptr);
    std::memset(out, 0x11, kHeader);
    uint32_t icrc = other.BeginIcrc(kHeader);
    std::memset(out + kHeader, 0x11, kRest);
    icrc = wire::IcrcFlow::Extend(icrc, {out + kHeader, kRest});
    other.Commit(icrc);
  }
  EXPECT_TRUE(std::ranges::equal(burst.bytes(), other.bytes()));
}

TEST_F(BurstTest, AReservationWithoutCommitHasNoEffect) {
  Burst burst(buffer, 8);
  burst.Begin(&flow);
  EXPECT_NE(burst.Reserve(64), nullptr);
  EXPECT_TRUE(burst.empty());
  EXPECT_TRUE(Add(&burst, 128));
  EXPECT_EQ(burst.segment_size(), 128u);
}

// The next packet is like the one before the dropped one, whose ICRC must not
// be reused.
TEST_F(BurstTest, AnUncommittedPacketDoesNotAffectTheNextIcrc) {
  Burst burst(buffer, 8);
  burst.Begin(&flow);
  ASSERT_TRUE(Add(&burst, 64));
  uint8_t* const dropped = burst.Reserve(64);
  std::memset(dropped, 0x22, 64);
  burst.BeginIcrc(wire::kBthSize);
  ASSERT_TRUE(Add(&burst, 64));
  EXPECT_TRUE(flow.icrc.Verify(burst.bytes().last(64), 1));
}

TEST_F(BurstTest, SegmentsAreLimited) {
  Burst one(buffer, 1);
  one.Begin(&flow);
  EXPECT_TRUE(Add(&one, 64));
  EXPECT_TRUE(one.closed());
  EXPECT_FALSE(Add(&one, 64));
}

// UDP_SEGMENT takes at most 65,507 bytes in total, whatever the buffer.
TEST_F(BurstTest, BytesAreLimited) {
  Burst burst(buffer, 128);
  burst.Begin(&flow);
  int packets = 0;
  while (Add(&burst, 4096)) ++packets;
  EXPECT_EQ(packets, 15);
  EXPECT_TRUE(Add(&burst, 65507 - 15 * 4096));
  Burst small(std::span<uint8_t>(buffer.data(), 100), 128);
  small.Begin(&flow);
  EXPECT_FALSE(Add(&small, 104));
  EXPECT_TRUE(Add(&small, 64));
  EXPECT_FALSE(Add(&small, 64));
}

TEST_F(BurstTest, NotBegun) {
  Burst burst(buffer, 128);
  EXPECT_EQ(burst.flow(), nullptr);
  burst.Begin(&flow);
  EXPECT_EQ(burst.flow(), &flow);
  burst.Begin(nullptr);
  EXPECT_EQ(burst.flow(), nullptr);
}

TEST_F(BurstTest, RoomCountsThePacketsThatFit) {
  struct Begun {
    std::vector<size_t> packets;
    int max_segments;
    size_t bytes;  // of the buffer
  };
  for (const Begun& begun : std::vector<Begun>{{{}, 8, 100000},
                                               {{}, 1, 100000},
                                               {{}, 128, 1000},
                                               {{}, 128, 99},
                                               {{100}, 8, 100000},
                                               {{100, 100}, 3, 100000},
                                               {{100, 100}, 2, 100000},
                                               {{100, 100}, 8, 399},
                                               {{100, 100, 96}, 8, 100000}}) {
    for (const size_t bytes : {96, 100, 104}) {
      Burst burst(std::span<uint8_t>(buffer.data(), begun.bytes),
                  begun.max_segments);
      burst.Begin(&flow);
      for (const size_t size : begun.packets) ASSERT_TRUE(Add(&burst, size));
      const size_t room = burst.Room(bytes);
      size_t fit = 0;
      while (Add(&burst, bytes)) ++fit;
      EXPECT_EQ(room, fit) << begun.packets.size() << " packets, "
                           << begun.max_segments << " segments, " << bytes;
    }
  }
}

// Each packet differs from the previous one in one thing that BeginIcrc must
// not reuse: a byte of the BTH, the flow, the size.
TEST_F(BurstTest, PacketsThatDifferHaveDifferentIcrcs) {
  AddressVector av = Av();
  av.source_port = 0xc001;
  Flow other(av);
  Burst burst(buffer, 64);
  uint8_t bth[wire::kBthSize] = {};
  const auto add = [&](size_t bytes) {
    uint8_t* const out = burst.Reserve(bytes);
    ASSERT_NE(out, nullptr);
    std::memset(out, 0x11, bytes);
    std::memcpy(out, bth, sizeof(bth));
    const auto place = static_cast<uint16_t>(burst.segments());
    burst.Commit();
    EXPECT_TRUE(burst.flow()->icrc.Verify(burst.bytes().last(bytes), place));
  };
  burst.Begin(&flow);
  add(100);
  for (uint8_t& byte : bth) {
    byte = 0x5a;
    add(100);
  }
  burst.Begin(&other);
  add(100);
  add(96);
}

}  // namespace
}  // namespace transport
