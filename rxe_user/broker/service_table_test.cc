#include "rxe_user/broker/service_table.h"

#include <gtest/gtest.h>

#include <string>

namespace rxe_user {
namespace {

LocalAddress At(const std::string& text) {
  return {*wire::IpAddress::Parse(text), 0};
}
const LocalAddress kA = At("192.0.2.1");
const LocalAddress kB = At("192.0.2.2");
const LocalAddress kSix = At("2001:db8::1");
const LocalAddress kAllV4 = At("::ffff:0.0.0.0");
const LocalAddress kAll = At("::");

Service On(const LocalAddress& local, uint64_t service_id = 7) {
  return {.service_id = service_id, .local = local, .listening = 1};
}

TEST(ServiceTable, RequestsGoToTheListener) {
  ServiceTable table;
  ASSERT_TRUE(table.Set(1, 1, On(kA)));
  ASSERT_TRUE(table.Set(2, 1, On(kB)));
  EXPECT_EQ(table.Match(7, kA), 1);
  EXPECT_EQ(table.Match(7, kB), 2);
  EXPECT_EQ(table.Match(8, kA), std::nullopt);
  EXPECT_EQ(table.Match(7, kSix), std::nullopt);
  table.Remove(1, 1);
  EXPECT_EQ(table.Match(7, kA), std::nullopt);
}

TEST(ServiceTable, AReservationWithoutListenerGetsNothing) {
  ServiceTable table;
  Service service = On(kA);
  service.listening = 0;
  ASSERT_TRUE(table.Set(1, 1, service));
  EXPECT_EQ(table.Match(7, kA), std::nullopt);
  EXPECT_FALSE(table.Set(2, 1, On(kA)));
  service.listening = 1;
  ASSERT_TRUE(table.Set(1, 1, service));
  EXPECT_EQ(table.Match(7, kA), 1);
  EXPECT_EQ(table.CountOf(1), 1u);
}

TEST(ServiceTable, CommonAddressesConflict) {
  struct {
    LocalAddress first, second;
    bool first_v6_only, second_v6_only, together;
  } const cases[] = {
      {kA, kA, false, false, false},     {kA, kB, false, false, true},
      {kA, kAllV4, false, false, false}, {kAllV4, kA, false, false, false},
      {kA, kAll, false, false, false},   {kSix, kAllV4, false, false, true},
      {kSix, kAll, false, false, false}, {kSix, kAll, false, true, false},
      {kA, kAll, false, true, true},     {kAllV4, kAll, false, false, false},
      {kAllV4, kAll, false, true, true}, {kAll, kAll, true, false, false},
  };
  for (const auto& c : cases) {
    ServiceTable table;
    Service first = On(c.first);
    Service second = On(c.second);
    first.ipv6_only = c.first_v6_only;
    second.ipv6_only = c.second_v6_only;
    ASSERT_TRUE(table.Set(1, 1, first));
    EXPECT_EQ(table.Set(2, 1, second), c.together)
        << c.first.ToString() << " " << c.second.ToString();
    // A process conflicts with itself, too.
    ServiceTable own;
    ASSERT_TRUE(own.Set(1, 1, first));
    EXPECT_EQ(own.Set(1, 2, second), c.together);
  }
}

TEST(ServiceTable, SharedIdsHaveOneListener) {
  ServiceTable table;
  Service service = On(kA);
  service.reuse = 1;
  service.listening = 0;
  ASSERT_TRUE(table.Set(1, 1, service));
  EXPECT_TRUE(table.Set(2, 1, service));
  service.listening = 1;
  ASSERT_TRUE(table.Set(1, 1, service));
  EXPECT_FALSE(table.Set(2, 1, service));
  service.listening = 0;
  service.reuse = 0;
  EXPECT_FALSE(table.Set(3, 1, service));
  // A refused change has no effect.
  service.reuse = 1;
  service.listening = 1;
  EXPECT_FALSE(table.Set(2, 1, service));
  table.RemoveAll(1);
  EXPECT_EQ(table.Match(7, kA), std::nullopt);
  EXPECT_TRUE(table.Set(2, 1, service));
  EXPECT_EQ(table.Match(7, kA), 2);
}

TEST(ServiceTable, ALaterReservationConflictsWithAListener) {
  ServiceTable table;
  Service service = On(kA);
  service.reuse = 1;
  ASSERT_TRUE(table.Set(1, 1, service));
  service.listening = 0;
  EXPECT_FALSE(table.Set(2, 1, service));
  // An older reservation that a new broker learns of later.
  EXPECT_TRUE(table.Set(2, 1, service, ServiceTable::Since::kBefore));
  EXPECT_TRUE(table.Set(2, 1, service));
  service.listening = 1;
  EXPECT_FALSE(table.Set(3, 1, service, ServiceTable::Since::kBefore));
}

TEST(ServiceTable, TheNarrowestMatchWins) {
  ServiceTable table;
  Service range = On(kAll, 0x1200);
  range.mask = ~uint64_t{0xff};
  ASSERT_TRUE(table.Set(1, 1, range));
  ASSERT_TRUE(table.Set(2, 1, On(kAllV4, 0x1234)));
  EXPECT_EQ(table.Match(0x1234, kA), 2);
  EXPECT_EQ(table.Match(0x1234, kSix), 1);
  EXPECT_EQ(table.Match(0x1235, kA), 1);
  EXPECT_EQ(table.Match(0x1335, kA), std::nullopt);
}

TEST(ServiceTable, RemoveAllRemovesOneHoldersServices) {
  ServiceTable table;
  for (uint32_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(table.Set(1, i, On(kA, i)));
    ASSERT_TRUE(table.Set(2, i, On(kB, i)));
  }
  table.RemoveAll(1);
  EXPECT_EQ(table.CountOf(1), 0u);
  EXPECT_EQ(table.CountOf(2), 5u);
  EXPECT_EQ(table.Match(3, kB), 2);
}

}  // namespace
}  // namespace rxe_user
