#include "wire/gf2.h"

#include <gtest/gtest.h>

#include <random>

namespace wire::gf2 {
namespace {

// Reference: shift and add.
uint32_t ReferenceMultiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int degree = 0; degree < 32; ++degree) {
    if ((a & (kOne >> degree)) != 0) product ^= b;
    b = TimesX(b);
  }
  return product;
}

TEST(Gf2Test, OverXUndoesTimesX) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    const uint32_t a = static_cast<uint32_t>(random());
    EXPECT_EQ(OverX(TimesX(a)), a);
    EXPECT_EQ(TimesX(OverX(a)), a);
  }
  EXPECT_EQ(TimesX(1), kPolynomial) << "x^31 * x";
}

TEST(Gf2Test, PowersOfX) {
  EXPECT_EQ(PowerOfX(0), kOne);
  EXPECT_EQ(PowerOfX(31), 1u);
  EXPECT_EQ(PowerOfX(32), kPolynomial);
  EXPECT_EQ(Multiply(PowerOfX(8 * 100), InverseOfBytes(100)), kOne);
}

// quotient * polynomial is x^64 and a remainder of degree below 32.
TEST(Gf2Test, QuotientOfX64) {
  // By degree: bit n is the coefficient of x^n.
  const auto by_degree = [](uint64_t reflected) {
    uint64_t result = 0;
    for (int n = 0; n <= 32; ++n) result |= (reflected >> (32 - n) & 1) << n;
    return result;
  };
  const uint64_t quotient = by_degree(QuotientOfX64());
  const uint64_t polynomial = by_degree(uint64_t{kPolynomial} << 1 | 1);
  uint64_t high = 0, low = 0;  // of the product
  for (int n = 0; n <= 32; ++n) {
    if ((quotient >> n & 1) == 0) continue;
    low ^= polynomial << n;
    if (n > 0) high ^= polynomial >> (64 - n);
  }
  EXPECT_EQ(high, 1u);
  EXPECT_EQ(low >> 32, 0u);
}

TEST(Gf2Test, MultipliesLikeTheSchoolbook) {
  std::mt19937 random(2);
  for (int i = 0; i < 10000; ++i) {
    const uint32_t a = static_cast<uint32_t>(random());
    const uint32_t b = static_cast<uint32_t>(random());
    ASSERT_EQ(Multiply(a, b), ReferenceMultiply(a, b));
  }
  EXPECT_EQ(Multiply(kOne, 0x12345678), 0x12345678u);
  EXPECT_EQ(Multiply(0, 0x12345678), 0u);
}

TEST(Gf2Test, InverseOfBytesUndoesEveryNumberOfZeroBytes) {
  uint32_t power = kOne;  // x^(8 n)
  for (size_t n = 0; n < 65536; ++n) {
    ASSERT_EQ(Multiply(power, InverseOfBytes(n)), kOne) << n;
    for (int i = 0; i < 8; ++i) power = TimesX(power);
  }
}

}  // namespace
}  // namespace wire::gf2
