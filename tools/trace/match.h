// Finds the sent packet of each received one. Retransmissions are often
// identical byte for byte, so contents alone do not suffice.
//
// The rule: the most matches in the order of the path and, among these, the
// least sum of delays. Packets that were reordered on the way do not fit in
// that order, and are matched afterwards.
//
// While our device records, its bursts have different hop limits (Burst, in
// transport/base/burst.h). So equal packets with different hop limits are
// different packets. This holds only on a path with a constant number of hops,
// as seen from packets whose contents are unique on both sides.
#ifndef TOOLS_TRACE_MATCH_H_
#define TOOLS_TRACE_MATCH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trace {

// A packet of one direction of a path, in the order of its capture.
struct Sighting {
  uint64_t key = 0;       // equal for packets with equal contents
  int64_t time = 0;       // ns, on one clock for both ends
  uint8_t hop_limit = 0;  // of its IP header
};

struct Match {
  static constexpr size_t kNone = SIZE_MAX;

  // For each sent packet the received one, or kNone.
  std::vector<size_t> received;
  // For each sent packet: an equal one may have had its fate instead.
  std::vector<bool> ambiguous;
  // For each sent packet that arrived: later ones arrived before it.
  std::vector<bool> overtaken;
  // For each received packet the sent one, or kNone.
  std::vector<size_t> sent;
  // For each received packet without a sent one: the sent packet of which it is
  // a second copy, or kNone.
  std::vector<size_t> duplicate_of;
};

// Pairs packets. A packet arrives at or after the time at which it was sent.
// For an arrival, at most the last 64 equal packets that were sent before it
// are considered. `sent` must be ordered by time. Takes n log n time, with at
// most 64 n pairs.
Match MatchPackets(std::span<const Sighting> sent,
                   std::span<const Sighting> received);

// The receiver's clock minus the sender's is in [least, most], ns.
struct ClockBounds {
  int64_t least = INT64_MIN;
  int64_t most = INT64_MAX;
};

// Computed from packets in both directions between two ends, a and b. Only
// packets with contents that are unique on both sides count.
ClockBounds CompareClocks(std::span<const Sighting> sent_a,
                          std::span<const Sighting> received_b,
                          std::span<const Sighting> sent_b,
                          std::span<const Sighting> received_a);

}  // namespace trace

#endif  // TOOLS_TRACE_MATCH_H_
