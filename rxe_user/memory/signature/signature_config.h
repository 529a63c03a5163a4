// What a memory key does with block signatures
// (mlx5dv_wr_set_mkey_sig_block(3)).
#ifndef RXE_USER_MEMORY_SIGNATURE_SIGNATURE_CONFIG_H_
#define RXE_USER_MEMORY_SIGNATURE_SIGNATURE_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace rxe_user {

// What the guard of a block is. The two of T10-DIF are the first two of eight
// bytes, before an application tag (2) and a reference tag (4), all big-endian.
// A CRC is the whole signature, little-endian.
enum class GuardKind : uint8_t {
  kNone,         // the domain has no signatures
  kT10Crc,       // CRC-16, T10 SBC-3
  kT10Checksum,  // IP checksum (RFC 1071)
  kCrc32,        // FC-PH, IEEE 802.3
  kCrc32c,       // RFC 3720
  kCrc64,        // CRC64_XP10
};
constexpr bool IsT10(GuardKind kind) {
  return kind == GuardKind::kT10Crc || kind == GuardKind::kT10Checksum;
}

// Blocks that are not checked (T10 SBC-3).
enum class GuardEscape : uint8_t {
  kNone,
  kAppTag,        // whose application tag is 0xffff
  kAppAndRefTag,  // and whose reference tag is 0xffffffff
};

// One form of the data: blocks, each followed by its signature.
struct SignatureDomain {
  GuardKind guard = GuardKind::kNone;
  bool ones_seed = false;  // the guard starts with ones, else with zeros
  bool counts_up = false;  // the reference tag grows by 1 with each block
  GuardEscape escape = GuardEscape::kNone;
  uint16_t block_size = 0;  // bytes of data
  uint16_t app_tag = 0;
  uint32_t ref_tag = 0;  // of block 0

  bool operator==(const SignatureDomain&) const = default;
};

// Bits of the masks are bytes of the signature, as in the manual page: of
// T10-DIF and CRC-64, bit n is byte n from the least significant one; of the
// 32-bit CRCs, bit n + 4.
struct SignatureConfig {
  SignatureDomain memory = {};
  SignatureDomain wire = {};
  uint8_t check_mask = 0;  // bytes compared in the form that is read
  // Bytes that go from one form into the other. 0 unless both have the same
  // structure (HaveSameStructure).
  uint8_t copy_mask = 0;
  uint16_t reserved = 0;

  bool operator==(const SignatureConfig&) const = default;
};

// Whether the bytes of both signatures have the same meaning and place.
constexpr bool HaveSameStructure(const SignatureDomain& a,
                                 const SignatureDomain& b) {
  return a.guard != GuardKind::kNone && b.guard != GuardKind::kNone &&
         a.block_size == b.block_size &&
         (a.guard == b.guard || (IsT10(a.guard) && IsT10(b.guard)));
}

// The copy mask of a program that names none: what both forms have alike.
uint8_t UsualCopyMask(const SignatureDomain& memory,
                      const SignatureDomain& wire);

// Whether all values are ones that the manual page permits.
bool IsValid(const SignatureConfig& config);

// As bytes, for a work request.
inline constexpr size_t kPackedSignatureConfig = 32;
static_assert(sizeof(SignatureConfig) <= kPackedSignatureConfig);
void Pack(const SignatureConfig& config,
          std::span<uint8_t, kPackedSignatureConfig> out);
// False: not what Pack makes.
bool Unpack(std::span<const uint8_t> bytes, SignatureConfig* out);

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_SIGNATURE_SIGNATURE_CONFIG_H_
