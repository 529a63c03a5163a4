#include "rxe_user/memory/signature/guard.h"

#include <isa-l/crc.h>

#include <array>
#include <bit>
#include <cstring>

namespace rxe_user {
namespace {

static_assert(std::endian::native == std::endian::little);

// ISA-L 2.30 leaves the upper halves of the vector registers dirty, which slows
// every later SSE instruction (as in wire/icrc.cc).
template <typename Crc>
Crc Clean(Crc crc) {
#ifdef __x86_64__
  static const bool has_avx = __builtin_cpu_supports("avx") != 0;
  if (has_avx) asm volatile("vzeroupper");
#endif
  return crc;
}

// CRC-64 of NVMe (NVM Command Set, 64b guard), bits reflected. ISA-L provides
// it from 2.31 on.
constexpr uint64_t kCrc64Polynomial = 0x9a6c9329ac4bc9b5;

// tables[n][b]: the CRC of byte b followed by n zero bytes.
using Crc64Tables = std::array<std::array<uint64_t, 256>, 8>;
constexpr Crc64Tables MakeCrc64Tables() {
  Crc64Tables tables{};
  for (uint64_t b = 0; b < 256; ++b) {
    uint64_t crc = b;
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1 ^ ((crc & 1) != 0 ? kCrc64Polynomial : 0);
    }
    tables[0][b] = crc;
  }
  for (size_t n = 1; n < tables.size(); ++n) {
    for (size_t b = 0; b < 256; ++b) {
      const uint64_t before = tables[n - 1][b];
      tables[n][b] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
  return tables;
}
constexpr Crc64Tables kCrc64 = MakeCrc64Tables();

uint64_t ExtendCrc64(uint64_t crc, std::span<const uint8_t> data) {
  while (data.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, data.data(), sizeof(word));
    word ^= crc;
    crc = 0;
    for (size_t byte = 0; byte < 8; ++byte) {
      crc ^= kCrc64[7 - byte][word >> (8 * byte) & 0xff];
    }
    data = data.subspan(8);
  }
  for (const uint8_t byte : data) {
    crc = crc >> 8 ^ kCrc64[0][(crc ^ byte) & 0xff];
  }
  return crc;
}

// Adds 16-bit words in network order. `sum` is below 2^32.
uint64_t ExtendChecksum(uint64_t sum, std::span<const uint8_t> data,
                        size_t position) {
  if (position % 2 != 0 && !data.empty()) {
    sum += data[0];
    data = data.subspan(1);
  }
  // Added as words of this machine; the sum's bytes are swapped at the end (RFC
  // 1071).
  uint64_t swapped = 0;
  while (data.size() >= 4) {
    uint32_t word;
    std::memcpy(&word, data.data(), sizeof(word));
    swapped += word;
    data = data.subspan(4);
  }
  while (swapped >> 16 != 0) swapped = (swapped & 0xffff) + (swapped >> 16);
  sum += __builtin_bswap16(static_cast<uint16_t>(swapped));
  for (size_t i = 0; i < data.size(); ++i) {
    sum += uint64_t{data[i]} << (i % 2 == 0 ? 8 : 0);
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

}  // namespace

size_t SignatureSize(GuardKind kind) {
  switch (kind) {
    case GuardKind::kNone:
      return 0;
    case GuardKind::kCrc32:
    case GuardKind::kCrc32c:
      return 4;
    case GuardKind::kT10Crc:
    case GuardKind::kT10Checksum:
    case GuardKind::kCrc64:
      return 8;
  }
  return 0;
}

uint64_t BeginGuard(const SignatureDomain& domain) {
  if (!domain.ones_seed) return 0;
  switch (domain.guard) {
    case GuardKind::kCrc64:
      return ~uint64_t{0};
    case GuardKind::kCrc32:
    case GuardKind::kCrc32c:
      return 0xffffffff;
    default:
      return 0xffff;
  }
}

uint64_t ExtendGuard(GuardKind kind, uint64_t state,
                     std::span<const uint8_t> data, size_t position) {
  switch (kind) {
    case GuardKind::kNone:
      break;
    case GuardKind::kT10Crc:
      return Clean(
          crc16_t10dif(static_cast<uint16_t>(state), data.data(), data.size()));
    case GuardKind::kT10Checksum:
      return ExtendChecksum(state, data, position);
    case GuardKind::kCrc32:
      // This function inverts its argument and its result.
      return ~Clean(crc32_gzip_refl(~static_cast<uint32_t>(state), data.data(),
                                    data.size()));
    case GuardKind::kCrc32c:
      return Clean(crc32_iscsi(const_cast<uint8_t*>(data.data()),
                               static_cast<int>(data.size()),
                               static_cast<uint32_t>(state)));
    case GuardKind::kCrc64:
      return ExtendCrc64(state, data);
  }
  return state;
}

uint64_t FinishGuard(GuardKind kind, uint64_t state) {
  switch (kind) {
    case GuardKind::kT10Checksum:
      return ~state & 0xffff;
    case GuardKind::kCrc32:
    case GuardKind::kCrc32c:
      return ~state & 0xffffffff;
    case GuardKind::kCrc64:
      return ~state;
    case GuardKind::kNone:
    case GuardKind::kT10Crc:
      break;
  }
  return state;
}

}  // namespace rxe_user
