// Guards against published values, and against CRCs computed bit by bit.
#include "rxe_user/memory/signature/guard.h"

#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

namespace rxe_user {
namespace {

using enum GuardKind;

uint64_t GuardOf(GuardKind kind, bool ones, std::span<const uint8_t> data) {
  const SignatureDomain domain = {.guard = kind, .ones_seed = ones};
  return FinishGuard(kind, ExtendGuard(kind, BeginGuard(domain), data, 0));
}
std::vector<uint8_t> Bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

// The check values of the catalogue of parametrised CRC algorithms.
TEST(GuardTest, CheckValues) {
  const std::vector<uint8_t> check = Bytes("123456789");
  EXPECT_EQ(GuardOf(kT10Crc, false, check), 0xd0dbu);     // CRC-16/T10-DIF
  EXPECT_EQ(GuardOf(kCrc32, true, check), 0xcbf43926u);   // CRC-32/ISO-HDLC
  EXPECT_EQ(GuardOf(kCrc32c, true, check), 0xe3069283u);  // CRC-32/ISCSI
  EXPECT_EQ(GuardOf(kCrc64, true, check),
            0xae8b14860a799888u);  // CRC-64/NVME
}

// RFC 3720, B.4.
TEST(GuardTest, IscsiExamples) {
  std::vector<uint8_t> bytes(32, 0);
  EXPECT_EQ(GuardOf(kCrc32c, true, bytes), 0x8a9136aau);
  bytes.assign(32, 0xff);
  EXPECT_EQ(GuardOf(kCrc32c, true, bytes), 0x62a8ab43u);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(i);
  }
  EXPECT_EQ(GuardOf(kCrc32c, true, bytes), 0x46dd794eu);
}

// The check in a program that was written for hardware.
TEST(GuardTest, ABlockOfTheLetterA) {
  EXPECT_EQ(GuardOf(kCrc32c, true, std::vector<uint8_t>(4096, 'a')),
            0x26c74ca2u);
}

// NVM Command Set Specification, 64b CRC test cases.
TEST(GuardTest, NvmeExamples) {
  EXPECT_EQ(GuardOf(kCrc64, true, std::vector<uint8_t>(4096, 0)),
            0x6482d367eb22b64eu);
  EXPECT_EQ(GuardOf(kCrc64, true, std::vector<uint8_t>(4096, 0xff)),
            0xc0ddba7302eca3acu);
}

// RFC 1071, 3: the sum of these words is 0xddf2.
TEST(GuardTest, Checksum) {
  const std::vector<uint8_t> bytes = {0x00, 0x01, 0xf2, 0x03,
                                      0xf4, 0xf5, 0xf6, 0xf7};
  EXPECT_EQ(GuardOf(kT10Checksum, false, bytes), 0xffffu & ~0xddf2u);
  EXPECT_EQ(GuardOf(kT10Checksum, false, std::vector<uint8_t>(512, 0)),
            0xffffu);
  EXPECT_EQ(GuardOf(kT10Checksum, true, std::vector<uint8_t>(512, 0)), 0u);
}

// CRCs by their definitions, bit by bit.
uint64_t Reflected(uint64_t state, uint64_t polynomial,
                   std::span<const uint8_t> data) {
  for (const uint8_t byte : data) {
    state ^= byte;
    for (int bit = 0; bit < 8; ++bit) {
      state = (state & 1) != 0 ? state >> 1 ^ polynomial : state >> 1;
    }
  }
  return state;
}
uint64_t Slow(GuardKind kind, bool ones, std::span<const uint8_t> data) {
  switch (kind) {
    case kT10Crc: {
      uint32_t crc = ones ? 0xffff : 0;
      for (const uint8_t byte : data) {
        crc ^= uint32_t{byte} << 8;
        for (int bit = 0; bit < 8; ++bit) {
          crc = (crc << 1 ^ ((crc & 0x8000) != 0 ? 0x8bb7 : 0)) & 0xffff;
        }
      }
      return crc;
    }
    case kT10Checksum: {
      uint32_t sum = ones ? 0xffff : 0;
      for (size_t i = 0; i < data.size(); ++i) {
        sum += uint32_t{data[i]} << (i % 2 == 0 ? 8 : 0);
        sum = (sum & 0xffff) + (sum >> 16);
      }
      return ~sum & 0xffff;
    }
    case kCrc32:
      return ~Reflected(ones ? 0xffffffff : 0, 0xedb88320, data) & 0xffffffff;
    case kCrc32c:
      return ~Reflected(ones ? 0xffffffff : 0, 0x82f63b78, data) & 0xffffffff;
    case kCrc64:
      return ~Reflected(ones ? ~uint64_t{0} : 0, 0x9a6c9329ac4bc9b5, data);
    case kNone:
      break;
  }
  return 0;
}

TEST(GuardTest, AnyLengthInAnyPieces) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 400; ++round) {
    std::vector<uint8_t> data(round < 100 ? round : random() % 4200);
    for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
    for (const GuardKind kind :
         {kT10Crc, kT10Checksum, kCrc32, kCrc32c, kCrc64}) {
      for (const bool ones : {false, true}) {
        const SignatureDomain domain = {.guard = kind, .ones_seed = ones};
        uint64_t state = BeginGuard(domain);
        for (size_t at = 0; at < data.size();) {
          const size_t bytes =
              std::min<size_t>(data.size() - at, 1 + random() % 700);
          state =
              ExtendGuard(kind, state, std::span(data).subspan(at, bytes), at);
          at += bytes;
        }
        ASSERT_EQ(FinishGuard(kind, state), Slow(kind, ones, data))
            << static_cast<int>(kind) << " " << data.size();
      }
    }
  }
}

}  // namespace
}  // namespace rxe_user
