// Memory keys (mlx5dv_create_mkey(3), mlx5dv_wr_post(3)).
#include <algorithm>
#include <mutex>
#include <new>

#include "rxe_user/base/random.h"
#include "rxe_user/memory/check_region.h"
#include "rxe_user/memory/region_table.h"
#include "transport/base/work.h"

namespace rxe_user {
namespace {

using transport::MemoryStatus;
using transport::SpanList;

// Bytes: the data of one packet. Prefetching pays for longer pieces only.
constexpr uint64_t kMinCold = 4096;

// The rights that an access needs in the underlying regions: a memory key
// grants the remote rights itself, as a window does.
uint32_t LocalRight(uint32_t access) {
  constexpr uint32_t kWrites = transport::kAccessLocalWrite |
                               transport::kAccessRemoteWrite |
                               transport::kAccessRemoteAtomic;
  return (access & kWrites) != 0 ? transport::kAccessLocalWrite
                                 : transport::kAccessLocalRead;
}

// Bytes of the layout after `configuration`, which may be refused because of
// it.
uint64_t LengthAfter(const MkeyLayout& before,
                     const transport::MkeyConfiguration& configuration) {
  using Layout = transport::MkeyConfiguration::Layout;
  if (configuration.layout == Layout::kKeep) return before.length();
  uint64_t round = 0;
  if (configuration.layout == Layout::kList) {
    for (const transport::Sge& sge : configuration.list) round += sge.length;
    return round;
  }
  for (const transport::InterleavedPiece& piece : configuration.interleaved) {
    round += piece.bytes;
  }
  return round * configuration.repeat_count;
}

}  // namespace

uint32_t RegionTable::AddMkey(transport::PdId pd, uint16_t max_entries,
                              MkeyOptions options) {
  Mkey mkey(std::min<uint16_t>(max_entries, transport::kMaxMkeyEntries));
  mkey.pd = pd;
  mkey.options = options;
  std::unique_lock lock(mutex_);
  do {
    mkey.key = SecureRandom32() & ~kVariantMask;
  } while (IsTaken(IdOf(mkey.key)));
  const uint32_t key = mkey.key;
  mkeys_.emplace(IdOf(key), std::move(mkey));
  if (!options.signatures) return key;
  try {
    signatures_.try_emplace(IdOf(key));
  } catch (const std::bad_alloc&) {
    mkeys_.erase(IdOf(key));
    throw;
  }
  return key;
}

void RegionTable::RemoveMkey(uint32_t key) {
  std::unique_lock lock(mutex_);
  mkeys_.erase(IdOf(key));
  signatures_.erase(IdOf(key));
}

bool RegionTable::IsMkey(uint32_t key) {
  std::shared_lock lock(mutex_);
  return mkeys_.contains(IdOf(key));
}

MemoryStatus RegionTable::ConfigureMkey(
    const transport::MkeyConfiguration& configuration) {
  using Layout = transport::MkeyConfiguration::Layout;
  std::unique_lock lock(mutex_);
  const auto found = mkeys_.find(IdOf(configuration.key));
  if (found == mkeys_.end()) return MemoryStatus::kBadKey;
  if (found->second.pd != configuration.pd) return MemoryStatus::kWrongDomain;
  Mkey& mkey = found->second;
  if (configuration.key != mkey.key && !mkey.options.update_tag) {
    return MemoryStatus::kNoRight;
  }
  if ((configuration.access.value_or(0) & ~transport::kMkeyRights) != 0) {
    return MemoryStatus::kNoRight;
  }
  const auto is_mkey = [this](const auto& entry) {
    return mkeys_.contains(IdOf(entry.lkey));
  };
  if (std::ranges::any_of(configuration.list, is_mkey) ||
      std::ranges::any_of(configuration.interleaved, is_mkey)) {
    return MemoryStatus::kNoRight;
  }
  std::optional<SignatureConfig> signature;
  const MemoryStatus status = ReadTransform(
      mkey, configuration, LengthAfter(mkey.layout, configuration), &signature);
  if (status != MemoryStatus::kOk) return status;
  switch (configuration.layout) {
    case Layout::kKeep:
      break;
    case Layout::kList:
      if (!mkey.layout.Set(configuration.list)) {
        return MemoryStatus::kOutOfRange;
      }
      break;
    case Layout::kInterleaved:
      if (!mkey.layout.Set(configuration.interleaved,
                           configuration.repeat_count)) {
        return MemoryStatus::kOutOfRange;
      }
      break;
  }
  mkey.key = configuration.key;
  mkey.access = configuration.access.value_or(mkey.access);
  mkey.valid = true;
  if (MkeySignature* const changed = SignatureOf(mkey); changed != nullptr) {
    changed->Set(signature, mkey.layout.length());
  }
  return MemoryStatus::kOk;
}

MemoryStatus RegionTable::InvalidateMkey(
    Mkey* mkey, const transport::Invalidation& invalidation) {
  if (!mkey->valid || mkey->key != invalidation.rkey) {
    return MemoryStatus::kBadKey;
  }
  if (mkey->pd != invalidation.pd) return MemoryStatus::kWrongDomain;
  if (invalidation.remote && !mkey->options.remote_invalidate) {
    return MemoryStatus::kNoRight;
  }
  mkey->valid = false;
  return MemoryStatus::kOk;
}

MemoryStatus RegionTable::TranslateMkey(const transport::MemoryAccess& access,
                                        SpanList* out) {
  std::shared_lock lock(mutex_);
  const auto found = mkeys_.find(IdOf(access.key));
  if (found == mkeys_.end()) {
    return windows_.contains(IdOf(access.key)) ? MemoryStatus::kWrongWindow
                                               : MemoryStatus::kBadKey;
  }
  const Mkey& mkey = found->second;
  if (!mkey.valid || mkey.key != access.key) return MemoryStatus::kBadKey;
  if (mkey.pd != access.pd) return MemoryStatus::kWrongDomain;
  const MkeySignature* const signature = SignatureOf(mkey);
  const bool is_signed =
      signature != nullptr && signature->converter().has_value();
  const uint64_t length =
      is_signed ? signature->converter()->wire_length() : mkey.layout.length();
  if (access.va >= length || access.length > length - access.va) {
    return MemoryStatus::kOutOfRange;
  }
  if ((mkey.access & access.access) != access.access) {
    return MemoryStatus::kNoRight;
  }
  return is_signed ? TranslateSigned(mkey, *signature->converter(), access, out)
                   : AppendPieces(mkey, access, out);
}

MemoryStatus RegionTable::AppendPieces(const Mkey& mkey,
                                       const transport::MemoryAccess& access,
                                       SpanList* out) {
  const size_t before = out->size();
  MkeyLayout::Cursor cursor(mkey.layout, access.va);
  Region region;  // of the last piece
  for (uint64_t left = access.length; left > 0 && !out->full();) {
    MkeyLayout::Piece piece;
    MemoryStatus status = MemoryStatus::kOk;
    if (!cursor.Next(left, &piece)) {
      status = MemoryStatus::kOutOfRange;
    } else if (piece.lkey != region.key && !FindLocked(piece.lkey, &region)) {
      status = MemoryStatus::kBadKey;
    } else {
      status = CheckRegion(region, {.key = piece.lkey,
                                    .remote = false,
                                    .pd = mkey.pd,
                                    .access = LocalRight(access.access),
                                    .va = piece.va,
                                    .length = piece.length});
    }
    if (status != MemoryStatus::kOk) {
      out->resize(before);
      return status;
    }
    out->push_back({HostOf(region, piece.va), piece.length,
                    piece.length >= kMinCold && IsCold(region)});
    left -= piece.length;
  }
  return MemoryStatus::kOk;
}

}  // namespace rxe_user
