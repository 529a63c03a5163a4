#include "wire/icrc.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#include <isa-l/crc.h>

#include <array>
#include <atomic>
#include <cassert>
#include <cstring>

#include "wire/gf2.h"
#include "wire/sparse_crc.h"

namespace wire {
namespace {

// Offsets in the covered bytes, which start with 8 bytes of ones.
constexpr size_t kIp = 8;
constexpr size_t kV4Length = kIp + 2;
constexpr size_t kV4Id = kIp + 4;
constexpr size_t kV4Flags = kIp + 6;
constexpr size_t kV4Source = kIp + 12;
constexpr size_t kV4Udp = kIp + 20;
constexpr size_t kV6Length = kIp + 4;
constexpr size_t kV6Udp = kIp + 40;
constexpr size_t kUdpLength = 4;
constexpr size_t kUdpHeaderSize = 8;
constexpr size_t kV4PrefixSize = kV4Udp + kUdpHeaderSize;
constexpr size_t kV6PrefixSize = kV6Udp + kUdpHeaderSize;
constexpr size_t kBthMasked = 4;

constexpr uint8_t kProtocolUdp = 17;
constexpr uint16_t kDontFragment = 0x4000;

// Contribution of one byte to the CRC, by its value.
using Added = std::array<uint32_t, 256>;

// As `added`, but for bytes that one more byte follows.
constexpr Added OneMoreBehind(Added added) {
  for (uint32_t& a : added) {
    for (int bit = 0; bit < 8; ++bit) a = gf2::TimesX(a);
  }
  return added;
}

constexpr Added AddedWithBehind(size_t bytes_behind) {
  Added added{};
  for (size_t i = 0; i < added.size(); ++i) added[i] = static_cast<uint32_t>(i);
  for (size_t i = 0; i <= bytes_behind; ++i) added = OneMoreBehind(added);
  return added;
}

// Up to this size (bytes), tables are faster than the library.
constexpr size_t kShort = 8;

// kAdded[n]: contribution of a byte that n bytes follow.
constexpr auto kAdded = [] {
  std::array<Added, kBthSize> added{AddedWithBehind(0)};
  for (size_t n = 1; n < added.size(); ++n)
    added[n] = OneMoreBehind(added[n - 1]);
  return added;
}();

// Contribution of a two-byte field that starts kBeforeBth bytes before BTH, to
// the CRC at the end of BTH.
template <size_t kBeforeBth>
uint32_t AddBe16(uint16_t value) {
  static constexpr Added kHigh = AddedWithBehind(kBeforeBth + kBthSize - 1);
  static constexpr Added kLow = AddedWithBehind(kBeforeBth + kBthSize - 2);
  return kHigh[value >> 8] ^ kLow[value & 0xff];
}

#ifdef __x86_64__
// The processor has AVX and the system saves its registers (Intel SDM vol. 1,
// 14.3). __builtin_cpu_supports needs a part of the compiler's runtime that
// link-time optimization does not find.
bool HasAvx() {
  unsigned a, b, c, d;
  constexpr unsigned kWanted = bit_AVX | bit_OSXSAVE;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kWanted) != kWanted) {
    return false;
  }
  unsigned low, high;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kSseAndAvx = 6;
  return (low & kSseAndAvx) == kSseAndAvx;
}
const bool kHasAvx = HasAvx();
#endif

// ISA-L works byte by byte without PCLMULQDQ (x86), or PMULL and the CRC
// instructions (ARM).
bool SparseIsFaster() {
#if defined(__x86_64__)
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_PCLMUL) == 0;
#elif defined(__aarch64__)
  return (getauxval(AT_HWCAP) & (HWCAP_PMULL | HWCAP_CRC32)) == 0;
#else
  return false;
#endif
}
// Relaxed: both implementations give the same result.
std::atomic<bool> sparse = SparseIsFaster();

// Like zlib: input and output are inverted, so that 0 starts and results can be
// continued.
uint32_t Crc(uint32_t crc, const uint8_t* data, size_t size) {
  if (sparse.load(std::memory_order_relaxed)) {
    return SparseCrc(crc, data, size);
  }
  const uint32_t result = crc32_gzip_refl(crc, data, size);
#ifdef __x86_64__
  // ISA-L 2.30 leaves the upper halves of the vector registers dirty, which
  // slows every SSE instruction of the caller (Intel Xeon: 240 ns instead of 75
  // for the ICRC of 4 KB).
  if (kHasAvx) asm volatile("vzeroupper");
#endif
  return result;
}

}  // namespace

bool internal::SetCrcSparse(bool on) { return sparse.exchange(on); }

IcrcFlow::IcrcFlow(const IpAddress& src, const IpAddress& dst,
                   uint16_t src_port, uint16_t dst_port)
    : v4_(src.is_v4() && dst.is_v4()) {
  std::array<uint8_t, kV6PrefixSize + kBthSize> head{};
  uint8_t* const p = head.data();
  std::memset(p, 0xff, kIp);
  uint8_t* udp;
  if (v4_) {
    p[kIp] = 0x45;
    p[kIp + 1] = 0xff;  // TOS
    StoreBe16(p + kV4Flags, kDontFragment);
    p[kIp + 8] = 0xff;  // TTL
    p[kIp + 9] = kProtocolUdp;
    std::memset(p + kIp + 10, 0xff, 2);  // checksum
    std::memcpy(p + kV4Source, src.bytes.data() + 12, 4);
    std::memcpy(p + kIp + 16, dst.bytes.data() + 12, 4);
    udp = p + kV4Udp;
  } else {
    p[kIp] = 0x6f;
    std::memset(p + kIp + 1, 0xff, 3);  // traffic class, flow label
    p[kIp + 6] = kProtocolUdp;
    p[kIp + 7] = 0xff;  // hop limit
    std::memcpy(p + kIp + 8, src.bytes.data(), 16);
    std::memcpy(p + kIp + 24, dst.bytes.data(), 16);
    udp = p + kV6Udp;
  }
  StoreBe16(udp, src_port);
  StoreBe16(udp + 2, dst_port);
  std::memset(udp + 6, 0xff, 2);  // checksum
  udp[kUdpHeaderSize + kBthMasked] = 0xff;
  base_ = Crc(0, p, (v4_ ? kV4PrefixSize : kV6PrefixSize) + kBthSize);
}

uint32_t IcrcFlow::Begin(const uint8_t* bth, size_t bth_to_pad_size,
                         uint16_t ip_id, bool df) const {
  assert(bth_to_pad_size >= kBthSize);
  const auto udp_size =
      static_cast<uint16_t>(kUdpHeaderSize + bth_to_pad_size + kIcrcSize);
  // CRCs are linear: a byte's contribution depends on its value and position
  // only.
  uint32_t icrc = base_ ^ AddBe16<kUdpHeaderSize - kUdpLength>(udp_size);
  if (v4_) {
    const auto ip_size = static_cast<uint16_t>(kV4Udp - kIp + udp_size);
    icrc ^= AddBe16<kV4PrefixSize - kV4Length>(ip_size) ^
            AddBe16<kV4PrefixSize - kV4Id>(ip_id);
    if (!df) icrc ^= AddBe16<kV4PrefixSize - kV4Flags>(kDontFragment);
  } else {
    icrc ^= AddBe16<kV6PrefixSize - kV6Length>(udp_size);
  }
  for (size_t i = 0; i < kBthSize; ++i) {
    if (i != kBthMasked) icrc ^= kAdded[kBthSize - 1 - i][bth[i]];
  }
  return icrc;
}

uint32_t IcrcFlow::Change(uint32_t psn_bits, uint16_t ip_id_bits) const {
  uint32_t change = 0;
  for (size_t i = 0; i < kBthSize - kBthPsnOffset; ++i, psn_bits >>= 8) {
    change ^= kAdded[i][psn_bits & 0xff];
  }
  return v4_ ? change ^ AddBe16<kV4PrefixSize - kV4Id>(ip_id_bits) : change;
}

uint32_t IcrcFlow::Extend(uint32_t icrc, std::span<const uint8_t> next) {
  const uint8_t* p = next.data();
  size_t size = next.size();
  if (size > kShort) return Crc(icrc, p, size);
  uint32_t crc = ~icrc;
  for (; size >= 4; size -= 4, p += 4) {
    crc ^= LoadLe32(p);
    crc = kAdded[3][crc & 0xff] ^ kAdded[2][crc >> 8 & 0xff] ^
          kAdded[1][crc >> 16 & 0xff] ^ kAdded[0][crc >> 24];
  }
  for (; size > 0; --size) crc = crc >> 8 ^ kAdded[0][(crc ^ *p++) & 0xff];
  return ~crc;
}

void IcrcFlow::Store(std::span<uint8_t> udp_payload, uint16_t ip_id,
                     bool df) const {
  const size_t covered = udp_payload.size() - kIcrcSize;
  StoreIcrc(udp_payload.data() + covered,
            Compute(udp_payload.first(covered), ip_id, df));
}

bool IcrcFlow::Verify(std::span<const uint8_t> udp_payload, uint16_t ip_id,
                      bool df) const {
  if (udp_payload.size() < kBthSize + kIcrcSize) return false;
  const size_t covered = udp_payload.size() - kIcrcSize;
  return LoadLe32(udp_payload.data() + covered) ==
         Compute(udp_payload.first(covered), ip_id, df);
}

namespace {

// The change of a field of up to four bytes, from the change of the CRC and the
// number of bytes after the field (at most 0xffff - 4). A two-byte field is the
// upper half.
uint32_t SolveField(uint32_t crc_change, size_t bytes_after) {
  // The changed bytes, as a polynomial of degree below 32, were multiplied by
  // x^(8 * bytes after) and by the CRC's own x^32; this divides by both. Bit 31
  // is the coefficient of x^0. Each byte enters lowest bit first, hence in the
  // highest degree; the first byte has the highest eight degrees.
  return gf2::Multiply(crc_change, gf2::InverseOfBytes(bytes_after + 4));
}

std::optional<uint16_t> SolveField16(uint32_t received, uint32_t computed,
                                     uint16_t assumed, size_t bytes_after) {
  if (bytes_after + 4 > 0xffff) return std::nullopt;
  const uint32_t change = SolveField(received ^ computed, bytes_after);
  if ((change & 0xffff) != 0) return std::nullopt;  // degrees 16 to 31
  return static_cast<uint16_t>(assumed ^
                               ((change >> 16 & 0xff) << 8 | change >> 24));
}

}  // namespace

std::optional<uint16_t> SolveIpId(uint32_t received, uint32_t computed,
                                  uint16_t assumed_id, size_t covered_size) {
  return SolveField16(received, computed, assumed_id,
                      kV4PrefixSize - (kV4Id + 2) + covered_size);
}

std::optional<uint16_t> SolveSourcePort(uint32_t received, uint32_t computed,
                                        uint16_t assumed_port,
                                        size_t covered_size) {
  return SolveField16(received, computed, assumed_port,
                      kUdpHeaderSize - 2 + covered_size);
}

IpAddress SolveSourceV4(uint32_t received, uint32_t computed,
                        const IpAddress& assumed, size_t covered_size) {
  assert(covered_size <= 0x8000);
  const uint32_t change = SolveField(
      received ^ computed, kV4PrefixSize - (kV4Source + 4) + covered_size);
  IpAddress source = assumed;
  for (size_t i = 0; i < 4; ++i) {
    source.bytes[12 + i] ^= static_cast<uint8_t>(change >> 8 * i);
  }
  return source;
}

std::optional<uint16_t> internal::SolveAnyId(uint32_t received,
                                             uint32_t computed,
                                             uint16_t segment_index,
                                             size_t covered_size,
                                             std::optional<uint16_t> last_id,
                                             uint32_t forward_window) {
  const std::optional<uint16_t> id =
      SolveIpId(received, computed, segment_index, covered_size);
  if (!id || *id == 0 || !last_id) return id;
  if (!IsIpIdNear(*id, *last_id, forward_window)) return std::nullopt;
  return id;
}

}  // namespace wire
