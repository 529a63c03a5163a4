#include "rxe_user/memory/signature/signature_config.h"

#include <algorithm>
#include <array>

namespace rxe_user {
namespace {

constexpr std::array<uint16_t, 5> kBlockSizes = {512, 520, 4048, 4096, 4160};

constexpr uint8_t kT10GuardMask = 0xc0;
constexpr uint8_t kT10AppMask = 0x30;
constexpr uint8_t kT10RefMask = 0x0f;

bool IsValid(const SignatureDomain& domain) {
  if (domain.guard == GuardKind::kNone) return true;
  return domain.guard <= GuardKind::kCrc64 &&
         domain.escape <= GuardEscape::kAppAndRefTag &&
         std::ranges::find(kBlockSizes, domain.block_size) != kBlockSizes.end();
}

}  // namespace

uint8_t UsualCopyMask(const SignatureDomain& memory,
                      const SignatureDomain& wire) {
  if (!HaveSameStructure(memory, wire)) return 0;
  if (!IsT10(memory.guard)) return 0xff;
  uint8_t mask = 0;
  if (memory.guard == wire.guard && memory.ones_seed == wire.ones_seed) {
    mask |= kT10GuardMask;
  }
  if (memory.app_tag == wire.app_tag) mask |= kT10AppMask;
  if (memory.ref_tag == wire.ref_tag && memory.counts_up == wire.counts_up) {
    mask |= kT10RefMask;
  }
  return mask;
}

bool IsValid(const SignatureConfig& config) {
  const bool none = config.memory.guard == GuardKind::kNone &&
                    config.wire.guard == GuardKind::kNone;
  return !none && IsValid(config.memory) && IsValid(config.wire) &&
         (config.copy_mask == 0 ||
          HaveSameStructure(config.memory, config.wire));
}

void Pack(const SignatureConfig& config,
          std::span<uint8_t, kPackedSignatureConfig> out) {
  std::ranges::fill(out, uint8_t{0});
  std::memcpy(out.data(), &config, sizeof(config));
}

bool Unpack(std::span<const uint8_t> bytes, SignatureConfig* out) {
  if (bytes.size() != kPackedSignatureConfig) return false;
  // A byte that is neither 0 nor 1 is not a valid bool, so flags are checked as
  // numbers.
  for (const size_t flag : {offsetof(SignatureConfig, memory.ones_seed),
                            offsetof(SignatureConfig, memory.counts_up),
                            offsetof(SignatureConfig, wire.ones_seed),
                            offsetof(SignatureConfig, wire.counts_up)}) {
    if (bytes[flag] > 1) return false;
  }
  std::memcpy(out, bytes.data(), sizeof(*out));
  return IsValid(*out);
}

}  // namespace rxe_user
