#include "wire/icrc.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <isa-l/crc.h>
#include <zlib.h>

#include <atomic>
#include <cassert>
#include <cstring>

#include "wire/gf2.h"

namespace wire {
namespace {

// Offsets in the covered bytes, which start with 8 bytes of ones.
constexpr size_t kIp = 8;
constexpr size_t kV4Length = kIp + 2;
constexpr size_t kV4Id = kIp + 4;
constexpr size_t kV4Flags = kIp + 6;
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

// Short packets go to the CRC in one piece with what stands before them.
constexpr size_t kShort = 64;

#ifdef __x86_64__
// The processor has AVX and the system keeps its registers (Intel SDM vol. 1,
// 14.3). __builtin_cpu_supports says so too, but wants a part of the compiler's
// library that link-time optimization asks for too late.
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

// Without PCLMULQDQ ISA-L goes byte by byte; zlib takes several words at once.
bool ZlibIsFaster() {
#ifdef __x86_64__
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_PCLMUL) == 0;
#else
  return false;
#endif
}
// Read without order: either gives the same.
std::atomic<bool> by_zlib = ZlibIsFaster();

// Both functions take and return what zlib's documentation says: inverted on
// the way in and out, so that 0 starts and results can be continued.
uint32_t Crc(uint32_t crc, const uint8_t* data, size_t size) {
  if (by_zlib.load(std::memory_order_relaxed)) {
    return static_cast<uint32_t>(crc32_z(crc, data, size));
  }
  const uint32_t result = crc32_gzip_refl(crc, data, size);
#ifdef __x86_64__
  // ISA-L 2.30 leaves the upper halves of the vector registers dirty, after
  // which every SSE instruction of the caller is slow (Intel Xeon: 240 ns
  // instead of 75 for the ICRC of 4 KB).
  if (kHasAvx) asm volatile("vzeroupper");
#endif
  return result;
}

}  // namespace

bool internal::SetCrcByZlib(bool on) { return by_zlib.exchange(on); }

IcrcFlow::IcrcFlow(const IpAddress& src, const IpAddress& dst,
                   uint16_t src_port, uint16_t dst_port)
    : v4_(src.is_v4() && dst.is_v4()) {
  // Masked fields, and those that Begin fills in, stay ones.
  prefix_.fill(0xff);
  uint8_t* const p = prefix_.data();
  uint8_t* udp;
  if (v4_) {
    p[kIp] = 0x45;
    p[kIp + 9] = kProtocolUdp;
    std::memcpy(p + kIp + 12, src.bytes.data() + 12, 4);
    std::memcpy(p + kIp + 16, dst.bytes.data() + 12, 4);
    udp = p + kV4Udp;
  } else {
    p[kIp] = 0x6f;
    p[kIp + 6] = kProtocolUdp;
    std::memcpy(p + kIp + 8, src.bytes.data(), 16);
    std::memcpy(p + kIp + 24, dst.bytes.data(), 16);
    udp = p + kV6Udp;
  }
  StoreBe16(udp, src_port);
  StoreBe16(udp + 2, dst_port);
}

uint32_t IcrcFlow::Begin(std::span<const uint8_t> first, size_t bth_to_pad_size,
                         uint16_t ip_id, bool df) const {
  assert(first.size() >= kBthSize && bth_to_pad_size >= first.size());
  const size_t udp_size = kUdpHeaderSize + bth_to_pad_size + kIcrcSize;
  const size_t prefix_size = v4_ ? kV4PrefixSize : kV6PrefixSize;

  uint8_t head[kV6PrefixSize + kShort];
  std::memcpy(head, prefix_.data(), kV6PrefixSize);
  if (v4_) {
    StoreBe16(head + kV4Length, static_cast<uint16_t>(kV4Udp - kIp + udp_size));
    StoreBe16(head + kV4Id, ip_id);
    StoreBe16(head + kV4Flags, df ? kDontFragment : 0);
    StoreBe16(head + kV4Udp + kUdpLength, static_cast<uint16_t>(udp_size));
  } else {
    StoreBe16(head + kV6Length, static_cast<uint16_t>(udp_size));
    StoreBe16(head + kV6Udp + kUdpLength, static_cast<uint16_t>(udp_size));
  }
  const size_t copied = first.size() <= kShort ? first.size() : kBthSize;
  std::memcpy(head + prefix_size, first.data(), copied);
  head[prefix_size + kBthMasked] = 0xff;

  const uint32_t crc = Crc(0, head, prefix_size + copied);
  return Extend(crc, first.subspan(copied));
}

uint32_t IcrcFlow::Extend(uint32_t icrc, std::span<const uint8_t> next) {
  return next.empty() ? icrc : Crc(icrc, next.data(), next.size());
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

std::optional<uint16_t> SolveIpId(uint32_t received, uint32_t computed,
                                  uint16_t assumed_id, size_t covered_size) {
  // The two bytes of the ID's change, as a polynomial of degree below 16, were
  // multiplied by x^(8 * bytes after the ID) and by the CRC's own x^32: undo
  // it.
  const size_t bytes_after = kV4PrefixSize - (kV4Id + 2) + covered_size;
  if (bytes_after + 4 > 0xffff) return std::nullopt;
  const uint32_t change =
      gf2::Multiply(received ^ computed, gf2::InverseOfBytes(bytes_after + 4));
  // Bit 31 is the coefficient of x^0: the low half are the degrees 16 to 31.
  if ((change & 0xffff) != 0) return std::nullopt;
  // Each byte entered the CRC with its lowest bit first, hence in the highest
  // degree; the first byte has the higher eight degrees.
  const uint16_t id_change =
      static_cast<uint16_t>((change >> 16 & 0xff) << 8 | change >> 24);
  return assumed_id ^ id_change;
}

std::optional<uint16_t> VerifyAnyId(const IcrcFlow& flow,
                                    std::span<const uint8_t> udp_payload,
                                    uint16_t segment_index,
                                    std::optional<uint16_t> last_id,
                                    uint32_t forward_window) {
  if (udp_payload.size() < kBthSize + kIcrcSize) return std::nullopt;
  const size_t covered = udp_payload.size() - kIcrcSize;
  const uint32_t received = LoadLe32(udp_payload.data() + covered);
  const uint32_t computed =
      flow.Compute(udp_payload.first(covered), segment_index);
  if (!flow.is_v4()) {
    if (received != computed) return std::nullopt;
    return 0;
  }
  if (received == computed) return segment_index;
  const std::optional<uint16_t> id =
      SolveIpId(received, computed, segment_index, covered);
  if (!id || *id == 0 || !last_id) return id;
  // Unsigned 16-bit distance from the start of the window.
  const uint16_t distance =
      static_cast<uint16_t>(*id - *last_id + kIpIdBackward);
  if (distance > kIpIdBackward + forward_window) return std::nullopt;
  return id;
}

}  // namespace wire
