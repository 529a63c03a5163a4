// A failed allocation for a new key leaves the table unchanged.
#include <array>
#include <new>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/memory/region_table.h"
#include "transport/testing/scarce_memory.h"

namespace rxe_user {
namespace {

using transport::allocations_left;
using transport::kUnlimited;

// Allows more and more allocations, until they suffice.
template <typename Add>
uint32_t AddWhenThereIsMemory(Add add) {
  for (int allocations = 0;; ++allocations) {
    allocations_left = allocations;
    try {
      const uint32_t key = add();
      allocations_left = kUnlimited;
      EXPECT_GT(allocations, 0);
      return key;
    } catch (const std::bad_alloc&) {
      allocations_left = kUnlimited;
    }
  }
}

TEST(RegionTableMemoryTest, KeysAreFoundAfterAFailedAdd) {
  transport::refuse_allocation = transport::RefuseWhenNoneIsLeft;
  std::array<uint8_t, 100> bytes{};
  Region region;
  region.pd = 7;
  region.access = transport::kAccessLocalWrite | transport::kAccessMwBind |
                  transport::kAccessRemoteRead;
  region.host = bytes.data();
  region.length = bytes.size();
  region.iova = 0x1000;
  RegionTable table;
  std::vector<uint32_t> keys;
  std::vector<uint32_t> windows;
  for (int i = 0; i < 200; ++i) {
    keys.push_back(AddWhenThereIsMemory([&] { return table.Add(region); }));
    windows.push_back(AddWhenThereIsMemory(
        [&] { return table.AddWindow(7, RegionTable::WindowType::k1); }));
  }
  for (const uint32_t key : keys) {
    transport::SpanList spans;
    transport::MemoryAccess wanted;
    wanted.key = key;
    wanted.pd = 7;
    wanted.va = 0x1000;
    wanted.length = 100;
    EXPECT_EQ(table.Translate(wanted, &spans), transport::MemoryStatus::kOk);
    EXPECT_EQ(table.Remove(key), 0);
  }
  for (const uint32_t key : windows) table.RemoveWindow(key);
}

}  // namespace
}  // namespace rxe_user
