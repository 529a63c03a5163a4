// Memory keys (mlx5dv_create_mkey(3), mlx5dv_wr_post(3)).
#include <malloc.h>

#include <array>
#include <atomic>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/memory/guarded_copy.h"
#include "rxe_user/memory/region_table.h"
#include "transport/base/work.h"
#include "transport/testing/scarce_memory.h"

namespace rxe_user {
namespace {

using transport::InterleavedPiece;
using transport::MemoryStatus;
using transport::MkeyConfiguration;
using transport::Sge;
using transport::SpanList;
using Layout = MkeyConfiguration::Layout;

constexpr transport::PdId kPd = 7;
constexpr uint32_t kQpn = 0x11;
constexpr uint64_t kVa = 0x1000;  // of the region
constexpr uint32_t kAll = transport::kMkeyRights;

class MkeyTest : public testing::Test {
 protected:
  MkeyTest() : region_(Add(kPd, transport::kAccessLocalWrite)) {}

  uint32_t Add(transport::PdId pd, uint32_t access) {
    Region region;
    region.pd = pd;
    region.access = access;
    region.host = bytes_.data();
    region.length = bytes_.size();
    region.iova = kVa;
    return table_.Add(region);
  }
  uint32_t NewMkey(RegionTable::MkeyOptions options = {},
                   uint16_t entries = 4) {
    return table_.AddMkey(kPd, entries, options);
  }
  MemoryStatus SetList(uint32_t key, const std::vector<Sge>& list,
                       std::optional<uint32_t> access = kAll,
                       transport::PdId pd = kPd) {
    return table_.ConfigureMkey({.key = key,
                                 .pd = pd,
                                 .access = access,
                                 .layout = Layout::kList,
                                 .list = list});
  }
  MemoryStatus Interleave(uint32_t key,
                          const std::vector<InterleavedPiece>& pieces,
                          uint32_t repeat_count,
                          std::optional<uint32_t> access = kAll) {
    return table_.ConfigureMkey({.key = key,
                                 .pd = kPd,
                                 .access = access,
                                 .layout = Layout::kInterleaved,
                                 .interleaved = pieces,
                                 .repeat_count = repeat_count});
  }
  MemoryStatus Use(uint32_t key, uint64_t va, uint64_t length = 1,
                   uint32_t access = transport::kAccessRemoteWrite,
                   bool remote = true, transport::PdId pd = kPd) {
    spans_.clear();
    return table_.Translate({.key = key,
                             .remote = remote,
                             .pd = pd,
                             .qpn = kQpn,
                             .access = access,
                             .va = va,
                             .length = length},
                            &spans_);
  }
  MemoryStatus UseLocally(uint32_t key, uint64_t va, uint64_t length = 1,
                          uint32_t access = transport::kAccessLocalWrite) {
    return Use(key, va, length, access, false);
  }

  std::array<uint8_t, 1000> bytes_{};
  RegionTable table_;
  const uint32_t region_;
  SpanList spans_;
};

TEST_F(MkeyTest, IsUnusableUntilItIsConfigured) {
  const uint32_t key = NewMkey();
  EXPECT_NE(key, 0u);
  EXPECT_EQ(key & 0xff, 0u);
  EXPECT_EQ(UseLocally(key, 0, 1, 0), MemoryStatus::kBadKey);
  EXPECT_EQ(Use(key, 0), MemoryStatus::kBadKey);
  ASSERT_EQ(SetList(key, {{kVa, 10, region_}}), MemoryStatus::kOk);
  EXPECT_EQ(Use(key, 0), MemoryStatus::kOk);
  table_.RemoveMkey(key);
  EXPECT_EQ(Use(key, 0), MemoryStatus::kBadKey);
  EXPECT_EQ(SetList(key, {{kVa, 10, region_}}), MemoryStatus::kBadKey);
}

TEST_F(MkeyTest, TranslatesAList) {
  const uint32_t key = NewMkey();
  ASSERT_EQ(SetList(key, {{kVa + 100, 10, region_},
                          {kVa + 500, 0, region_},
                          {kVa + 7, 20, region_}}),
            MemoryStatus::kOk);
  ASSERT_EQ(Use(key, 3, 12), MemoryStatus::kOk);
  ASSERT_EQ(spans_.size(), 2u);
  EXPECT_EQ(spans_[0].data, bytes_.data() + 103);
  EXPECT_EQ(spans_[0].length, 7u);
  EXPECT_EQ(spans_[1].data, bytes_.data() + 7);
  EXPECT_EQ(spans_[1].length, 5u);
  EXPECT_EQ(Use(key, 0, 30), MemoryStatus::kOk);
  EXPECT_EQ(Use(key, 29, 1), MemoryStatus::kOk);
  EXPECT_EQ(Use(key, 0, 31), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Use(key, 30, 1), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Use(key, UINT64_MAX, 2), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Use(key, 1, UINT64_MAX), MemoryStatus::kOutOfRange);
  EXPECT_TRUE(spans_.empty());
}

TEST_F(MkeyTest, TranslatesInterleavedPieces) {
  const uint32_t key = NewMkey();
  ASSERT_EQ(
      Interleave(key, {{kVa, 4, 6, region_}, {kVa + 500, 2, 3, region_}}, 10),
      MemoryStatus::kOk);
  ASSERT_EQ(Use(key, 6 * 5 + 1, 6), MemoryStatus::kOk);
  ASSERT_EQ(spans_.size(), 3u);
  EXPECT_EQ(spans_[0].data, bytes_.data() + 51);
  EXPECT_EQ(spans_[0].length, 3u);
  EXPECT_EQ(spans_[1].data, bytes_.data() + 525);
  EXPECT_EQ(spans_[1].length, 2u);
  EXPECT_EQ(spans_[2].data, bytes_.data() + 60);
  EXPECT_EQ(spans_[2].length, 1u);
  EXPECT_EQ(Use(key, 59, 1), MemoryStatus::kOk);
  EXPECT_EQ(Use(key, 60, 1), MemoryStatus::kOutOfRange);
}

// Later calls translate the rest of many pieces.
TEST_F(MkeyTest, TranslatesAPartOfManyPieces) {
  const uint32_t key = NewMkey();
  ASSERT_EQ(Interleave(key, {{kVa, 1, 1, region_}}, 500), MemoryStatus::kOk);
  uint64_t va = 0;
  int calls = 0;
  for (; va < 500; ++calls) {
    ASSERT_EQ(Use(key, va, 500 - va), MemoryStatus::kOk);
    ASSERT_FALSE(spans_.empty());
    for (const transport::Span& span : spans_) {
      EXPECT_EQ(span.data, bytes_.data() + 2 * va);
      va += span.length;
    }
  }
  EXPECT_EQ(va, 500u);
  EXPECT_GT(calls, 1);
  EXPECT_LT(calls, 20);
}

TEST_F(MkeyTest, TranslatesWithoutMemory) {
  const uint32_t key = NewMkey();
  ASSERT_EQ(Interleave(key, {{kVa, 1, 1, region_}}, 500), MemoryStatus::kOk);
  transport::refuse_allocation = transport::RefuseWhenNoneIsLeft;
  SpanList spans;
  transport::allocations_left = 0;
  const MemoryStatus status =
      table_.Translate({.key = key, .pd = kPd, .length = 500}, &spans);
  transport::allocations_left = transport::kUnlimited;
  EXPECT_EQ(status, MemoryStatus::kOk);
  EXPECT_TRUE(spans.full());
  EXPECT_EQ(spans.back().data, bytes_.data() + 2 * (spans.size() - 1));
}

TEST_F(MkeyTest, ChecksDomainAndRights) {
  const uint32_t key = NewMkey();
  ASSERT_EQ(SetList(key, {{kVa, 10, region_}}, transport::kAccessRemoteRead),
            MemoryStatus::kOk);
  EXPECT_EQ(Use(key, 0, 1, transport::kAccessRemoteRead), MemoryStatus::kOk);
  EXPECT_EQ(Use(key, 0, 1, transport::kAccessRemoteRead, true, kPd + 1),
            MemoryStatus::kWrongDomain);
  EXPECT_EQ(Use(key, 0, 1, transport::kAccessRemoteWrite),
            MemoryStatus::kNoRight);
  EXPECT_EQ(Use(key, 0, 1, transport::kAccessRemoteAtomic),
            MemoryStatus::kNoRight);
  EXPECT_EQ(UseLocally(key, 0), MemoryStatus::kNoRight);
  EXPECT_EQ(UseLocally(key, 0, 1, 0), MemoryStatus::kOk);
  // Replaces the rights and keeps the layout.
  ASSERT_EQ(
      table_.ConfigureMkey(
          {.key = key, .pd = kPd, .access = transport::kAccessRemoteWrite}),
      MemoryStatus::kOk);
  EXPECT_EQ(Use(key, 0, 1, transport::kAccessRemoteWrite), MemoryStatus::kOk);
  EXPECT_EQ(Use(key, 0, 1, transport::kAccessRemoteRead),
            MemoryStatus::kNoRight);
  // Replaces the layout and keeps the rights.
  ASSERT_EQ(SetList(key, {{kVa, 20, region_}}, std::nullopt),
            MemoryStatus::kOk);
  EXPECT_EQ(Use(key, 19, 1, transport::kAccessRemoteWrite), MemoryStatus::kOk);
  EXPECT_EQ(Use(key, 0, 1, transport::kAccessRemoteRead),
            MemoryStatus::kNoRight);
}

TEST_F(MkeyTest, ChecksEachRegionAtEachUse) {
  const uint32_t other_pd = Add(kPd + 1, kAll);
  const uint32_t read_only = Add(kPd, transport::kAccessRemoteWrite);
  const uint32_t gone = Add(kPd, transport::kAccessLocalWrite);
  const uint32_t key = NewMkey({}, 8);
  ASSERT_EQ(SetList(key, {{kVa, 10, region_},
                          {kVa, 10, other_pd},
                          {kVa, 10, read_only},
                          {kVa, 10, gone},
                          {kVa + 991, 10, region_},
                          {kVa - 1, 10, region_}}),
            MemoryStatus::kOk);
  EXPECT_EQ(Use(key, 0, 10), MemoryStatus::kOk);
  EXPECT_EQ(Use(key, 9, 2), MemoryStatus::kWrongDomain);  // another domain
  EXPECT_TRUE(spans_.empty());
  EXPECT_EQ(Use(key, 20, 10), MemoryStatus::kNoRight);
  EXPECT_EQ(Use(key, 20, 10, transport::kAccessRemoteAtomic),
            MemoryStatus::kNoRight);
  EXPECT_EQ(UseLocally(key, 20, 10), MemoryStatus::kNoRight);
  EXPECT_EQ(Use(key, 20, 10, transport::kAccessRemoteRead), MemoryStatus::kOk);
  EXPECT_EQ(Use(key, 40, 9), MemoryStatus::kOk);
  EXPECT_EQ(Use(key, 40, 10), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Use(key, 50, 10), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Use(key, 30, 10), MemoryStatus::kOk);
  ASSERT_EQ(table_.Remove(gone), 0);
  EXPECT_EQ(Use(key, 30, 10), MemoryStatus::kBadKey);
  EXPECT_EQ(Use(key, 0, 10), MemoryStatus::kOk);
}

TEST_F(MkeyTest, RefusedConfigurationsChangeNothing) {
  const uint32_t key = NewMkey();
  ASSERT_EQ(SetList(key, {{kVa, 10, region_}}, transport::kAccessRemoteWrite),
            MemoryStatus::kOk);
  EXPECT_EQ(SetList(key, {{kVa, 20, region_}}, kAll, kPd + 1),
            MemoryStatus::kWrongDomain);
  EXPECT_EQ(SetList(key ^ 0x100, {{kVa, 20, region_}}), MemoryStatus::kBadKey);
  EXPECT_EQ(SetList(region_, {{kVa, 20, region_}}), MemoryStatus::kBadKey);
  EXPECT_EQ(SetList(key ^ 1, {{kVa, 20, region_}}), MemoryStatus::kNoRight);
  EXPECT_EQ(SetList(key, {{kVa, 20, region_}}, kAll | transport::kAccessMwBind),
            MemoryStatus::kNoRight);
  EXPECT_EQ(SetList(key, std::vector<Sge>(5, {kVa, 20, region_})),
            MemoryStatus::kOutOfRange);
  EXPECT_EQ(Interleave(key, {{kVa, 65535, 1, region_}}, 1),
            MemoryStatus::kOutOfRange);
  EXPECT_EQ(Interleave(key, {{kVa, 20, 0, region_}}, 0),
            MemoryStatus::kOutOfRange);
  EXPECT_EQ(Use(key, 0, 10), MemoryStatus::kOk);
  EXPECT_EQ(Use(key, 0, 11), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Use(key, 0, 1, transport::kAccessRemoteRead),
            MemoryStatus::kNoRight);
}

TEST_F(MkeyTest, DoesNotNest) {
  const uint32_t inner = NewMkey();
  ASSERT_EQ(SetList(inner, {{kVa, 10, region_}}), MemoryStatus::kOk);
  const uint32_t outer = NewMkey();
  EXPECT_EQ(SetList(outer, {{0, 10, inner}}), MemoryStatus::kNoRight);
  EXPECT_EQ(SetList(outer, {{0, 10, outer}}), MemoryStatus::kNoRight);
  EXPECT_EQ(Interleave(outer, {{0, 10, 0, inner}}, 1), MemoryStatus::kNoRight);
  EXPECT_EQ(Use(outer, 0), MemoryStatus::kBadKey);
}

TEST_F(MkeyTest, WindowsAreNotOfMkeysNorInThem) {
  const uint32_t bindable =
      Add(kPd, transport::kAccessLocalWrite | transport::kAccessMwBind);
  const uint32_t window = table_.AddWindow(kPd, RegionTable::WindowType::k1);
  transport::WindowBinding binding = {.rkey = window,
                                      .region_key = bindable,
                                      .pd = kPd,
                                      .qpn = kQpn,
                                      .access = transport::kAccessRemoteWrite,
                                      .va = kVa,
                                      .length = 10};
  ASSERT_EQ(table_.Bind(binding), MemoryStatus::kOk);
  const uint32_t key = NewMkey();
  ASSERT_EQ(SetList(key, {{kVa, 10, window}}), MemoryStatus::kOk);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Use(key, 0, 1, transport::kAccessRemoteRead),
              MemoryStatus::kWrongWindow);
    // By now, the key is in the table of recent keys.
    EXPECT_EQ(Use(window, kVa), MemoryStatus::kOk);
  }
  binding.region_key = key;
  binding.va = 0;
  EXPECT_EQ(table_.Bind(binding), MemoryStatus::kBadKey);
  table_.RemoveWindow(window);
}

TEST_F(MkeyTest, TheTagChangesOnlyIfThatWasRequested) {
  const uint32_t key = NewMkey({.update_tag = true});
  ASSERT_EQ(SetList(key | 5, {{kVa, 10, region_}}), MemoryStatus::kOk);
  EXPECT_EQ(Use(key | 5, 0), MemoryStatus::kOk);
  EXPECT_EQ(Use(key, 0), MemoryStatus::kBadKey);
  ASSERT_EQ(SetList(key | 6, {{kVa, 20, region_}}), MemoryStatus::kOk);
  EXPECT_EQ(Use(key | 5, 0), MemoryStatus::kBadKey);
  EXPECT_EQ(Use(key | 6, 19), MemoryStatus::kOk);
  table_.RemoveMkey(key);
  EXPECT_EQ(Use(key | 6, 0), MemoryStatus::kBadKey);
}

TEST_F(MkeyTest, Invalidation) {
  for (const bool remote : {false, true}) {
    const uint32_t key = NewMkey({.remote_invalidate = true});
    const transport::Invalidation invalidation = {
        .rkey = key, .pd = kPd, .qpn = kQpn, .remote = remote};
    EXPECT_EQ(table_.Invalidate(invalidation), MemoryStatus::kBadKey);  // free
    ASSERT_EQ(SetList(key, {{kVa, 10, region_}}), MemoryStatus::kOk);
    transport::Invalidation wrong = invalidation;
    wrong.pd = kPd + 1;
    EXPECT_EQ(table_.Invalidate(wrong), MemoryStatus::kWrongDomain);
    wrong = invalidation;
    wrong.rkey ^= 1;
    EXPECT_EQ(table_.Invalidate(wrong), MemoryStatus::kBadKey);
    EXPECT_EQ(Use(key, 0), MemoryStatus::kOk);
    ASSERT_EQ(table_.Invalidate(invalidation), MemoryStatus::kOk);
    EXPECT_EQ(Use(key, 0), MemoryStatus::kBadKey);
    EXPECT_EQ(table_.Invalidate(invalidation), MemoryStatus::kBadKey);
    // Rights and layout were kept.
    ASSERT_EQ(
        table_.ConfigureMkey({.key = key, .pd = kPd, .access = std::nullopt}),
        MemoryStatus::kOk);
    EXPECT_EQ(Use(key, 9), MemoryStatus::kOk);
  }
}

TEST_F(MkeyTest, ThePeerInvalidatesOnlyIfThatWasRequested) {
  const uint32_t key = NewMkey();
  ASSERT_EQ(SetList(key, {{kVa, 10, region_}}), MemoryStatus::kOk);
  EXPECT_EQ(table_.Invalidate({.rkey = key, .pd = kPd, .remote = true}),
            MemoryStatus::kNoRight);
  EXPECT_EQ(Use(key, 0), MemoryStatus::kOk);
  EXPECT_EQ(table_.Invalidate({.rkey = key, .pd = kPd}), MemoryStatus::kOk);
}

TEST_F(MkeyTest, FlushIsRefused) {
  const uint32_t key = NewMkey();
  ASSERT_EQ(SetList(key, {{kVa, 10, region_}}), MemoryStatus::kOk);
  EXPECT_NE(table_.Flush({.key = key,
                          .remote = true,
                          .pd = kPd,
                          .access = transport::kAccessFlushGlobal,
                          .length = 1},
                         false),
            MemoryStatus::kOk);
}

// Once one thread has configured a key, no thread sees the old configuration,
// and none sees a mixture.
TEST_F(MkeyTest, ConfiguredDuringUses) {
  const uint32_t key = NewMkey();
  std::atomic<bool> stop = false;
  std::atomic<uint32_t> begun = 1;  // the newest visible one
  std::atomic<uint32_t> done = 1;   // the oldest
  const auto configure = [&](uint32_t i) {
    const uint32_t part = 1 + i % 100;
    return i % 2 == 0
               ? SetList(key, {{kVa + i % 50, part, region_},
                               {kVa + 500 + i % 50, part, region_}})
               : Interleave(key,
                            {{kVa + i % 50, static_cast<uint16_t>(part),
                              static_cast<uint16_t>(500 - part), region_}},
                            2);
  };
  ASSERT_EQ(configure(1), MemoryStatus::kOk);
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&] {
      SpanList spans;
      while (!stop) {
        const uint32_t i = done;
        const uint32_t part = 1 + i % 100;
        spans.clear();
        const MemoryStatus status = table_.Translate(
            {.key = key, .pd = kPd, .va = 0, .length = 2 * part}, &spans);
        if (begun != i) continue;
        ASSERT_EQ(status, MemoryStatus::kOk);
        ASSERT_EQ(spans.size(), 2u);
        for (uint32_t s = 0; s < 2; ++s) {
          ASSERT_EQ(spans[s].data, bytes_.data() + 500 * s + i % 50);
          ASSERT_EQ(spans[s].length, part);
        }
      }
    });
  }
  for (uint32_t i = 2; i < 20'000; ++i) {
    begun = i;
    ASSERT_EQ(configure(i), MemoryStatus::kOk);
    done = i;
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
}

TEST_F(MkeyTest, AFailedAddLeavesNothing) {
  transport::refuse_allocation = transport::RefuseWhenNoneIsLeft;
  std::vector<uint32_t> keys;
  for (int i = 0; i < 50; ++i) {
    for (int allocations = 0;; ++allocations) {
      transport::allocations_left = allocations;
      try {
        const uint32_t key = NewMkey();
        transport::allocations_left = transport::kUnlimited;
        keys.push_back(key);
        break;
      } catch (const std::bad_alloc&) {
        transport::allocations_left = transport::kUnlimited;
      }
    }
  }
  for (const uint32_t key : keys) {
    ASSERT_EQ(SetList(key, {{kVa, 10, region_}}), MemoryStatus::kOk);
    EXPECT_EQ(Use(key, 0), MemoryStatus::kOk);
    table_.RemoveMkey(key);
  }
}

// Together with its object and that of the verbs library, an idle key takes at
// most 256 bytes.
TEST_F(MkeyTest, IsSmall) {
  constexpr size_t kKeys = 10'000;
  constexpr size_t kObjects = 64;  // bytes
  const size_t before = mallinfo2().uordblks;
  for (size_t i = 0; i < kKeys; ++i) NewMkey();
  EXPECT_LE((mallinfo2().uordblks - before) / kKeys + kObjects, 256u);
}

// Configuration allocates nothing.
TEST_F(MkeyTest, ConfiguresWithoutMemory) {
  const uint32_t key = NewMkey();
  const std::vector<Sge> list(4, {kVa, 10, region_});
  transport::refuse_allocation = transport::RefuseWhenNoneIsLeft;
  transport::allocations_left = 0;
  const MemoryStatus status = SetList(key, list);
  transport::allocations_left = transport::kUnlimited;
  EXPECT_EQ(status, MemoryStatus::kOk);
}

}  // namespace
}  // namespace rxe_user
