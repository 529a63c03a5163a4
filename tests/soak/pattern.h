// The contents of messages and memory of the soak test. Each word is computed
// from a key and its position, so contents can be verified with the key.
#ifndef TESTS_SOAK_PATTERN_H_
#define TESTS_SOAK_PATTERN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace soak {

// Mixes two numbers into one (the finalizer of MurmurHash3).
inline uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t v = a ^ (b * 0x9e3779b97f4a7c15u);
  v = (v ^ (v >> 33)) * 0xff51afd7ed558ccdu;
  v = (v ^ (v >> 33)) * 0xc4ceb9fe1a85ec53u;
  return v ^ (v >> 33);
}

inline uint64_t PatternWord(uint64_t key, uint64_t index) {
  return key + index * 0xd6e8feb86659fd93u;
}

// Writes the pattern of `key` from word `first` on.
inline void FillPattern(uint8_t* bytes, size_t size, uint64_t key,
                        uint64_t first = 0) {
  for (size_t at = 0; at < size; at += 8) {
    const uint64_t word = PatternWord(key, first++);
    std::memcpy(bytes + at, &word, std::min<size_t>(8, size - at));
  }
}

// The offset of the first byte that differs from FillPattern; `size` if none
// does.
inline size_t FirstDifference(const uint8_t* bytes, size_t size, uint64_t key,
                              uint64_t first = 0) {
  for (size_t at = 0; at < size; at += 8) {
    const uint64_t word = PatternWord(key, first++);
    if (std::memcmp(bytes + at, &word, std::min<size_t>(8, size - at)) != 0) {
      return at;
    }
  }
  return size;
}

// A message: its number, if it fits, then a pattern derived from it.
inline constexpr size_t kNumberBytes = 8;

inline void FillMessage(uint8_t* bytes, size_t size, uint64_t key,
                        uint64_t number) {
  FillPattern(bytes, size, Mix(key, number));
  if (size >= kNumberBytes) std::memcpy(bytes, &number, kNumberBytes);
}

inline uint64_t NumberOf(const uint8_t* bytes) {
  uint64_t number;
  std::memcpy(&number, bytes, kNumberBytes);
  return number;
}

inline bool IsMessage(const uint8_t* bytes, size_t size, uint64_t key,
                      uint64_t number) {
  size_t at = 0;
  if (size >= kNumberBytes) {
    if (NumberOf(bytes) != number) return false;
    at = kNumberBytes;
  }
  return FirstDifference(bytes + at, size - at, Mix(key, number), at / 8) ==
         size - at;
}

}  // namespace soak

#endif  // TESTS_SOAK_PATTERN_H_
