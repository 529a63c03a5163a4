// Single cases of memory keys over RC.
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/memory/mkey_fixture.h"

namespace rxe_user::mkey_test {
namespace {

constexpr uint32_t kMtu = 1024;  // bytes

class MkeyOverRcTest : public testing::Test {
 protected:
  MkeyOverRcTest() : pair_(QpType::kRc, kMtu, 9), a_(pair_.a), b_(pair_.b) {}

  // A memory key of `end` made of these pieces.
  static Key Listed(End& end, const std::vector<Key>& pieces) {
    Key key;
    key.key = end.table.AddMkey(kPd, 64, {.remote_invalidate = true});
    for (const Key& piece : pieces) {
      key.places.insert(key.places.end(), piece.places.begin(),
                        piece.places.end());
    }
    Relist(end, key.key, pieces);
    return key;
  }
  static void Relist(End& end, uint32_t key, std::span<const Key> pieces) {
    std::vector<Sge> list;
    for (const Key& piece : pieces) list.push_back(All(piece));
    ASSERT_EQ(end.table.ConfigureMkey({.key = key,
                                       .pd = kPd,
                                       .access = kAll,
                                       .layout = Layout::kList,
                                       .list = list}),
              transport::MemoryStatus::kOk);
  }
  // A key for a piece of region `region`.
  static Key PieceIn(End& end, int region, uint32_t offset, uint32_t bytes) {
    const uint32_t at = static_cast<uint32_t>(region) * End::kRegion + offset;
    Key key{end.RegionOf(at), End::VaOf(at), {}};
    for (uint32_t i = 0; i < bytes; ++i) key.places.push_back(at + i);
    return key;
  }
  static Sge All(const Key& key) {
    return {key.va, static_cast<uint32_t>(key.places.size()), key.key};
  }
  int Post(SendOpcode opcode, const Sge& local, const Key& remote,
           uint64_t offset = 0) {
    return a_.Post({.opcode = opcode,
                    .flags = transport::kSendSignaled,
                    .remote_addr = remote.va + offset,
                    .rkey = remote.key},
                   {local});
  }
  WcStatus Do(SendOpcode opcode, const Sge& local, const Key& remote,
              uint64_t offset = 0) {
    EXPECT_EQ(Post(opcode, local, remote, offset), 0);
    return pair_.Wait().status;
  }

  Pair pair_;
  End& a_;
  End& b_;
};

// Later requests of the same queue pair can use the key at once.
TEST_F(MkeyOverRcTest, IsUsedWithoutWaitingForItsConfiguration) {
  const uint32_t key = a_.table.AddMkey(kPd, 4, {});
  const Key target = PieceIn(b_, 0, 0, 300);
  for (uint32_t i = 0; i < 3; ++i) {
    const Key first = PieceIn(a_, 0, 1000 * i, 100);
    const Key second = PieceIn(a_, 1, 1000 * i + 7, 200);
    const Sge list[] = {All(first), All(second)};
    const Sge inline_list = {reinterpret_cast<uint64_t>(list), sizeof(list), 0};
    ASSERT_EQ(a_.Post({.opcode = SendOpcode::kConfigureMkey,
                       .flags = transport::kSendInline,
                       .rkey = key,
                       .swap = transport::MkeyOperand(Layout::kList, kAll)},
                      {inline_list}),
              0);
    ASSERT_EQ(Do(SendOpcode::kRdmaWrite, {0, 300, key}, target),
              WcStatus::kSuccess);
    std::vector<uint8_t> expected = a_.Read(first.places);
    const std::vector<uint8_t> rest = a_.Read(second.places);
    expected.insert(expected.end(), rest.begin(), rest.end());
    EXPECT_EQ(b_.Read(target.places), expected);
  }
}

TEST_F(MkeyOverRcTest, Atomics) {
  const Key aligned = PieceIn(b_, 0, 64, 24);
  const Key odd = PieceIn(b_, 0, 1028, 24);  // 4 bytes off
  const Key short_piece = PieceIn(b_, 1, 0, 4);
  const Key key = Listed(b_, {aligned, aligned, odd, short_piece, short_piece});
  const Key result = PieceIn(a_, 0, 0, 8);
  const uint64_t value = 0x1122334455667788;
  std::memcpy(&b_.arena[aligned.places[8]], &value, 8);
  const auto fetch_add = [&](uint64_t offset) {
    EXPECT_EQ(a_.Post({.opcode = SendOpcode::kFetchAdd,
                       .flags = transport::kSendSignaled,
                       .remote_addr = offset,
                       .rkey = key.key,
                       .compare_add = 5},
                      {All(result)}),
              0);
    return pair_.Wait().status;
  };
  ASSERT_EQ(fetch_add(8), WcStatus::kSuccess);
  uint64_t word;
  std::memcpy(&word, &a_.arena[result.places[0]], 8);
  EXPECT_EQ(word, value);
  std::memcpy(&word, &b_.arena[aligned.places[8]], 8);
  EXPECT_EQ(word, value + 5);
  // The second piece names the same memory.
  ASSERT_EQ(fetch_add(24 + 8), WcStatus::kSuccess);
  std::memcpy(&word, &b_.arena[aligned.places[8]], 8);
  EXPECT_EQ(word, value + 10);
  ASSERT_EQ(a_.Post({.opcode = SendOpcode::kCompareSwap,
                     .flags = transport::kSendSignaled,
                     .remote_addr = 8,
                     .rkey = key.key,
                     .compare_add = value + 10,
                     .swap = 77},
                    {All(result)}),
            0);
  ASSERT_EQ(pair_.Wait().status, WcStatus::kSuccess);
  std::memcpy(&word, &b_.arena[aligned.places[8]], 8);
  EXPECT_EQ(word, 77u);

  // Aligned in the key but not in memory.
  const std::vector<uint8_t> before = b_.arena;
  EXPECT_EQ(fetch_add(48), WcStatus::kRemoteAccessError);
  EXPECT_EQ(b_.arena, before);
}

TEST_F(MkeyOverRcTest, AnAtomicStaysInOnePiece) {
  const Key halves = Listed(b_, {PieceIn(b_, 0, 0, 4), PieceIn(b_, 0, 4, 4)});
  const Key result = PieceIn(a_, 0, 0, 8);
  const std::vector<uint8_t> before = b_.arena;
  EXPECT_EQ(Do(SendOpcode::kFetchAdd, All(result), halves),
            WcStatus::kRemoteAccessError);
  EXPECT_EQ(b_.arena, before);
}

// The result of an atomic may be split over pieces.
TEST_F(MkeyOverRcTest, AnAtomicsResultIsInPieces) {
  const Key halves = Listed(a_, {PieceIn(a_, 0, 3, 3), PieceIn(a_, 1, 100, 5)});
  const Key word = PieceIn(b_, 0, 0, 8);
  const std::vector<uint8_t> before = b_.Read(word.places);
  ASSERT_EQ(Do(SendOpcode::kFetchAdd, {0, 8, halves.key}, word),
            WcStatus::kSuccess);
  EXPECT_EQ(a_.Read(halves.places), before);
}

TEST_F(MkeyOverRcTest, BeyondItsLengthNothingIsWritten) {
  const Key key = Listed(b_, {PieceIn(b_, 0, 0, 3000), PieceIn(b_, 1, 0, 1)});
  const std::vector<uint8_t> before = b_.arena;
  EXPECT_EQ(Do(SendOpcode::kRdmaWrite, All(PieceIn(a_, 0, 0, 3000)), key, 2),
            WcStatus::kRemoteAccessError);
  EXPECT_EQ(b_.arena, before);
  EXPECT_EQ(b_.events.Take(),
            std::vector<transport::QpEvent>{transport::QpEvent::kAccessError});
}

TEST_F(MkeyOverRcTest, LocallyBeyondItsLength) {
  const Key key = Listed(a_, {PieceIn(a_, 0, 0, 100)});
  EXPECT_EQ(
      Do(SendOpcode::kRdmaWrite, {1, 100, key.key}, PieceIn(b_, 0, 0, 100)),
      WcStatus::kLocalProtectionError);
}

// A region that was deregistered while a memory key names it fails the access.
// With many pieces, the packet that needs that region fails.
TEST_F(MkeyOverRcTest, WriteToARegionThatIsGone) {
  const Key key =
      Listed(b_, {PieceIn(b_, 0, 0, 3000), PieceIn(b_, 1, 0, 3000)});
  ASSERT_EQ(b_.table.Remove(b_.regions[1]), 0);
  EXPECT_EQ(Do(SendOpcode::kRdmaWrite, All(PieceIn(a_, 0, 0, 3000)), key),
            WcStatus::kSuccess);
  EXPECT_EQ(Do(SendOpcode::kRdmaWrite, All(PieceIn(a_, 0, 0, 3000)), key, 2000),
            WcStatus::kRemoteAccessError);
}

TEST_F(MkeyOverRcTest, ReadOfARegionThatIsGone) {
  std::vector<Key> pieces;
  for (uint32_t i = 0; i < 63; ++i) {
    pieces.push_back(PieceIn(b_, 0, 200 * i, 100));
  }
  pieces.push_back(PieceIn(b_, 1, 0, 100));
  const Key key = Listed(b_, pieces);
  const Sge local = All(PieceIn(a_, 0, 0, 6400));
  EXPECT_EQ(Do(SendOpcode::kRdmaRead, local, key), WcStatus::kSuccess);
  EXPECT_EQ(a_.Read(PieceIn(a_, 0, 0, 6400).places), b_.Read(key.places));
  ASSERT_EQ(b_.table.Remove(b_.regions[1]), 0);
  EXPECT_EQ(Do(SendOpcode::kRdmaRead, local, key),
            WcStatus::kRemoteAccessError);
}

TEST_F(MkeyOverRcTest, SendFromARegionThatIsGone) {
  const Key key = Listed(a_, {PieceIn(a_, 1, 0, 100)});
  ASSERT_EQ(a_.table.Remove(a_.regions[1]), 0);
  EXPECT_EQ(Do(SendOpcode::kSend, {0, 100, key.key}, {}),
            WcStatus::kLocalProtectionError);
}

TEST_F(MkeyOverRcTest, ReceiveIntoARegionThatIsGone) {
  const Key key = Listed(b_, {PieceIn(b_, 0, 0, 100), PieceIn(b_, 1, 0, 100)});
  const Sge receive = {0, 200, key.key};
  ASSERT_EQ(b_.qp->PostReceive({.wr_id = 1, .sges = {&receive, 1}}, b_.now), 0);
  ASSERT_EQ(b_.table.Remove(b_.regions[1]), 0);
  EXPECT_EQ(Do(SendOpcode::kSend, All(PieceIn(a_, 0, 0, 200)), {}),
            WcStatus::kRemoteOperationalError);
  const std::vector<Completion> received = b_.receives.Take();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, WcStatus::kLocalProtectionError);
}

TEST_F(MkeyOverRcTest, ThePeerInvalidatesIt) {
  const Key key = Listed(b_, {PieceIn(b_, 0, 0, 100)});
  const Sge local = All(PieceIn(a_, 0, 0, 100));
  ASSERT_EQ(Do(SendOpcode::kRdmaWrite, local, key), WcStatus::kSuccess);
  ASSERT_EQ(b_.qp->PostReceive({.wr_id = 1, .sges = {}}, b_.now), 0);
  ASSERT_EQ(a_.Post({.opcode = SendOpcode::kSendWithInvalidate,
                     .flags = transport::kSendSignaled,
                     .invalidate_rkey = key.key},
                    {}),
            0);
  ASSERT_EQ(pair_.Wait().status, WcStatus::kSuccess);
  const std::vector<Completion> received = b_.receives.Take();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].flags, uint32_t{transport::kWcWithInvalidate});
  EXPECT_EQ(received[0].imm_be_or_rkey, key.key);
  EXPECT_EQ(Do(SendOpcode::kRdmaWrite, local, key),
            WcStatus::kRemoteAccessError);
}

// Messages of many packets, while the target key changes its layout. Every byte
// goes where one of the two layouts puts it.
TEST_F(MkeyOverRcTest, ConfiguredUnderTraffic) {
  constexpr uint32_t kBytes = 500'000;
  const Key source = PieceIn(a_, 0, 0, kBytes);
  const Key places[] = {PieceIn(b_, 0, 0, kBytes), PieceIn(b_, 1, 0, kBytes)};
  const Key key = Listed(b_, {places[0]});
  for (int round = 0; round < 10; ++round) {
    const std::vector<uint8_t> before = b_.arena;
    ASSERT_EQ(Post(SendOpcode::kRdmaWrite, All(source), key), 0);
    for (int steps = 0; a_.sends.completions.empty(); ++steps) {
      ASSERT_LT(steps, 100'000);
      Relist(b_, key.key, {&places[steps % 2], 1});
      pair_.Step();
    }
    ASSERT_EQ(pair_.Wait().status, WcStatus::kSuccess);
    std::vector<uint8_t> after = b_.arena;
    for (uint32_t i = 0; i < kBytes; ++i) {
      const uint8_t byte = a_.arena[source.places[i]];
      ASSERT_TRUE(after[places[0].places[i]] == byte ||
                  after[places[1].places[i]] == byte)
          << i;
    }
    // Nothing outside of the two places has changed.
    for (const Key& place : places) {
      for (const uint32_t at : place.places) after[at] = before[at];
    }
    ASSERT_TRUE(after == before);
    for (const uint32_t at : source.places) ++a_.arena[at];
  }
}

TEST_F(MkeyOverRcTest, InvalidatedUnderTraffic) {
  constexpr uint32_t kBytes = 500'000;
  const Key target = PieceIn(b_, 0, 0, kBytes);
  const Key key = Listed(b_, {target});
  ASSERT_EQ(Post(SendOpcode::kRdmaWrite, All(PieceIn(a_, 0, 0, kBytes)), key),
            0);
  pair_.Step();
  ASSERT_EQ(b_.Post({.opcode = SendOpcode::kLocalInvalidate,
                     .flags = transport::kSendSignaled,
                     .invalidate_rkey = key.key},
                    {}),
            0);
  const std::vector<Completion> done = b_.sends.Take();
  ASSERT_EQ(done.size(), 1u);
  ASSERT_EQ(done[0].status, WcStatus::kSuccess);
  const std::vector<uint8_t> then = b_.arena;
  EXPECT_EQ(pair_.Wait().status, WcStatus::kRemoteAccessError);
  EXPECT_TRUE(b_.arena == then);
}

}  // namespace
}  // namespace rxe_user::mkey_test
