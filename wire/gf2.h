// Arithmetic modulo the CRC-32 polynomial of IEEE 802.3 over GF(2), to fold or
// invert a CRC. Polynomials of degree below 32 are stored reflected: bit 31 is
// the coefficient of x^0, bit 0 that of x^31.

#ifndef WIRE_GF2_H_
#define WIRE_GF2_H_

#include <cstddef>
#include <cstdint>

namespace wire::gf2 {

inline constexpr uint32_t kPolynomial = 0xedb88320;  // x^32 is implied
inline constexpr uint32_t kOne = 0x80000000;

// a * x.
constexpr uint32_t TimesX(uint32_t a) {
  return a >> 1 ^ ((a & 1) != 0 ? kPolynomial : 0);
}

// a / x. Exists for every a: the polynomial has the term 1.
constexpr uint32_t OverX(uint32_t a) {
  return (a & kOne) != 0 ? (a ^ kPolynomial) << 1 | 1 : a << 1;
}

// x^n, in n steps. Use it for constants.
constexpr uint32_t PowerOfX(size_t n) {
  uint32_t power = kOne;
  while (n-- > 0) power = TimesX(power);
  return power;
}

// x^64 divided by the polynomial, without the remainder. Degree 32, hence 33
// bits; bit 32 is the coefficient of x^0.
constexpr uint64_t QuotientOfX64() {
  uint64_t quotient = uint64_t{1} << 32;  // of x^32
  uint32_t remainder = kPolynomial;
  for (int i = 0; i < 32; ++i) {
    // The overflow is another multiple of the polynomial.
    quotient = quotient >> 1 | uint64_t{remainder & 1} << 32;
    remainder = TimesX(remainder);
  }
  return quotient;
}

// a * b. About 10 ns.
uint32_t Multiply(uint32_t a, uint32_t b);

// x^(-8 * n), n below 65,536: the inverse of appending `n` zero bytes to a CRC.
uint32_t InverseOfBytes(size_t n);

}  // namespace wire::gf2

#endif  // WIRE_GF2_H_
