#include "rxe_user/objects/handle_table.h"

#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace rxe_user {
namespace {

TEST(HandleTableTest, FindsOnlyWhatIsThere) {
  HandleTable<int> table;
  std::vector<int> objects(3000);
  std::vector<uint32_t> handles;
  for (int& object : objects) {
    handles.push_back(table.Add(&object));
    EXPECT_NE(handles.back(), 0u);
  }
  for (size_t i = 0; i < objects.size(); ++i) {
    EXPECT_EQ(table.Find(handles[i]), &objects[i]);
  }
  table.Remove(handles[5]);
  EXPECT_EQ(table.Find(handles[5]), nullptr);
  EXPECT_EQ(table.Find(handles[6]), &objects[6]);
  EXPECT_EQ(table.Find(0), nullptr);
  EXPECT_EQ(table.Find(0xffffffff), nullptr);
  // another generation
  EXPECT_EQ(table.Find(handles[6] + (1u << 20)), nullptr);
  EXPECT_EQ(table.Find(900'000), nullptr);
}

TEST(HandleTableTest, HandlesAreNotReusedSoon) {
  HandleTable<int> table;
  int object = 0;
  std::set<uint32_t> seen;
  for (int i = 0; i < 10'000; ++i) {
    const uint32_t handle = table.Add(&object);
    ASSERT_TRUE(seen.insert(handle).second) << i;
    table.Remove(handle);
    EXPECT_EQ(table.Find(handle), nullptr);
  }
}

}  // namespace
}  // namespace rxe_user
