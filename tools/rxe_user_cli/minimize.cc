#include "tools/rxe_user_cli/minimize.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>

namespace rxe_user_cli {
namespace {

// Part `index` of `parts` parts of nearly equal size.
Subset Part(const Subset& whole, size_t index, size_t parts) {
  const auto at = [&](size_t i) {
    return whole.begin() + static_cast<ptrdiff_t>(whole.size() * i / parts);
  };
  return {at(index), at(index + 1)};
}

Subset WithoutPart(const Subset& whole, size_t index, size_t parts) {
  const Subset part = Part(whole, index, parts);
  Subset rest;
  std::ranges::set_difference(whole, part, std::back_inserter(rest));
  return rest;
}

}  // namespace

Minimized Minimize(
    size_t count,
    const std::function<std::optional<bool>(const Subset&)>& fails) {
  Minimized result;
  result.subset.resize(count);
  std::iota(result.subset.begin(), result.subset.end(), size_t{0});
  std::set<Subset> tried = {Subset()};
  bool ended = false;
  // Continues with the subset if it fails. A subset that was tried before does
  // not fail: the search would have continued with it.
  const auto take = [&](const Subset& subset) {
    if (!tried.insert(subset).second) return false;
    const std::optional<bool> failed = fails(subset);
    ended = !failed.has_value();
    if (ended || !*failed) return false;
    result.subset = subset;
    return true;
  };
  size_t parts = 2;
  while (result.subset.size() >= 2 && !ended) {
    const Subset whole = result.subset;
    bool smaller = false;
    for (size_t i = 0; i < parts && !smaller && !ended; ++i) {
      smaller = take(Part(whole, i, parts));
      if (smaller) parts = 2;
    }
    // With two parts, the complement of one is the other.
    for (size_t i = 0; parts > 2 && i < parts && !smaller && !ended; ++i) {
      smaller = take(WithoutPart(whole, i, parts));
      if (smaller) parts = std::max<size_t>(parts - 1, 2);
    }
    if (smaller || ended) continue;
    if (parts >= whole.size()) break;
    parts = std::min(2 * parts, whole.size());
  }
  result.complete = !ended;
  return result;
}

}  // namespace rxe_user_cli
