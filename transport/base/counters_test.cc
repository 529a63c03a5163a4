#include "transport/base/counters.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace transport {
namespace {

struct Sample {
  uint64_t wide = 0;
  uint32_t narrow = 0;
  uint32_t other = 0;
  uint64_t octets = 0;
};
constexpr Counter kWide = {"wide", CounterUnit::kPackets, "",
                           TRANSPORT_COUNTER(Sample, wide)};
constexpr Counter kNarrow = {"narrow", CounterUnit::kPackets, "",
                             TRANSPORT_COUNTER(Sample, narrow)};
constexpr Counter kOther = {"other", CounterUnit::kEvents, "",
                            TRANSPORT_COUNTER(Sample, other)};
constexpr Counter kOctets = {"octets", CounterUnit::kWords, "",
                             TRANSPORT_COUNTER(Sample, octets)};

TEST(Counters, ReadsBothWidthsAndWords) {
  const Sample sample = {
      .wide = 1ull << 40 | 5, .narrow = 0xffffffff, .other = 3, .octets = 4001};
  EXPECT_EQ(kWide.Read(&sample), 1ull << 40 | 5);
  EXPECT_EQ(kNarrow.Read(&sample), 0xffffffffu);
  EXPECT_EQ(kOther.Read(&sample), 3u);
  EXPECT_EQ(kOctets.Read(&sample), 1000u);  // of 4 bytes
}

TEST(Counters, ATableWithoutOneMemberIsIncomplete) {
  const std::vector<Counter> all = {kWide, kNarrow, kOther, kOctets};
  EXPECT_TRUE(IsComplete(all, sizeof(Sample)));
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<Counter> some = all;
    some.erase(some.begin() + static_cast<ptrdiff_t>(i));
    EXPECT_FALSE(IsComplete(some, sizeof(Sample))) << i;
    some = all;
    some.insert(some.begin() + static_cast<ptrdiff_t>(i), all[i]);
    EXPECT_FALSE(IsComplete(some, sizeof(Sample))) << i;
  }
  std::vector<Counter> swapped = all;
  std::swap(swapped[1], swapped[2]);
  EXPECT_FALSE(IsComplete(swapped, sizeof(Sample)));
}

TEST(Counters, NamesAreUniqueAndHaveHelpTexts) {
  std::set<std::string_view> names;
  const auto check = [&](std::span<const Counter> table) {
    for (const Counter& counter : table) {
      EXPECT_TRUE(names.insert(counter.name).second) << counter.name;
      EXPECT_FALSE(counter.help.empty()) << counter.name;
      EXPECT_TRUE(std::ranges::all_of(counter.name, [](unsigned char c) {
        return std::islower(c) || std::isdigit(c) || c == '_';
      })) << counter.name;
    }
  };
  check(kQpCounters);
  check(kEndpointCounters);
}

TEST(Counters, TotalsDoNotWrapWhereTheQueuePairsDo) {
  QpCounters counters;
  counters.retransmitted = std::numeric_limits<uint32_t>::max();
  QpCounterTotals totals;
  totals.Add(counters);
  totals.Add(counters);
  const auto it =
      std::ranges::find(kQpCounters, "retrans_pkts", &Counter::name);
  ASSERT_NE(it, std::end(kQpCounters));
  EXPECT_EQ(totals.values[static_cast<size_t>(it - kQpCounters)],
            2 * uint64_t{std::numeric_limits<uint32_t>::max()});
}

}  // namespace
}  // namespace transport
