// Memory windows in the table of keys.
#include <array>
#include <cerrno>

#include "gtest/gtest.h"
#include "rxe_user/memory/region_table.h"

namespace rxe_user {
namespace {

using transport::MemoryStatus;
using transport::SpanList;
using transport::WindowBinding;
using WindowType = RegionTable::WindowType;

constexpr transport::PdId kPd = 7;
constexpr uint32_t kQpn = 0x11;
constexpr uint64_t kVa = 0x1000;  // of the region

class WindowTest : public testing::Test {
 protected:
  WindowTest() {
    region_.pd = kPd;
    region_.access = transport::kAccessLocalWrite | transport::kAccessMwBind;
    region_.host = bytes_.data();
    region_.length = bytes_.size();
    region_.iova = kVa;
    region_.key = table_.Add(region_);
  }
  // Bytes 20 to 59 of the region.
  WindowBinding Part(uint32_t rkey) const {
    return {.rkey = rkey,
            .region_key = region_.key,
            .pd = kPd,
            .qpn = kQpn,
            .access = transport::kAccessRemoteWrite,
            .va = kVa + 20,
            .length = 40};
  }
  MemoryStatus Use(uint32_t rkey, uint64_t va, uint64_t length = 1,
                   uint32_t access = transport::kAccessRemoteWrite,
                   uint32_t qpn = kQpn, transport::PdId pd = kPd) {
    spans_.clear();
    return table_.Translate({.key = rkey,
                             .remote = true,
                             .pd = pd,
                             .qpn = qpn,
                             .access = access,
                             .va = va,
                             .length = length},
                            &spans_);
  }

  std::array<uint8_t, 100> bytes_{};
  RegionTable table_;
  Region region_;
  SpanList spans_;
};

TEST_F(WindowTest, TranslatesAPartOfARegion) {
  for (const WindowType type : {WindowType::k1, WindowType::k2}) {
    const uint32_t rkey = table_.AddWindow(kPd, type);
    EXPECT_EQ(Use(rkey, kVa + 20), MemoryStatus::kWrongWindow);  // not bound
    ASSERT_EQ(table_.Bind(Part(rkey ^ 5)), MemoryStatus::kOk);
    // the window has another key now
    EXPECT_EQ(Use(rkey, kVa + 20), MemoryStatus::kWrongWindow);
    ASSERT_EQ(Use(rkey ^ 5, kVa + 20, 40), MemoryStatus::kOk);
    EXPECT_EQ(spans_[0].data, bytes_.data() + 20);
    EXPECT_EQ(spans_[0].length, 40u);
    EXPECT_EQ(Use(rkey ^ 5, kVa + 19), MemoryStatus::kOutOfRange);
    EXPECT_EQ(Use(rkey ^ 5, kVa + 20, 41), MemoryStatus::kOutOfRange);
    EXPECT_EQ(Use(rkey ^ 5, kVa + 60), MemoryStatus::kOutOfRange);
    EXPECT_EQ(Use(rkey ^ 5, kVa + 20, 1, transport::kAccessRemoteRead),
              MemoryStatus::kNoRight);
    EXPECT_EQ(Use(rkey ^ 5, kVa + 20, 1, transport::kAccessRemoteWrite, kQpn,
                  kPd + 1),
              MemoryStatus::kWrongDomain);
    // The key is not an L_Key.
    EXPECT_EQ(table_.Translate({.key = rkey ^ 5,
                                .pd = kPd,
                                .qpn = kQpn,
                                .va = kVa + 20,
                                .length = 1},
                               &spans_),
              MemoryStatus::kWrongWindow);
    table_.RemoveWindow(rkey);
    EXPECT_EQ(Use(rkey ^ 5, kVa + 20), MemoryStatus::kBadKey);
  }
}

TEST_F(WindowTest, OnlyType2BelongsToOneQueuePair) {
  const uint32_t type_1 = table_.AddWindow(kPd, WindowType::k1);
  const uint32_t type_2 = table_.AddWindow(kPd, WindowType::k2);
  ASSERT_EQ(table_.Bind(Part(type_1)), MemoryStatus::kOk);
  ASSERT_EQ(table_.Bind(Part(type_2)), MemoryStatus::kOk);
  const auto by_another = [this](uint32_t rkey) {
    return Use(rkey, kVa + 20, 1, transport::kAccessRemoteWrite, kQpn + 1);
  };
  EXPECT_EQ(by_another(type_1), MemoryStatus::kOk);
  EXPECT_EQ(by_another(type_2), MemoryStatus::kWrongWindow);
  EXPECT_EQ(Use(type_2, kVa + 20), MemoryStatus::kOk);
}

// A window grants remote rights; others are ignored.
TEST_F(WindowTest, OnlyRemoteRightsCount) {
  const uint32_t rkey = table_.AddWindow(kPd, WindowType::k2);
  WindowBinding binding = Part(rkey);
  binding.access = transport::kAccessLocalWrite |
                   transport::kAccessRemoteWrite |
                   transport::kAccessFlushGlobal;
  ASSERT_EQ(table_.Bind(binding), MemoryStatus::kOk);
  EXPECT_EQ(Use(rkey, kVa + 20), MemoryStatus::kOk);
  EXPECT_EQ(Use(rkey, kVa + 20, 1, transport::kAccessFlushGlobal),
            MemoryStatus::kNoRight);
}

TEST_F(WindowTest, ZeroBased) {
  const uint32_t rkey = table_.AddWindow(kPd, WindowType::k2);
  WindowBinding binding = Part(rkey);
  binding.access |= transport::kAccessZeroBased;
  ASSERT_EQ(table_.Bind(binding), MemoryStatus::kOk);
  ASSERT_EQ(Use(rkey, 39), MemoryStatus::kOk);
  EXPECT_EQ(spans_[0].data, bytes_.data() + 59);
  EXPECT_EQ(Use(rkey, 40), MemoryStatus::kOutOfRange);
  EXPECT_EQ(Use(rkey, kVa + 20), MemoryStatus::kOutOfRange);
}

TEST_F(WindowTest, RefusedBindings) {
  const uint32_t rkey = table_.AddWindow(kPd, WindowType::k1);
  const auto bind = [&](auto&& change) {
    WindowBinding binding = Part(rkey);
    change(binding);
    return table_.Bind(binding);
  };
  EXPECT_EQ(bind([](auto& b) { b.rkey += 256; }), MemoryStatus::kBadKey);
  EXPECT_EQ(bind([](auto& b) { ++b.region_key; }), MemoryStatus::kBadKey);
  EXPECT_EQ(bind([](auto& b) { ++b.pd; }), MemoryStatus::kWrongDomain);
  EXPECT_EQ(bind([](auto& b) { b.va = kVa - 1; }), MemoryStatus::kOutOfRange);
  EXPECT_EQ(bind([](auto& b) { b.length = 81; }), MemoryStatus::kOutOfRange);
  EXPECT_EQ(bind([](auto& b) { b.va = kVa + 101; }), MemoryStatus::kOutOfRange);
  EXPECT_EQ(bind([](auto& b) { b.length = UINT64_MAX; }),
            MemoryStatus::kOutOfRange);
  EXPECT_EQ(bind([](auto& b) { b.length = 80; }), MemoryStatus::kOk);

  Region other = region_;
  other.access = transport::kAccessMwBind;  // no local write
  const uint32_t read_only = table_.Add(other);
  other.access = transport::kAccessLocalWrite;
  const uint32_t unbindable = table_.Add(other);
  other.access |= transport::kAccessMwBind;
  other.pd = kPd + 1;
  const uint32_t foreign = table_.Add(other);
  EXPECT_EQ(bind([&](auto& b) { b.region_key = read_only; }),
            MemoryStatus::kNoRight);
  EXPECT_EQ(bind([&](auto& b) {
              b.region_key = read_only;
              b.access = transport::kAccessRemoteAtomic;
            }),
            MemoryStatus::kNoRight);
  EXPECT_EQ(bind([&](auto& b) {
              b.region_key = read_only;
              b.access = transport::kAccessRemoteRead;
            }),
            MemoryStatus::kOk);
  EXPECT_EQ(bind([&](auto& b) { b.region_key = unbindable; }),
            MemoryStatus::kNoRight);
  EXPECT_EQ(bind([&](auto& b) { b.region_key = foreign; }),
            MemoryStatus::kWrongDomain);
}

TEST_F(WindowTest, Type1CanBeReboundAndIsUnboundByZeroLength) {
  const uint32_t rkey = table_.AddWindow(kPd, WindowType::k1);
  ASSERT_EQ(table_.Bind(Part(rkey)), MemoryStatus::kOk);
  ASSERT_EQ(table_.Bind(Part(rkey ^ 1)), MemoryStatus::kOk);
  EXPECT_EQ(Use(rkey, kVa + 20), MemoryStatus::kWrongWindow);
  EXPECT_EQ(Use(rkey ^ 1, kVa + 20), MemoryStatus::kOk);
  EXPECT_EQ(table_.Invalidate({rkey ^ 1, kPd, kQpn}), MemoryStatus::kNoRight);
  EXPECT_EQ(table_.Remove(region_.key), EBUSY);
  ASSERT_EQ(table_.Bind({.rkey = rkey ^ 2, .pd = kPd, .qpn = kQpn}),
            MemoryStatus::kOk);
  EXPECT_EQ(Use(rkey ^ 1, kVa + 20), MemoryStatus::kWrongWindow);
  EXPECT_EQ(Use(rkey ^ 2, kVa + 20), MemoryStatus::kWrongWindow);
  EXPECT_EQ(table_.Remove(region_.key), 0);
}

TEST_F(WindowTest, Type2IsInvalidatedBeforeItIsBoundAgain) {
  const uint32_t rkey = table_.AddWindow(kPd, WindowType::k2);
  ASSERT_EQ(table_.Bind(Part(rkey)), MemoryStatus::kOk);
  EXPECT_EQ(table_.Bind(Part(rkey ^ 1)), MemoryStatus::kNoRight);
  EXPECT_EQ(table_.Bind({.rkey = rkey, .pd = kPd, .qpn = kQpn}),
            MemoryStatus::kNoRight);
  EXPECT_EQ(table_.Invalidate({rkey ^ 1, kPd, kQpn}),
            MemoryStatus::kWrongWindow);
  EXPECT_EQ(table_.Invalidate({rkey, kPd + 1, kQpn}),
            MemoryStatus::kWrongDomain);
  EXPECT_EQ(table_.Invalidate({rkey, kPd, kQpn + 1}),
            MemoryStatus::kWrongWindow);
  EXPECT_EQ(Use(rkey, kVa + 20), MemoryStatus::kOk);
  ASSERT_EQ(table_.Invalidate({rkey, kPd, kQpn}), MemoryStatus::kOk);
  EXPECT_EQ(Use(rkey, kVa + 20), MemoryStatus::kWrongWindow);
  EXPECT_EQ(table_.Invalidate({rkey, kPd, kQpn}), MemoryStatus::kWrongWindow);
  EXPECT_EQ(table_.Bind(Part(rkey ^ 1)), MemoryStatus::kOk);
}

TEST_F(WindowTest, ARegionWithBoundWindowsIsBusy) {
  const uint32_t rkey = table_.AddWindow(kPd, WindowType::k2);
  ASSERT_EQ(table_.Bind(Part(rkey)), MemoryStatus::kOk);
  EXPECT_EQ(table_.Remove(region_.key), EBUSY);
  EXPECT_EQ(table_.Replace(region_), EBUSY);
  table_.ForgetQueuePair(kQpn + 1);
  table_.ForgetQueuePair(kQpn + 256);
  EXPECT_EQ(table_.Remove(region_.key), EBUSY);
  table_.ForgetQueuePair(kQpn);
  EXPECT_EQ(Use(rkey, kVa + 20), MemoryStatus::kWrongWindow);
  EXPECT_EQ(table_.Replace(region_), 0);
  ASSERT_EQ(table_.Bind(Part(rkey)), MemoryStatus::kOk);
  table_.RemoveWithWindows(region_.key);
  EXPECT_EQ(Use(rkey, kVa + 20), MemoryStatus::kWrongWindow);
  EXPECT_EQ(table_.Remove(region_.key), ENOENT);
  table_.RemoveWindow(rkey);
}

}  // namespace
}  // namespace rxe_user
