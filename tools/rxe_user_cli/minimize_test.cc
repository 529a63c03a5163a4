#include "tools/rxe_user_cli/minimize.h"

#include <algorithm>
#include <random>
#include <set>

#include "gtest/gtest.h"

namespace rxe_user_cli {
namespace {

// Fails with all of `needed`.
struct Trial {
  Subset needed;
  size_t limit = SIZE_MAX;  // of runs
  size_t runs = 0;
  std::set<Subset> seen = {};

  std::optional<bool> operator()(const Subset& subset) {
    if (runs == limit) return std::nullopt;
    ++runs;
    EXPECT_TRUE(std::ranges::is_sorted(subset));
    EXPECT_TRUE(seen.insert(subset).second) << "run twice";
    return std::ranges::includes(subset, needed);
  }
  Minimized Of(size_t count) {
    return Minimize(count,
                    [this](const Subset& subset) { return (*this)(subset); });
  }
};

TEST(Minimize, FindsEachPairAmongFifty) {
  for (size_t a = 0; a < 50; ++a) {
    for (size_t b = a + 1; b < 50; ++b) {
      Trial trial{{a, b}};
      const Minimized found = trial.Of(50);
      EXPECT_EQ(found.subset, (Subset{a, b}));
      EXPECT_TRUE(found.complete);
      EXPECT_LE(trial.runs, 60u);
    }
  }
}

TEST(Minimize, OneThing) {
  for (size_t a = 0; a < 256; ++a) {
    Trial trial{{a}};
    EXPECT_EQ(trial.Of(256).subset, Subset{a});
    EXPECT_LE(trial.runs, 16u);
  }
  Trial only{{0}};
  EXPECT_EQ(only.Of(1).subset, Subset{0});
  EXPECT_EQ(only.runs, 0u);
}

TEST(Minimize, AllAreNeeded) {
  Trial trial{{0, 1, 2, 3, 4, 5, 6}};
  const Minimized found = trial.Of(7);
  EXPECT_EQ(found.subset.size(), 7u);
  EXPECT_TRUE(found.complete);
}

TEST(Minimize, ThingsThatHinderEachOther) {
  // Fails with 3 and, unless 9 is there too, without 4.
  const auto fails = [](const Subset& s) -> std::optional<bool> {
    const auto has = [&](size_t i) { return std::ranges::count(s, i) != 0; };
    return has(3) && (!has(4) || has(9));
  };
  const Minimized found = Minimize(16, fails);
  ASSERT_TRUE(*fails(found.subset));
  for (size_t i = 0; i < found.subset.size(); ++i) {
    Subset less = found.subset;
    less.erase(less.begin() + static_cast<ptrdiff_t>(i));
    EXPECT_FALSE(*fails(less));
  }
}

TEST(Minimize, EndsWithItsRuns) {
  Trial trial{{7, 40}};
  const size_t needed = [] {
    Trial whole{{7, 40}};
    (void)whole.Of(50);
    return whole.runs;
  }();
  for (size_t limit = 0; limit < needed; ++limit) {
    Trial limited{{7, 40}, limit};
    const Minimized found = limited.Of(50);
    EXPECT_FALSE(found.complete);
    EXPECT_EQ(limited.runs, limit);
    EXPECT_TRUE(std::ranges::includes(found.subset, limited.needed));
  }
}

}  // namespace
}  // namespace rxe_user_cli
