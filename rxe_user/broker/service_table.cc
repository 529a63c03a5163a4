#include "rxe_user/broker/service_table.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"

namespace rxe_user {
namespace {

bool HasV4(const Service& s) {
  return s.local.address.is_unspecified()
             ? s.local.address.is_v4() || s.ipv6_only == 0
             : s.local.address.is_v4();
}
bool HasV6(const Service& s) { return !s.local.address.is_v4(); }

bool Overlap(const Service& a, const Service& b) {
  if (!a.local.address.is_unspecified() && !b.local.address.is_unspecified()) {
    return a.local == b.local;
  }
  return (HasV4(a) && HasV4(b)) || (HasV6(a) && HasV6(b));
}

bool MayCoexist(const Service& a, const Service& b) {
  return !Overlap(a, b) || (a.reuse == 1 && b.reuse == 1 &&
                            !(a.listening == 1 && b.listening == 1));
}

// How well a service matches; 0: not at all.
int Fit(const Service& s, const LocalAddress& local) {
  if (s.listening != 1) return 0;
  if (s.local == local) return 3;
  if (!s.local.address.is_unspecified()) return 0;
  if (!(local.address.is_v4() ? HasV4(s) : HasV6(s))) return 0;
  return HasV4(s) && HasV6(s) ? 1 : 2;
}

}  // namespace

bool ServiceTable::Set(uint8_t holder, uint32_t token, const Service& service,
                       Since since) {
  const Name name(holder, token);
  // A new reservation conflicts with a listener; earlier ones may stay beside
  // it.
  const bool comes = since == Since::kNow && !services_.contains(name);
  const uint64_t counts = service.service_id & service.mask;
  if (const auto same_mask = by_mask_.find(service.mask);
      same_mask != by_mask_.end()) {
    if (const auto same = same_mask->second.find(counts);
        same != same_mask->second.end()) {
      for (const Name& other : same->second) {
        if (other == name) continue;
        const Service& there = services_.at(other);
        if (!MayCoexist(there, service)) return false;
        if (comes && there.listening == 1 && Overlap(there, service)) {
          return false;
        }
      }
    }
  }
  const auto old = services_.find(name);
  if (old != services_.end() && old->second.mask == service.mask &&
      (old->second.service_id & service.mask) == counts) {
    old->second = service;
    return true;
  }
  // May throw bad_alloc.
  absl::Cleanup undo = [&] { Unlist(name, service); };
  by_mask_[service.mask][counts].push_back(name);
  const auto [now, added] = services_.try_emplace(name, service);
  std::move(undo).Cancel();
  if (!added) {
    Unlist(name, now->second);
    now->second = service;
  }
  return true;
}

void ServiceTable::Remove(uint8_t holder, uint32_t token) {
  const auto found = services_.find({holder, token});
  if (found == services_.end()) return;
  Unlist(found->first, found->second);
  services_.erase(found);
}

void ServiceTable::Unlist(const Name& name, const Service& service) {
  const auto same_mask = by_mask_.find(service.mask);
  if (same_mask == by_mask_.end()) return;
  const auto same = same_mask->second.find(service.service_id & service.mask);
  if (same != same_mask->second.end()) {
    std::erase(same->second, name);
    if (same->second.empty()) same_mask->second.erase(same);
  }
  if (same_mask->second.empty()) by_mask_.erase(same_mask);
}

void ServiceTable::RemoveAll(uint8_t holder) {
  for (;;) {
    const auto first = services_.lower_bound({holder, 0});
    if (first == services_.end() || first->first.first != holder) return;
    Remove(holder, first->first.second);
  }
}

size_t ServiceTable::CountOf(uint8_t holder) const {
  const auto first = services_.lower_bound({holder, 0});
  const auto last = services_.upper_bound({holder, ~uint32_t{0}});
  return static_cast<size_t>(std::distance(first, last));
}

size_t ServiceTable::MasksWith(uint8_t holder, uint32_t token,
                               uint64_t mask) const {
  std::set<uint64_t> masks = {mask};
  for (auto it = services_.lower_bound({holder, 0});
       it != services_.end() && it->first.first == holder; ++it) {
    if (it->first.second != token) masks.insert(it->second.mask);
  }
  return masks.size();
}

std::optional<uint8_t> ServiceTable::Match(uint64_t service_id,
                                           const LocalAddress& local) const {
  for (const auto& [mask, same_mask] : by_mask_) {
    const auto same = same_mask.find(service_id & mask);
    if (same == same_mask.end()) continue;
    int best = 0;
    uint8_t holder = 0;
    for (const Name& name : same->second) {
      const int fit = Fit(services_.at(name), local);
      if (fit > best) {
        best = fit;
        holder = name.first;
      }
    }
    if (best > 0) return holder;
  }
  return std::nullopt;
}

}  // namespace rxe_user
