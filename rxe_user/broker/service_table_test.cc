#include "rxe_user/broker/service_table.h"

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

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
    // Services of one process conflict in the same way.
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
  // A new broker may learn later of a reservation that is older.
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

TEST(ServiceTable, MasksOfAProcess) {
  ServiceTable table;
  Service service = On(kA);
  ASSERT_TRUE(table.Set(1, 1, service));
  EXPECT_EQ(table.MasksWith(1, 1, service.mask), 1u);
  EXPECT_EQ(table.MasksWith(1, 1, 0xff), 1u);
  EXPECT_EQ(table.MasksWith(1, 2, 0xff), 2u);
  service.service_id = 8;
  ASSERT_TRUE(table.Set(1, 2, service));
  EXPECT_EQ(table.MasksWith(1, 2, 0xff), 2u);
  service.mask = 0xff;
  ASSERT_TRUE(table.Set(1, 2, service));
  EXPECT_EQ(table.MasksWith(1, 3, 0xffff), 3u);
  EXPECT_EQ(table.MasksWith(2, 1, 0xffff), 1u);
  table.Remove(1, 1);
  EXPECT_EQ(table.MasksWith(1, 3, 0xffff), 2u);
}

// The same rules, applied to a list of all services.
class Model {
 public:
  struct Entry {
    uint16_t holder;
    uint32_t token;
    Service service;
  };
  bool Set(uint16_t holder, uint32_t token, const Service& s) {
    Entry* own = nullptr;
    for (Entry& e : entries_) {
      if (e.holder == holder && e.token == token) own = &e;
    }
    for (const Entry& e : entries_) {
      const Service& t = e.service;
      if (&e == own || t.mask != s.mask ||
          (t.service_id & t.mask) != (s.service_id & s.mask) ||
          !Overlap(t, s)) {
        continue;
      }
      if (t.reuse != 1 || s.reuse != 1) return false;
      if (t.listening == 1 && (s.listening == 1 || own == nullptr)) {
        return false;
      }
    }
    if (own != nullptr) {
      own->service = s;
    } else {
      entries_.push_back({holder, token, s});
    }
    return true;
  }
  void Remove(uint16_t holder, uint32_t token) {
    std::erase_if(entries_, [&](const Entry& e) {
      return e.holder == holder && e.token == token;
    });
  }
  std::optional<uint16_t> Match(uint64_t id, const LocalAddress& local) const {
    std::pair<int, int> best = {-1, 0};
    std::optional<uint16_t> holder;
    for (const Entry& e : entries_) {
      const Service& s = e.service;
      const bool wild = s.local.address.is_unspecified();
      if (s.listening != 1 || (s.service_id & s.mask) != (id & s.mask)) {
        continue;
      }
      if (wild ? !(local.address.is_v4() ? V4(s) : V6(s)) : s.local != local) {
        continue;
      }
      const std::pair<int, int> fit = {std::popcount(s.mask), !wild ? 3
                                                              : V4(s) && V6(s)
                                                                  ? 1
                                                                  : 2};
      if (fit <= best) continue;
      best = fit;
      holder = e.holder;
    }
    return holder;
  }

 private:
  static bool V4(const Service& s) {
    return s.local.address.is_v4() ||
           (s.local.address.is_unspecified() && s.ipv6_only == 0);
  }
  static bool V6(const Service& s) { return !s.local.address.is_v4(); }
  static bool Overlap(const Service& a, const Service& b) {
    if (!a.local.address.is_unspecified() &&
        !b.local.address.is_unspecified()) {
      return a.local == b.local;
    }
    return (V4(a) && V4(b)) || (V6(a) && V6(b));
  }
  std::vector<Entry> entries_;
};

TEST(ServiceTable, AgreesWithAListOfAllServices) {
  const LocalAddress locals[] = {kA, kB, kSix, kAllV4, kAll};
  std::mt19937 random(46);
  const auto below = [&](uint32_t n) { return random() % n; };
  for (int round = 0; round < 50; ++round) {
    ServiceTable table;
    Model model;
    for (int i = 0; i < 400; ++i) {
      const auto holder = static_cast<uint16_t>(below(4));
      const uint32_t token = below(6);
      if (below(5) == 0) {
        table.Remove(holder, token);
        model.Remove(holder, token);
      } else {
        const Service s = {.service_id = below(3),
                           .mask = below(4) == 0 ? ~uint64_t{1} : ~uint64_t{0},
                           .local = locals[below(5)],
                           .ipv6_only = static_cast<uint8_t>(below(2)),
                           .reuse = static_cast<uint8_t>(below(4) != 0),
                           .listening = static_cast<uint8_t>(below(3) == 0)};
        ASSERT_EQ(table.Set(holder, token, s), model.Set(holder, token, s));
      }
      for (uint64_t id = 0; id < 3; ++id) {
        for (const LocalAddress& local : {kA, kB, kSix}) {
          ASSERT_EQ(table.Match(id, local), model.Match(id, local));
        }
      }
    }
  }
}

// Each change used to be compared with all services of the same ID, so 22
// processes of one user kept the broker busy for minutes.
TEST(ServiceTable, ManyServicesOfOneIdAreFast) {
  constexpr uint32_t kTokens = 1024;  // of a process
  ServiceTable table;
  Service service = On(kA);
  service.reuse = 1;
  service.listening = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < 2; ++round) {
    for (uint16_t holder = 1; holder <= 22; ++holder) {
      for (uint32_t token = 0; token < kTokens; ++token) {
        ASSERT_TRUE(table.Set(holder, token, service));
      }
    }
  }
  for (uint16_t holder = 1; holder <= 22; ++holder) table.RemoveAll(holder);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace rxe_user
