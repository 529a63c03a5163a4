// Says which sent packet is which received one. Retransmissions are often
// identical byte for byte, so contents alone do not tell.
//
// The rule: most matches in the order of the path and, of these, the least sum
// of delays. Packets that were overtaken on the way do not fit into that order:
// they are matched afterwards.
//
// While our device records, its bursts have different hop limits (Burst, in
// transport/base/burst.h). So equal packets with different hop limits are
// different packets, provided that all packets whose contents are unique on
// both sides made the same number of hops.
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
  // For each sent packet: another copy of it could as well be the one that
  // arrived, or did not.
  std::vector<bool> ambiguous;
  // For each sent packet that arrived: later ones arrived before it.
  std::vector<bool> overtaken;
  // For each received packet the sent one, or kNone.
  std::vector<size_t> sent;
  // For each received packet without a sent one: the sent packet that it is a
  // second copy of, or kNone.
  std::vector<size_t> duplicate_of;
};

// Pairs packets; a packet arrives at or after the time at which it was sent. Of
// equal packets, at most 64 that were sent last before an arrival are
// considered for it. `sent` is in the order of time. Time: n log n, with 64 n
// pairs at most.
Match MatchPackets(std::span<const Sighting> sent,
                   std::span<const Sighting> received);

// The clock of the receiver minus that of the sender lies in [least, most], ns.
struct ClockBounds {
  int64_t least = INT64_MIN;
  int64_t most = INT64_MAX;
};

// From packets in both directions between two ends, a and b. Only packets whose
// contents are unique on both sides count.
ClockBounds CompareClocks(std::span<const Sighting> sent_a,
                          std::span<const Sighting> received_b,
                          std::span<const Sighting> sent_b,
                          std::span<const Sighting> received_a);

}  // namespace trace

#endif  // TOOLS_TRACE_MATCH_H_
