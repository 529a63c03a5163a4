// Memory windows (IBA vol. 1, 10.6.7).
#include <mutex>
#include <utility>

#include "rxe_user/base/random.h"
#include "rxe_user/memory/region_table.h"

namespace rxe_user {
namespace {

using transport::MemoryStatus;

constexpr uint32_t kWindowRights = transport::kAccessRemoteWrite |
                                   transport::kAccessRemoteRead |
                                   transport::kAccessRemoteAtomic;

// Whether `region` permits `binding` (10.6.7.2.2, 10.6.7.2.3).
MemoryStatus Examine(const Region& region,
                     const transport::WindowBinding& binding) {
  if (region.pd != binding.pd) return MemoryStatus::kWrongDomain;
  const bool writes = (binding.access & (transport::kAccessRemoteWrite |
                                         transport::kAccessRemoteAtomic)) != 0;
  if ((region.access & transport::kAccessMwBind) == 0 ||
      (writes && (region.access & transport::kAccessLocalWrite) == 0)) {
    return MemoryStatus::kNoRight;
  }
  return region.Covers(binding.va, binding.length) ? MemoryStatus::kOk
                                                   : MemoryStatus::kOutOfRange;
}

}  // namespace

uint32_t RegionTable::AddWindow(transport::PdId pd, WindowType type) {
  Window window;
  window.type = type;
  window.region.pd = pd;
  std::unique_lock lock(mutex_);
  do {
    window.region.key = SecureRandom32();
  } while (IsTaken(IdOf(window.region.key)));
  const uint32_t key = window.region.key;
  if (type == WindowType::k2)
    window.at = window.entry.emplace(window.entry.end(), IdOf(key));
  windows_.emplace(IdOf(key), std::move(window));
  return key;
}

bool RegionTable::IsTaken(uint32_t id) const {
  if (id == 0 || windows_.contains(id) || mkeys_.contains(id)) return true;
  for (uint32_t low = 0; low <= kVariantMask; ++low) {
    if (regions_.contains(id << kKeyBits | low)) return true;
  }
  return false;
}

void RegionTable::RemoveWindow(uint32_t rkey) {
  std::unique_lock lock(mutex_);
  const auto it = windows_.find(IdOf(rkey));
  if (it == windows_.end()) return;
  if (it->second.bound) Unbind(&it->second);
  windows_.erase(it);
}

void RegionTable::Unbind(Window* window) {
  Forget(window->region.key);
  window->bound = false;
  if (window->type == WindowType::k2) {
    window->entry.splice(window->entry.end(),
                         BoundTo(window->region.binding & ~kWindow),
                         window->at);
  }
  const auto it = regions_.find(window->region_key);
  if (it != regions_.end()) --it->second.windows;
}

void RegionTable::ForgetQueuePair(uint32_t qpn) {
  std::unique_lock lock(mutex_);
  const std::list<uint32_t>& bound = BoundTo(qpn);
  for (auto it = bound.begin(); it != bound.end();) {
    Window& window = windows_.find(*it++)->second;
    if (window.region.binding == (kWindow | qpn)) Unbind(&window);
  }
}

MemoryStatus RegionTable::Bind(const transport::WindowBinding& binding) {
  std::unique_lock lock(mutex_);
  const auto found = windows_.find(IdOf(binding.rkey));
  if (found == windows_.end()) return MemoryStatus::kBadKey;
  if (found->second.region.pd != binding.pd) return MemoryStatus::kWrongDomain;
  Window& window = found->second;
  const bool type_2 = window.type == WindowType::k2;
  if (type_2 && (window.bound || binding.length == 0)) {
    return MemoryStatus::kNoRight;
  }
  if (binding.length == 0) {
    if (window.bound) Unbind(&window);
    window.region.key = binding.rkey;
    return MemoryStatus::kOk;
  }
  const auto it = regions_.find(binding.region_key);
  if (it == regions_.end()) return MemoryStatus::kBadKey;
  const Region& region = it->second.region;
  const MemoryStatus status = Examine(region, binding);
  if (status != MemoryStatus::kOk) return status;

  if (window.bound) Unbind(&window);
  const bool zero_based = (binding.access & transport::kAccessZeroBased) != 0;
  window.bound = true;
  window.region_key = binding.region_key;
  window.region.key = binding.rkey;
  window.region.access = binding.access & kWindowRights;
  window.region.host = reinterpret_cast<uint8_t*>(
      reinterpret_cast<uintptr_t>(region.host) + (binding.va - region.iova));
  window.region.length = binding.length;
  window.region.iova = zero_based ? 0 : binding.va;
  window.region.binding = kWindow | (type_2 ? binding.qpn : 0);
  if (type_2) {
    std::list<uint32_t>& bound = BoundTo(binding.qpn);
    bound.splice(bound.end(), window.entry);
  }
  ++it->second.windows;
  return MemoryStatus::kOk;
}

MemoryStatus RegionTable::Invalidate(
    const transport::Invalidation& invalidation) {
  const auto& [rkey, pd, qpn, remote] = invalidation;
  std::unique_lock lock(mutex_);
  const auto region = regions_.find(rkey);
  if (region != regions_.end()) {
    return region->second.region.pd == pd ? MemoryStatus::kNoRight
                                          : MemoryStatus::kWrongDomain;
  }
  const auto mkey = mkeys_.find(IdOf(rkey));
  if (mkey != mkeys_.end()) return InvalidateMkey(&mkey->second, invalidation);
  const auto found = windows_.find(IdOf(rkey));
  if (found == windows_.end()) return MemoryStatus::kBadKey;
  Window& window = found->second;
  if (!window.bound || window.region.key != rkey) {
    return MemoryStatus::kWrongWindow;
  }
  if (window.region.pd != pd) return MemoryStatus::kWrongDomain;
  if (window.type == WindowType::k1) return MemoryStatus::kNoRight;
  if (window.region.binding != (kWindow | qpn)) {
    return MemoryStatus::kWrongWindow;
  }
  Unbind(&window);
  return MemoryStatus::kOk;
}

}  // namespace rxe_user
