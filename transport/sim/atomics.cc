// Checks atomics: a consistent order of execution must exist.
#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_format.h"
#include "transport/sim/workload.h"

namespace sim {
namespace {

struct Result {
  const End* end;
  const Op* op;
};

// Reconstructs the values of the word: each value was found by exactly one
// changing operation, since every change gives a unique value.
std::string Follow(const AtomicWord& word, uint64_t final,
                   const std::vector<Result>& results) {
  std::unordered_map<uint64_t, const Op*> next;
  size_t changes = 0;
  for (const Result& result : results) {
    const Op& op = *result.op;
    if (word.compare_swap && op.original != op.compare_add) continue;
    ++changes;
    if (!next.emplace(op.original, &op).second) {
      return absl::StrFormat("two atomics found the same value %x",
                             op.original);
    }
  }
  std::unordered_map<uint64_t, size_t> position;
  uint64_t value = word.initial;
  position[value] = 0;
  size_t steps = 0;
  for (auto it = next.find(value); it != next.end() && steps <= changes;
       it = next.find(value)) {
    value =
        word.compare_swap ? it->second->swap : value + it->second->compare_add;
    position[value] = ++steps;
  }
  if (steps != changes) {
    return absl::StrFormat(
        "%d of %d atomics were executed in a row from the first value", steps,
        changes);
  }
  if (value != final) {
    return absl::StrFormat("the word holds %x after atomics that made it %x",
                           final, value);
  }
  // Failed compares must have found a value of the word, and each queue pair
  // must have found values in order.
  std::unordered_map<const End*, size_t> reached;
  for (const Result& result : results) {
    const Op& op = *result.op;
    const auto it = position.find(op.original);
    if (it == position.end()) {
      return absl::StrFormat("an atomic found %x, which was never there",
                             op.original);
    }
    const bool changed = !word.compare_swap || op.original == op.compare_add;
    if (it->second < reached[result.end]) {
      return "atomics of one queue pair were executed out of order";
    }
    reached[result.end] = it->second + (changed ? 1 : 0);
  }
  return "";
}

}  // namespace

std::string CheckAtomicWord(Host& host, int word,
                            const std::vector<std::unique_ptr<End>>& ends) {
  std::vector<Result> results;
  for (const auto& end : ends) {
    if (end->peer->host != &host) continue;
    for (const Op& op : end->ops) {
      if (op.word == word) results.push_back({end.get(), &op});
    }
  }
  uint64_t final;
  std::memcpy(&final, host.arena.actual(host.words[word].offset), 8);
  return Follow(host.words[word], final, results);
}

}  // namespace sim
