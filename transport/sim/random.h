// A small seeded generator (SplitMix64). Unlike the distributions of <random>,
// its results are the same on every platform, so a seed replays exactly.
#ifndef TRANSPORT_SIM_RANDOM_H_
#define TRANSPORT_SIM_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sim {

// Mixes 64 bits. A bijection.
constexpr uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mix(seed)) {}

  uint64_t Next() { return Mix(state_ += 0x9e3779b97f4a7c15); }
  // In [0, n); 0 if n is 0.
  uint64_t Below(uint64_t n) { return n == 0 ? 0 : Next() % n; }
  // In [low, high].
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Below(high - low + 1));
  }
  // True with a probability of `ppm` in a million.
  bool Chance(uint32_t ppm) { return ppm != 0 && Below(1'000'000) < ppm; }
  bool Percent(uint32_t percent) { return Below(100) < percent; }
  template <typename T>
  const T& Pick(const std::vector<T>& from) {
    return from[Below(from.size())];
  }
  template <typename T>
  T Pick(std::initializer_list<T> from) {
    return from.begin()[Below(from.size())];
  }
  void Fill(uint8_t* data, size_t bytes) {
    for (; bytes >= 8; bytes -= 8, data += 8) {
      const uint64_t v = Next();
      __builtin_memcpy(data, &v, 8);
    }
    const uint64_t v = Next();
    // memcpy must not be given null.
    if (bytes > 0) __builtin_memcpy(data, &v, bytes);
  }

 private:
  uint64_t state_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_RANDOM_H_
