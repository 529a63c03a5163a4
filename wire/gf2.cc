#include "wire/gf2.h"

#include <array>
#include <cassert>

namespace wire::gf2 {
namespace {

// kTimesX4[n]: contribution of the four overflowing coefficients to a * x^4. n
// is the low four bits of a.
constexpr std::array<uint32_t, 16> kTimesX4 = [] {
  std::array<uint32_t, 16> table{};
  for (uint32_t n = 0; n < 16; ++n) {
    table[n] = TimesX(TimesX(TimesX(TimesX(n))));
  }
  return table;
}();

constexpr uint32_t OverX8(uint32_t a) {
  for (int i = 0; i < 8; ++i) a = OverX(a);
  return a;
}

// x^(-8 * i) and x^(-8 * 256 * i).
struct InversePowers {
  std::array<uint32_t, 256> low{};
  std::array<uint32_t, 256> high{};
};

constexpr uint32_t SlowMultiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    if ((a & kOne) != 0) product ^= b;
    b = TimesX(b);
  }
  return product;
}

constexpr InversePowers kInverse = [] {
  InversePowers powers;
  uint32_t power = kOne;
  for (uint32_t& low : powers.low) {
    low = power;
    power = OverX8(power);
  }
  const uint32_t x_to_minus_2048 = power;
  power = kOne;
  for (uint32_t& high : powers.high) {
    high = power;
    power = SlowMultiply(power, x_to_minus_2048);
  }
  return powers;
}();

}  // namespace

uint32_t Multiply(uint32_t a, uint32_t b) {
  // Multiples of b by all polynomials of degree below 4; bit 3 is x^0.
  uint32_t multiples[16];
  multiples[0] = 0;
  multiples[8] = b;
  multiples[4] = TimesX(b);
  multiples[2] = TimesX(multiples[4]);
  multiples[1] = TimesX(multiples[2]);
  for (const uint32_t n : {3u, 5u, 6u, 7u, 9u, 10u, 11u, 12u, 13u, 14u, 15u}) {
    multiples[n] = multiples[n & (n - 1)] ^ multiples[n & -n];
  }
  // Horner's rule, from the highest four degrees (the lowest bits).
  uint32_t product = 0;
  for (int shift = 0; shift < 32; shift += 4) {
    product = product >> 4 ^ kTimesX4[product & 15];
    product ^= multiples[a >> shift & 15];
  }
  return product;
}

uint32_t InverseOfBytes(size_t n) {
  assert(n < 65536);
  const uint32_t low = kInverse.low[n & 0xff];
  return n < 256 ? low : Multiply(low, kInverse.high[n >> 8 & 0xff]);
}

}  // namespace wire::gf2
