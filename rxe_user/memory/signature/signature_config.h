// How a memory key uses block signatures (mlx5dv_wr_set_mkey_sig_block(3)).
#ifndef RXE_USER_MEMORY_SIGNATURE_SIGNATURE_CONFIG_H_
#define RXE_USER_MEMORY_SIGNATURE_SIGNATURE_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace rxe_user {

// The kind of a block's guard. A T10-DIF guard is the first two of eight bytes;
// an application tag (2) and a reference tag (4) follow, all big-endian. A CRC
// is the whole signature, little-endian.
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

// Blocks that are exempt from checking (T10 SBC-3).
enum class GuardEscape : uint8_t {
  kNone,
  kAppTag,        // those with application tag 0xffff
  kAppAndRefTag,  // those with, in addition, reference tag 0xffffffff
};

// One form of the data: blocks, each followed by its signature.
struct SignatureDomain {
  GuardKind guard = GuardKind::kNone;
  bool ones_seed = false;  // the guard's seed is all ones, else all zeros
  bool counts_up = false;  // the reference tag grows by 1 with each block
  GuardEscape escape = GuardEscape::kNone;
  uint16_t block_size = 0;  // bytes of data
  uint16_t app_tag = 0;
  uint32_t ref_tag = 0;  // that of block 0

  bool operator==(const SignatureDomain&) const = default;
};

// Bits of the masks stand for bytes of the signature, as in the manual page.
// For T10-DIF and CRC-64, bit n is byte n from the least significant one; for
// the 32-bit CRCs, bit n + 4 is.
struct SignatureConfig {
  SignatureDomain memory = {};
  SignatureDomain wire = {};
  uint8_t check_mask = 0;  // bytes compared in the form that is read
  // Bytes copied from one form to the other. 0 unless both have the same
  // structure (HaveSameStructure).
  uint8_t copy_mask = 0;
  uint16_t reserved = 0;

  bool operator==(const SignatureConfig&) const = default;
};

// Whether the bytes of both signatures have the same meaning and position.
constexpr bool HaveSameStructure(const SignatureDomain& a,
                                 const SignatureDomain& b) {
  return a.guard != GuardKind::kNone && b.guard != GuardKind::kNone &&
         a.block_size == b.block_size &&
         (a.guard == b.guard || (IsT10(a.guard) && IsT10(b.guard)));
}

// The copy mask for a program that sets none: the bytes that are equal in both
// forms.
uint8_t UsualCopyMask(const SignatureDomain& memory,
                      const SignatureDomain& wire);

// Whether the manual page permits all values.
bool IsValid(const SignatureConfig& config);

// The packed form, for a work request.
inline constexpr size_t kPackedSignatureConfig = 32;
static_assert(sizeof(SignatureConfig) <= kPackedSignatureConfig);
void Pack(const SignatureConfig& config,
          std::span<uint8_t, kPackedSignatureConfig> out);
// False: not a result of Pack.
bool Unpack(std::span<const uint8_t> bytes, SignatureConfig* out);

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_SIGNATURE_SIGNATURE_CONFIG_H_
