#include "rxe_user/broker/service_table.h"

#include "absl/cleanup/cleanup.h"

namespace rxe_user {
namespace {

bool IsWildcard(const Service& s) { return s.local.address.is_unspecified(); }

}  // namespace

// --- Users of one service ID.

void ServiceTable::Users::Add(const Service& s) {
  ++all;
  exclusive += s.reuse != 1;
  listening += s.listening == 1;
}

void ServiceTable::Users::Add(const Users& other) {
  all += other.all;
  exclusive += other.exclusive;
  listening += other.listening;
}

void ServiceTable::Users::Subtract(const Service& s) {
  --all;
  exclusive -= s.reuse != 1;
  listening -= s.listening == 1;
}

ServiceTable::Family ServiceTable::FamilyOf(const Service& s) {
  if (s.local.address.is_v4()) return kV4;
  return IsWildcard(s) && s.ipv6_only == 0 ? kBoth : kV6;
}

ServiceTable::Endpoint* ServiceTable::Ids::EndpointOf(const Service& s) {
  if (IsWildcard(s)) return &wildcards[FamilyOf(s)];
  const auto found = addresses.find(s.local);
  return found == addresses.end() ? nullptr : &found->second;
}

ServiceTable::Users ServiceTable::Ids::Overlapping(const Service& s) const {
  Users users;
  const auto add_wildcards = [&](Family family) {
    users.Add(wildcards[family]);
  };
  const Family family = FamilyOf(s);
  add_wildcards(kBoth);
  if (family != kV6) add_wildcards(kV4);
  if (family != kV4) add_wildcards(kV6);
  if (!IsWildcard(s)) {
    const auto same = addresses.find(s.local);
    if (same != addresses.end()) users.Add(same->second);
    return users;
  }
  if (family != kV6) users.Add(of_addresses[kV4]);
  if (family != kV4) users.Add(of_addresses[kV6]);
  return users;
}

void ServiceTable::Ids::Enter(uint16_t holder, const Service& s) {
  Endpoint& endpoint = *EndpointOf(s);
  endpoint.Add(s);
  if (s.listening == 1) endpoint.listener = holder;
  if (!IsWildcard(s)) of_addresses[FamilyOf(s)].Add(s);
}

void ServiceTable::Ids::Leave(const Service& s) {
  EndpointOf(s)->Subtract(s);
  if (!IsWildcard(s)) of_addresses[FamilyOf(s)].Subtract(s);
}

bool ServiceTable::Ids::empty() const {
  return addresses.empty() && wildcards[kV4].all == 0 &&
         wildcards[kV6].all == 0 && wildcards[kBoth].all == 0;
}

// --- The table.

ServiceTable::Ids* ServiceTable::Find(const Service& s) {
  const auto same_mask = by_mask_.find(s.mask);
  if (same_mask == by_mask_.end()) return nullptr;
  const auto same = same_mask->second.find(s.service_id & s.mask);
  return same == same_mask->second.end() ? nullptr : &same->second;
}

void ServiceTable::Prune(const Service& s) {
  const auto same_mask = by_mask_.find(s.mask);
  if (same_mask == by_mask_.end()) return;
  const auto same = same_mask->second.find(s.service_id & s.mask);
  if (same != same_mask->second.end()) {
    const auto address = same->second.addresses.find(s.local);
    if (address != same->second.addresses.end() && address->second.all == 0) {
      same->second.addresses.erase(address);
    }
    if (same->second.empty()) same_mask->second.erase(same);
  }
  if (same_mask->second.empty()) by_mask_.erase(same_mask);
}

bool ServiceTable::MayAdd(const Service& service, const Service* old,
                          Since since) {
  const Ids* const ids = Find(service);
  if (ids == nullptr) return true;
  Users others = ids->Overlapping(service);
  // Ignore the present state of the service itself.
  if (old != nullptr && Find(*old) == ids && Overlap(*old, service)) {
    others.Subtract(*old);
  }
  if (service.reuse == 1 ? others.exclusive != 0 : others.all != 0) {
    return false;
  }
  // A new reservation conflicts with a listener. An earlier one may remain
  // beside it.
  const bool comes = since == Since::kNow && old == nullptr;
  return others.listening == 0 || (service.listening != 1 && !comes);
}

bool ServiceTable::Overlap(const Service& a, const Service& b) {
  if (!IsWildcard(a) && !IsWildcard(b)) return a.local == b.local;
  const Family family_a = FamilyOf(a), family_b = FamilyOf(b);
  return family_a == family_b || family_a == kBoth || family_b == kBoth;
}

bool ServiceTable::Set(uint16_t holder, uint32_t token, const Service& service,
                       Since since) {
  const Name name(holder, token);
  const auto found = services_.find(name);
  const bool added = found == services_.end();
  if (!MayAdd(service, added ? nullptr : &found->second, since)) return false;
  // May throw bad_alloc.
  absl::Cleanup undo = [&] {
    Prune(service);
    PruneMask(holder, service.mask);
  };
  Ids& ids = by_mask_[service.mask][service.service_id & service.mask];
  if (!IsWildcard(service)) ids.addresses.try_emplace(service.local);
  size_t& of_mask =
      of_holder_[holder].masks.try_emplace(service.mask).first->second;
  const auto now = added ? services_.try_emplace(name).first : found;
  std::move(undo).Cancel();
  if (added) ++of_holder_[holder].services;
  ++of_mask;
  // Leave before Enter: both may use the same Endpoint, which has one listener.
  const Service old = std::exchange(now->second, service);
  if (!added) {
    Find(old)->Leave(old);
    --of_holder_[holder].masks.at(old.mask);
  }
  ids.Enter(holder, service);
  if (!added) {
    Prune(old);
    PruneMask(holder, old.mask);
  }
  return true;
}

void ServiceTable::Remove(uint16_t holder, uint32_t token) {
  const auto found = services_.find({holder, token});
  if (found == services_.end()) return;
  const Service old = found->second;
  services_.erase(found);
  Find(old)->Leave(old);
  Prune(old);
  --of_holder_[holder].services;
  --of_holder_[holder].masks.at(old.mask);
  PruneMask(holder, old.mask);
}

void ServiceTable::PruneMask(uint16_t holder, uint64_t mask) {
  std::map<uint64_t, size_t>& masks = of_holder_[holder].masks;
  const auto found = masks.find(mask);
  if (found != masks.end() && found->second == 0) masks.erase(found);
}

void ServiceTable::RemoveAll(uint16_t holder) {
  for (;;) {
    const auto first = services_.lower_bound({holder, 0});
    if (first == services_.end() || first->first.first != holder) return;
    Remove(holder, first->first.second);
  }
}

size_t ServiceTable::MasksWith(uint16_t holder, uint32_t token,
                               uint64_t mask) const {
  const std::map<uint64_t, size_t>& masks = of_holder_[holder].masks;
  size_t count = masks.size() + !masks.contains(mask);
  const auto old = services_.find({holder, token});
  if (old != services_.end() && old->second.mask != mask &&
      masks.at(old->second.mask) == 1) {
    --count;
  }
  return count;
}

std::optional<uint16_t> ServiceTable::Match(uint64_t service_id,
                                            const LocalAddress& local) const {
  for (const auto& [mask, same_mask] : by_mask_) {
    const auto same = same_mask.find(service_id & mask);
    if (same == same_mask.end()) continue;
    const Ids& ids = same->second;
    const auto address = ids.addresses.find(local);
    if (address != ids.addresses.end() && address->second.listening != 0) {
      return address->second.listener;
    }
    const Family family = local.address.is_v4() ? kV4 : kV6;
    for (const Family wildcard : {family, kBoth}) {
      const Endpoint& endpoint = ids.wildcards[wildcard];
      if (endpoint.listening != 0) return endpoint.listener;
    }
  }
  return std::nullopt;
}

}  // namespace rxe_user
