#include "tools/trace/match.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "tools/trace/event.h"

namespace trace {
namespace {

constexpr size_t kNone = Match::kNone;
constexpr size_t kMaxCopies = 64;

using Copies = std::unordered_map<uint64_t, std::vector<size_t>>;

Copies ByKey(std::span<const Sighting> packets) {
  Copies copies;
  for (size_t i = 0; i < packets.size(); ++i) {
    copies[packets[i].key].push_back(i);
  }
  return copies;
}

// How many of `places`, the positions of equal packets, were sent by `time`.
size_t SentBy(std::span<const Sighting> sent, const std::vector<size_t>& places,
              int64_t time) {
  const auto later = std::upper_bound(
      places.begin(), places.end(), time,
      [&](int64_t t, size_t place) { return t < sent[place].time; });
  return static_cast<size_t>(later - places.begin());
}

// A chain of pairs that ascends on both sides.
struct Chain {
  uint32_t pairs = 0;
  double delay = 0;     // the sum, ns
  size_t last = kNone;  // the index of its last pair
  bool IsBetterThan(const Chain& other) const {
    return pairs != other.pairs ? pairs > other.pairs : delay < other.delay;
  }
};

// The best chain that ends at or before a position: a binary indexed tree.
class BestChains {
 public:
  explicit BestChains(size_t places) : tree_(places + 1) {}
  // The best chain whose last pair has a position below `place`.
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

// A received packet, and a sent packet that it may be.
struct Pair {
  size_t sent;
  size_t received;
  size_t before;    // the previous pair in its chain
  uint32_t length;  // of the longest chain that ends with it
};

// Returns all pairs, ordered by received packet.
std::vector<Pair> MatchInOrder(std::span<const Sighting> sent,
                               std::span<const Sighting> received,
                               const Copies& copies, Match* match) {
  std::vector<Pair> pairs;
  BestChains best(sent.size());
  std::vector<std::pair<size_t, Chain>> found;
  for (size_t j = 0; j < received.size(); ++j) {
    const auto same = copies.find(received[j].key);
    if (same == copies.end()) continue;
    // Extend the chains before this packet first, and then add the results.
    found.clear();
    const std::vector<size_t>& places = same->second;
    for (size_t n = SentBy(sent, places, received[j].time);
         n-- > 0 && found.size() < kMaxCopies;) {
      const size_t i = places[n];
      const Chain before = best.Before(i);
      found.push_back(
          {i,
           {.pairs = before.pairs + 1,
            .delay = before.delay +
                     static_cast<double>(received[j].time - sent[i].time),
            .last = pairs.size()}});
      pairs.push_back({i, j, before.last, before.pairs + 1});
    }
    for (const auto& [place, chain] : found) best.Add(place, chain);
  }
  for (size_t p = best.Before(sent.size()).last; p != kNone;
       p = pairs[p].before) {
    match->received[pairs[p].sent] = pairs[p].received;
    match->sent[pairs[p].received] = pairs[p].sent;
  }
  return pairs;
}

// Matches equal packets without regard to the order of the path: each arrival,
// the earliest first, gets the latest free packet that was sent before it. No
// other way gives more pairs. Uses the result if it has more pairs than the
// present one.
void MatchEqual(std::span<const Sighting> sent,
                std::span<const Sighting> received,
                const std::vector<size_t>& from, const std::vector<size_t>& to,
                Match* match) {
  std::vector<std::pair<size_t, size_t>> pairs;
  std::vector<size_t> free;
  size_t next = 0;
  for (const size_t j : to) {
    while (next < from.size() && sent[from[next]].time <= received[j].time) {
      free.push_back(from[next++]);
    }
    if (free.empty()) continue;
    pairs.push_back({free.back(), j});
    free.pop_back();
  }
  const auto matched = std::count_if(
      to.begin(), to.end(), [&](size_t j) { return match->sent[j] != kNone; });
  if (pairs.size() <= static_cast<size_t>(matched)) return;
  for (const size_t i : from) match->received[i] = kNone;
  for (const size_t j : to) match->sent[j] = kNone;
  for (const auto& [i, j] : pairs) {
    match->received[i] = j;
    match->sent[j] = i;
    match->overtaken[i] = true;
  }
}

// Matches the remaining packets: reordered ones, and copies made on the way.
void MatchRest(std::span<const Sighting> sent,
               std::span<const Sighting> received, const Copies& copies,
               Match* match) {
  for (const auto& [key, to] : ByKey(received)) {
    const auto same = copies.find(key);
    if (same == copies.end()) continue;
    // Take the latest free one that fits: it was only reordered.
    for (const size_t j : to) {
      if (match->sent[j] != kNone) continue;
      const std::vector<size_t>& from = same->second;
      const size_t by = SentBy(sent, from, received[j].time);
      for (size_t n = by; n-- > 0 && by - n <= kMaxCopies;) {
        const size_t i = from[n];
        if (match->received[i] != kNone) continue;
        match->received[i] = j;
        match->sent[j] = i;
        match->overtaken[i] = true;
        break;
      }
    }
    MatchEqual(sent, received, same->second, to, match);
    for (const size_t j : to) {
      if (match->sent[j] != kNone) continue;
      const size_t by = SentBy(sent, same->second, received[j].time);
      if (by > 0) match->duplicate_of[j] = same->second[by - 1];
    }
  }
}

// A packet that did not arrive is ambiguous if it has a place in another chain
// with as many pairs, with a delay of at most twice that of any match. The
// packet that arrived in its place is then ambiguous, too.
void FindAmbiguous(std::span<const Sighting> sent,
                   std::span<const Sighting> received,
                   const std::vector<Pair>& pairs, Match* match) {
  int64_t longest = 0;  // the longest likely delay: twice that of any match
  uint32_t most = 0;    // the number of pairs in the best chain
  for (const Pair& pair : pairs) {
    most = std::max(most, pair.length);
    if (match->received[pair.sent] == pair.received) {
      const int64_t delay = received[pair.received].time - sent[pair.sent].time;
      longest = std::max(longest, 2 * std::min(delay, kLatestTime));
    }
  }
  // The longest chains that begin with each pair: as in MatchInOrder, from the
  // end.
  BestChains best(sent.size());
  std::unordered_map<size_t, std::vector<size_t>> others;  // received, by sent
  for (size_t p = pairs.size(); p > 0;) {
    const size_t j = pairs[p - 1].received;
    const size_t end = p;
    while (p > 0 && pairs[p - 1].received == j) --p;
    std::vector<uint32_t> lengths;
    for (size_t q = p; q < end; ++q) {
      const size_t place = sent.size() - 1 - pairs[q].sent;
      lengths.push_back(best.Before(place).pairs + 1);
      const int64_t delay = received[j].time - sent[pairs[q].sent].time;
      if (pairs[q].length + lengths.back() - 1 == most && delay <= longest) {
        others[pairs[q].sent].push_back(j);
      }
    }
    for (size_t q = p; q < end; ++q) {
      best.Add(sent.size() - 1 - pairs[q].sent,
               {.pairs = lengths[q - p], .delay = 0, .last = q});
    }
  }
  std::vector<size_t> open;
  for (const auto& [i, places] : others) {
    if (match->received[i] == kNone) open.push_back(i);
  }
  while (!open.empty()) {
    const size_t i = open.back();
    open.pop_back();
    if (match->ambiguous[i]) continue;
    match->ambiguous[i] = true;
    const auto places = others.find(i);
    if (places == others.end()) continue;
    for (const size_t j : places->second) {
      const size_t chosen = match->sent[j];
      if (chosen != kNone && !match->ambiguous[chosen]) open.push_back(chosen);
    }
  }
}

// Calls visit(sent packet, received packet) for packets whose contents are
// unique on both sides.
template <typename Visit>
void ForEachUnique(std::span<const Sighting> sent,
                   std::span<const Sighting> received, Visit visit) {
  const Copies sent_copies = ByKey(sent);
  for (const auto& [key, places] : ByKey(received)) {
    const auto same = sent_copies.find(key);
    if (places.size() != 1 || same == sent_copies.end() ||
        same->second.size() != 1) {
      continue;
    }
    visit(sent[same->second[0]], received[places[0]]);
  }
}

// The minimum time difference of packets that are unique on both sides.
int64_t LeastDelay(std::span<const Sighting> sent,
                   std::span<const Sighting> received) {
  int64_t least = INT64_MAX;
  ForEachUnique(sent, received, [&](const Sighting& from, const Sighting& to) {
    least = std::min(least, to.time - from.time);
  });
  return least;
}

// The number of hops of the packets, if it is the same for all.
std::optional<uint8_t> HopsBetween(std::span<const Sighting> sent,
                                   std::span<const Sighting> received) {
  std::optional<uint8_t> hops;
  bool is_one = true;
  ForEachUnique(sent, received, [&](const Sighting& from, const Sighting& to) {
    const auto its = static_cast<uint8_t>(from.hop_limit - to.hop_limit);
    is_one &= its == hops.value_or(its);
    hops = its;
  });
  return is_one ? hops : std::nullopt;
}

// The packets with keys that include the hop limit at the sender.
std::vector<Sighting> KeyedByHopLimit(std::span<const Sighting> packets,
                                      uint8_t hops) {
  std::vector<Sighting> keyed(packets.begin(), packets.end());
  for (Sighting& packet : keyed) {
    const auto at_sender = static_cast<uint8_t>(packet.hop_limit + hops);
    packet.key ^= (uint64_t{at_sender} + 1) * 0x9e3779b97f4a7c15;
  }
  return keyed;
}

}  // namespace

Match MatchPackets(std::span<const Sighting> sent,
                   std::span<const Sighting> received) {
  std::vector<Sighting> keyed_sent, keyed_received;
  if (const auto hops = HopsBetween(sent, received)) {
    sent = keyed_sent = KeyedByHopLimit(sent, 0);
    received = keyed_received = KeyedByHopLimit(received, *hops);
  }
  Match match;
  match.received.assign(sent.size(), kNone);
  match.ambiguous.assign(sent.size(), false);
  match.overtaken.assign(sent.size(), false);
  match.sent.assign(received.size(), kNone);
  match.duplicate_of.assign(received.size(), kNone);
  const Copies copies = ByKey(sent);
  const std::vector<Pair> pairs = MatchInOrder(sent, received, copies, &match);
  MatchRest(sent, received, copies, &match);
  FindAmbiguous(sent, received, pairs, &match);
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
