#include "tools/trace/match.h"

#include <algorithm>
#include <unordered_map>

namespace trace {
namespace {

constexpr size_t kNone = Match::kNone;
constexpr size_t kMostCopies = 64;

using Copies = std::unordered_map<uint64_t, std::vector<size_t>>;

Copies ByKey(std::span<const Sighting> packets) {
  Copies copies;
  for (size_t i = 0; i < packets.size(); ++i) {
    copies[packets[i].key].push_back(i);
  }
  return copies;
}

// A chain of pairs that ascends on both sides.
struct Chain {
  uint32_t pairs = 0;
  int64_t delay = 0;    // the sum
  size_t last = kNone;  // the index of its last pair
  bool IsBetterThan(const Chain& other) const {
    return pairs != other.pairs ? pairs > other.pairs : delay < other.delay;
  }
};

// The best chain that ends at or before a place: a binary indexed tree.
class BestChains {
 public:
  explicit BestChains(size_t places) : tree_(places + 1) {}
  // Of chains whose last pair has a place below `place`.
  Chain Before(size_t place) const {
    Chain best;
    for (size_t i = place; i > 0; i -= i & -i) {
      if (tree_[i].IsBetterThan(best)) best = tree_[i];
    }
    return best;
  }
  void Add(size_t place, const Chain& chain) {
    for (size_t i = place + 1; i < tree_.size(); i += i & -i) {
      if (chain.IsBetterThan(tree_[i])) tree_[i] = chain;
    }
  }

 private:
  std::vector<Chain> tree_;
};

struct Pair {
  size_t sent;
  size_t received;
  size_t before;  // the pair before it in its chain
};

void MatchInOrder(std::span<const Sighting> sent,
                  std::span<const Sighting> received, const Copies& copies,
                  Match* match) {
  std::vector<Pair> pairs;
  BestChains best(sent.size());
  std::vector<std::pair<size_t, Chain>> found;
  for (size_t j = 0; j < received.size(); ++j) {
    const auto same = copies.find(received[j].key);
    if (same == copies.end()) continue;
    // All from the chains before this packet, then they are added.
    found.clear();
    const std::vector<size_t>& places = same->second;
    for (size_t n = places.size(); n-- > 0 && found.size() < kMostCopies;) {
      const size_t i = places[n];
      if (sent[i].time > received[j].time) continue;
      const Chain before = best.Before(i);
      found.push_back({i,
                       {.pairs = before.pairs + 1,
                        .delay = before.delay + received[j].time - sent[i].time,
                        .last = pairs.size()}});
      pairs.push_back({i, j, before.last});
    }
    for (const auto& [place, chain] : found) best.Add(place, chain);
  }
  for (size_t p = best.Before(sent.size()).last; p != kNone;
       p = pairs[p].before) {
    match->received[pairs[p].sent] = pairs[p].received;
    match->sent[pairs[p].received] = pairs[p].sent;
  }
}

// What remains: packets that others overtook, and copies made on the way.
void MatchRest(std::span<const Sighting> sent,
               std::span<const Sighting> received, const Copies& copies,
               Match* match) {
  for (size_t j = 0; j < received.size(); ++j) {
    if (match->sent[j] != kNone) continue;
    const auto same = copies.find(received[j].key);
    if (same == copies.end()) continue;
    const std::vector<size_t>& places = same->second;
    size_t seen = 0;
    for (size_t n = places.size(); n-- > 0 && seen < kMostCopies;) {
      const size_t i = places[n];
      if (sent[i].time > received[j].time) continue;
      ++seen;
      if (match->duplicate_of[j] == kNone) match->duplicate_of[j] = i;
      if (match->received[i] != kNone) continue;
      match->received[i] = j;
      match->sent[j] = i;
      match->overtaken[i] = true;
      match->duplicate_of[j] = kNone;
      break;
    }
  }
}

// A packet that arrived and an equal one that did not are ambiguous if either
// fits into the order of the path with a delay that others have, too.
void FindAmbiguous(std::span<const Sighting> sent,
                   std::span<const Sighting> received, const Copies& copies,
                   Match* match) {
  // For each sent packet, the nearest received ones of its neighbors in order.
  const size_t n = sent.size();
  std::vector<size_t> before(n);  // one more than the index; 0: none
  std::vector<size_t> after(n, received.size());
  size_t latest = 0;
  int64_t longest = 0;  // delay of packets without an equal one
  for (size_t i = 0; i < n; ++i) {
    before[i] = latest;
    const size_t j = match->received[i];
    if (j == kNone || match->overtaken[i]) continue;
    latest = j + 1;
    if (copies.at(sent[i].key).size() == 1) {
      longest = std::max(longest, received[j].time - sent[i].time);
    }
  }
  size_t next = received.size();
  for (size_t i = n; i-- > 0;) {
    after[i] = next;
    if (match->received[i] != kNone && !match->overtaken[i]) {
      next = match->received[i];
    }
  }
  for (const auto& [key, places] : copies) {
    if (places.size() < 2) continue;
    for (size_t a = 0; a < places.size(); ++a) {
      const size_t lost = places[a];
      if (match->received[lost] != kNone) continue;
      // Its nearest equal neighbors suffice.
      for (const size_t b : {a - 1, a + 1}) {
        if (b >= places.size()) continue;
        const size_t other = places[b];
        const size_t j = match->received[other];
        if (j == kNone || received[j].time < sent[lost].time) continue;
        // The other's own pair does not count as a neighbor.
        const size_t low = lost > other ? before[other] : before[lost];
        const size_t high = lost > other ? after[lost] : after[other];
        if (j + 1 <= low || j >= high) continue;
        // Only if no third packet arrived in between.
        const bool between =
            lost > other ? before[lost] != j + 1 : after[lost] != j;
        if (between) continue;
        if (received[j].time - sent[lost].time > longest) continue;
        match->ambiguous[lost] = true;
        match->ambiguous[other] = true;
      }
    }
  }
}

// The least difference of times of packets that are unique on both sides.
int64_t LeastDelay(std::span<const Sighting> sent,
                   std::span<const Sighting> received) {
  const Copies sent_copies = ByKey(sent);
  int64_t least = INT64_MAX;
  for (const auto& [key, places] : ByKey(received)) {
    const auto same = sent_copies.find(key);
    if (places.size() != 1 || same == sent_copies.end() ||
        same->second.size() != 1) {
      continue;
    }
    least =
        std::min(least, received[places[0]].time - sent[same->second[0]].time);
  }
  return least;
}

}  // namespace

Match MatchPackets(std::span<const Sighting> sent,
                   std::span<const Sighting> received) {
  Match match;
  match.received.assign(sent.size(), kNone);
  match.ambiguous.assign(sent.size(), false);
  match.overtaken.assign(sent.size(), false);
  match.sent.assign(received.size(), kNone);
  match.duplicate_of.assign(received.size(), kNone);
  const Copies copies = ByKey(sent);
  MatchInOrder(sent, received, copies, &match);
  MatchRest(sent, received, copies, &match);
  FindAmbiguous(sent, received, copies, &match);
  return match;
}

ClockBounds CompareClocks(std::span<const Sighting> sent_a,
                          std::span<const Sighting> received_b,
                          std::span<const Sighting> sent_b,
                          std::span<const Sighting> received_a) {
  ClockBounds bounds;
  bounds.most = LeastDelay(sent_a, received_b);
  const int64_t back = LeastDelay(sent_b, received_a);
  if (back != INT64_MAX) bounds.least = -back;
  return bounds;
}

}  // namespace trace
