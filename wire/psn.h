// Packet sequence numbers: 24 bits, compared modulo 2^24 (InfiniBand
// specification 9.7.2). All functions return values below 2^24 and ignore
// higher bits of their arguments.

#ifndef WIRE_PSN_H_
#define WIRE_PSN_H_

#include <cstdint>

namespace wire {

inline constexpr uint32_t kPsnMask = 0xffffff;

// The PSN `delta` packets after `psn` (before it, if negative).
constexpr uint32_t PsnAdd(uint32_t psn, int64_t delta) {
  return (psn + static_cast<uint32_t>(delta)) & kPsnMask;
}

// a - b in [-2^23, 2^23): negative if `a` is before `b`.
constexpr int32_t PsnDiff(uint32_t a, uint32_t b) {
  // Shifts the 24 bits to the top, then back with sign extension.
  return static_cast<int32_t>((a - b) << 8) >> 8;
}

}  // namespace wire

#endif  // WIRE_PSN_H_
