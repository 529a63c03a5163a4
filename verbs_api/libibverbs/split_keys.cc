#include "verbs_api/libibverbs/split_keys.h"

#include <cinttypes>
#include <cstdio>
#include <new>

#include "verbs_api/lint/checker.h"

namespace verbs_api {
namespace {

using lint::Checker;
using transport::MemoryStatus;

constexpr uint32_t kDifference = 0x5a000000;

bool IsOn() {
  const Checker* const checker = Checker::Current();
  return checker != nullptr && checker->IsOn(lint::Lint::kMixedKeys);
}

// Windows have rkeys only, so a bound entry is no region.
bool IsRegion(rxe_user::RegionTable& regions, uint32_t key) {
  rxe_user::Region region;
  return regions.Find(key, &region) && region.binding == 0;
}

class Splitter final : public transport::Memory {
 public:
  Splitter(rxe_user::RegionTable& regions, const void* device)
      : regions_(regions), device_(device) {}

  // --- transport::Memory
  MemoryStatus Translate(const transport::MemoryAccess& access,
                         transport::SpanList* out) override {
    transport::MemoryAccess mapped = access;
    return MapKey(&mapped) ? regions_.Translate(mapped, out)
                           : MemoryStatus::kBadKey;
  }
  MemoryStatus Flush(const transport::MemoryAccess& access,
                     bool whole_region) override {
    transport::MemoryAccess mapped = access;
    return MapKey(&mapped) ? regions_.Flush(mapped, whole_region)
                           : MemoryStatus::kBadKey;
  }
  bool CopyFrom(uint8_t* to, const uint8_t* from, size_t bytes,
                bool more) override {
    return regions_.CopyFrom(to, from, bytes, more);
  }
  bool CopyFromWithIcrc(uint8_t* to, const uint8_t* from, size_t bytes,
                        bool more, uint32_t* icrc) override {
    return regions_.CopyFromWithIcrc(to, from, bytes, more, icrc);
  }
  bool CopyTo(uint8_t* to, const uint8_t* from, size_t bytes,
              bool more) override {
    return regions_.CopyTo(to, from, bytes, more);
  }
  bool Copy(uint8_t* to, const uint8_t* from, size_t bytes) override {
    return regions_.Copy(to, from, bytes);
  }
  bool CompareSwap(uint8_t* word, uint64_t compare, uint64_t swap,
                   uint64_t* original) override {
    return regions_.CompareSwap(word, compare, swap, original);
  }
  bool FetchAdd(uint8_t* word, uint64_t add, uint64_t* original) override {
    return regions_.FetchAdd(word, add, original);
  }
  MemoryStatus Bind(const transport::WindowBinding& binding) override {
    return regions_.Bind(binding);
  }
  MemoryStatus ConfigureMkey(
      const transport::MkeyConfiguration& configuration) override {
    return regions_.ConfigureMkey(configuration);
  }
  bool NeedsOrder(uint32_t key) override { return regions_.NeedsOrder(key); }
  bool HasDataError(uint32_t key) override {
    return regions_.HasDataError(key);
  }
  MemoryStatus Invalidate(const transport::Invalidation& what) override {
    return regions_.Invalidate(what);
  }

 private:
  // Replaces the access's key by the one that `regions_` knows. False: the peer
  // has used an lkey.
  bool MapKey(transport::MemoryAccess* access) {
    if (!access->remote) return true;
    rxe_user::Region found;
    const bool known = regions_.Find(access->key, &found);
    const bool is_window = known && found.binding != 0;
    if (is_window || regions_.IsMkey(access->key)) return true;
    if (IsRegion(regions_, access->key ^ kDifference)) {
      access->key ^= kDifference;
      return true;
    }
    if (!known) return true;
    try {
      char what[96];
      std::snprintf(what, sizeof(what),
                    "the peer uses 0x%" PRIx32
                    " as R_Key, which is the lkey of a region",
                    access->key);
      Checker::Current()->OnMixedKeys({device_, access->qpn}, what);
    } catch (const std::bad_alloc&) {
      // Without memory, the access is refused without a report.
    }
    return false;
  }

  rxe_user::RegionTable& regions_;
  const void* const device_;
};

}  // namespace

uint32_t RkeyOf(uint32_t lkey) { return IsOn() ? lkey ^ kDifference : lkey; }

bool IsOnlyRkey(rxe_user::RegionTable& regions, uint32_t key) {
  return IsOn() && IsRegion(regions, key ^ kDifference) &&
         !IsRegion(regions, key);
}

std::unique_ptr<transport::Memory> SplitKeys(rxe_user::RegionTable& regions,
                                             const void* device) {
  if (!IsOn()) return nullptr;
  return std::make_unique<Splitter>(regions, device);
}

}  // namespace verbs_api
