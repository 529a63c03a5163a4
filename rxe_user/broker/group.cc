#include "rxe_user/broker/group.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "rxe_user/base/clock.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/random.h"
#include "wire/packet.h"

namespace rxe_user::broker {
namespace {

// Receive buffer of a slot, if we may exceed net.core.rmem_max.
constexpr int kPrivilegedReceiveBuffer = 16 << 20;
// How long to wait for a probe in the first round; doubled with each round. On
// an idle machine it has arrived by the time sendto returns.
constexpr int64_t kProbeWaitNs = 2'000'000;
constexpr int64_t kLongestProbeWaitNs = 8'000'000;
constexpr int64_t kLocateStepNs = 8'000'000;
constexpr int kProbeRounds = 5;
constexpr int kWholeQueue = 1 << 16;  // datagrams; more than a queue holds

absl::Status BindError(const LocalAddress& address, int error) {
  if (error == EADDRINUSE) {
    return absl::UnavailableError(PortTakenText(address));
  }
  const std::string what = "cannot bind UDP port " +
                           std::to_string(wire::kRoceUdpPort) + " of " +
                           address.ToString();
  if (error == EMFILE) {
    return absl::ResourceExhaustedError(
        what + ": too many open files in the port broker, process " +
        std::to_string(getpid()) +
        ", which has the limit (ulimit -n) of the program that started it");
  }
  const absl::Status status = ErrnoStatus(error, what);
  const absl::string_view text = status.message();
  if (error == EADDRNOTAVAIL || error == ENODEV || error == EINVAL) {
    return absl::NotFoundError(text);
  }
  return absl::InternalError(text);
}

void RaiseReceiveBuffer(int fd) {
  const int size = kPrivilegedReceiveBuffer;
  // Without CAP_NET_ADMIN, net.core.rmem_max is the limit.
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) != 0) {
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
  }
}

}  // namespace

Group::Group(const LocalAddress& address, const MainSlots& main)
    : address_(address),
      main_(&main),
      probe_word_((uint32_t{kProbeFirstByte} << 24) |
                  (SecureRandom32() & 0x00ffffff)) {
  former_.fill(kNoIndex);
  map_.fill(kNoIndex);
}

absl::StatusOr<Group> Group::Create(const LocalAddress& address,
                                    const MainSlots& main) {
  // Sockets of another group would have unknown positions.
  if (!BindUdp(address, wire::kRoceUdpPort, Sharing::kExclusive).valid()) {
    const int error = errno;
    if (error == EADDRINUSE &&
        BindUdp(address, wire::kRoceUdpPort, Sharing::kReusePort).valid()) {
      return absl::AlreadyExistsError(PortTakenText(address));
    }
    return BindError(address, error);
  }
  Group group(address, main);
  const absl::StatusOr<Member*> first = group.Add(0, geteuid(), true);
  if (!first.ok()) return first.status();
  const absl::Status status = group.Install();
  if (!status.ok()) return status;
  group.settled_ = true;
  return group;
}

Group Group::ForAdoption(const LocalAddress& address, const MainSlots& main,
                         const LedgerGroup* former) {
  Group group(address, main);
  group.adopted_ = true;
  if (former != nullptr) group.MergeLedger(*former);
  return group;
}

absl::StatusOr<Group> Group::Join(const LocalAddress& address,
                                  const MainSlots& main) {
  Group group(address, main);
  group.adopted_ = true;
  const absl::Status status = group.StartLocating();
  if (!status.ok()) return status;
  return group;
}

bool Group::Adopt(uint16_t slot, uid_t uid, UniqueFd socket, uint16_t index,
                  UniqueFd anchor) {
  if (const Member* const held = Find(slot)) {
    // Handed back before, on a connection that ended meanwhile.
    return held->uid == uid && held->cookie == SocketCookie(socket.get());
  }
  const auto take = [&](uint16_t for_slot, UniqueFd fd, uint16_t claimed) {
    if (!fd.valid() || Find(for_slot) != nullptr ||
        !IsGroupSocket(fd.get(), address_)) {
      return false;
    }
    const uint64_t cookie = SocketCookie(fd.get());
    for (Member& m : members_) {
      if (m.cookie != cookie) continue;
      // Only the same user may get back its socket of an earlier connection.
      if (m.slot.has_value() || m.uid != uid) return false;
      m.slot = for_slot;
      return true;
    }
    // A created group knows all of its sockets.
    if (!adopted_) return false;
    // The dead broker's record is newer than the index that it told its client.
    const uint16_t former = std::exchange(former_[for_slot], kNoIndex);
    members_.push_back({std::move(fd), cookie, for_slot,
                        former != kNoIndex ? former : claimed, uid});
    return true;
  };
  const bool took_anchor = take(0, std::move(anchor), 0);
  const bool took_socket = take(slot, std::move(socket), index);
  if (!adopted_) return took_socket && Install().ok();
  if (took_anchor || took_socket) {
    settled_ = false;
    locating_.reset();  // start the search again
  }
  return took_socket;
}

void Group::MergeLedger(const LedgerGroup& former) {
  former_ = former.index;
  for (const Member& m : members_) {
    if (m.slot.has_value()) former_[*m.slot] = kNoIndex;
  }
  probe_word_ = former.probe_word;
}

absl::Status Group::StartLocating() {
  if (Find(0) == nullptr) {
    const absl::StatusOr<Member*> added = Add(0, geteuid(), true);
    if (!added.ok()) return added.status();
  }
  const absl::Status status = Install();
  settled_ = status.ok();
  if (settled_) BeginLocating();
  return status;
}

bool Group::unused() const {
  for (size_t slot = 1; slot < kSlots; ++slot) {
    if (former_[slot] != kNoIndex && !IsFurther(slot)) return false;
  }
  return std::ranges::none_of(
      members_, [](const Member& m) { return m.slot.value_or(0) != 0; });
}

bool Group::IsFurther(size_t slot) const {
  return (*main_)[slot] != 0 && (*main_)[slot] != slot;
}

size_t Group::Lent(const std::function<bool(uid_t)>& counts) const {
  return static_cast<size_t>(std::ranges::count_if(
      members_,
      [&](const Member& m) { return m.slot != uint16_t{0} && counts(m.uid); }));
}

bool Group::has_gaps() const {
  return std::ranges::any_of(
      members_, [&](const Member& m) { return m.index >= members_.size(); });
}

Group::Member* Group::Find(uint16_t slot) {
  const auto it = std::ranges::find(members_, slot, &Member::slot);
  return it == members_.end() ? nullptr : &*it;
}

Group::Member* Group::FindFree(uid_t uid) {
  const auto it = std::ranges::find_if(members_, [&](const Member& m) {
    return !m.slot.has_value() && m.uid == uid;
  });
  return it == members_.end() ? nullptr : &*it;
}

absl::StatusOr<Group::Member*> Group::Add(uint16_t slot, uid_t uid,
                                          bool trusted) {
  UniqueFd fd = BindUdp(address_, wire::kRoceUdpPort, Sharing::kReusePort);
  if (!fd.valid()) return BindError(address_, errno);
  RaiseReceiveBuffer(fd.get());
  if (!trusted &&
      (!AttachFilter(fd.get(), SO_ATTACH_FILTER,
                     ProbeFilter(probe_word_, ProbeIdentity(fd.get()))) ||
       !LockFilter(fd.get()))) {
    return absl::InternalError("cannot lock a socket of UDP port 4791: " +
                               std::string(std::strerror(errno)));
  }
  const uint64_t cookie = SocketCookie(fd.get());
  const uint16_t index = static_cast<uint16_t>(members_.size());
  members_.push_back({std::move(fd), cookie, slot, index, uid});
  // An adopted group may contain sockets that we do not know.
  if (adopted_) BeginLocating();
  return &members_.back();
}

absl::StatusOr<const Group::Member*> Group::Assign(uint16_t slot, uid_t uid,
                                                   bool trusted) {
  Member* m = Find(slot);
  if (m == nullptr) {
    m = FindFree(uid);
    if (m != nullptr) {
      // Drop what arrived for the last owner.
      Drain(m->fd.get(), kWholeQueue);
      m->slot = slot;
    } else {
      const absl::StatusOr<Member*> added = Add(slot, uid, trusted);
      if (!added.ok()) return added.status();
      m = *added;
    }
    former_[slot] = kNoIndex;
    const absl::Status status = Install();
    if (!status.ok()) {
      m->slot = std::nullopt;
      return status;
    }
  }
  return m;
}

void Group::Release(uint16_t slot) {
  Member* m = slot == 0 ? nullptr : Find(slot);
  former_[slot] = kNoIndex;
  if (m == nullptr) return;
  m->slot = std::nullopt;
  if (settled_) (void)Install();
  Drain(m->fd.get(), kWholeQueue);
}

void Group::Forget(uint16_t slot) {
  if (slot == 0 || former_[slot] == kNoIndex) return;
  former_[slot] = kNoIndex;
  if (settled_) (void)Install();
}

int Group::fd_of(uint16_t slot) const {
  for (const Member& m : members_) {
    if (m.slot == slot) return m.fd.get();
  }
  return -1;
}

absl::Status Group::Install() {
  IndexMap map;
  map.fill(kNoIndex);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    // The position of a known socket overrides the former record.
    const uint16_t index = former_[slot];
    if (index != kNoIndex && !IsFurther(slot) &&
        std::ranges::none_of(
            members_, [&](const Member& m) { return m.index == index; })) {
      map[slot] = index;
    }
  }
  for (const Member& m : members_) {
    if (m.slot.has_value()) map[*m.slot] = m.index;
  }
  for (size_t slot = 1; slot < kSlots; ++slot) {
    if (!IsFurther(slot)) continue;
    const uint16_t index = map[(*main_)[slot]];
    if (index != kNoIndex) map[slot] = index;
  }
  // Attach by slot 0's socket, which is not locked.
  const Member* const own = Find(0);
  if (own == nullptr) {
    return absl::InternalError("the broker has no socket of its own at " +
                               address_.ToString());
  }
  if (!AttachFilter(own->fd.get(), SO_ATTACH_REUSEPORT_CBPF,
                    SteeringProgram(map, probe_word_))) {
    return absl::InternalError(
        "cannot install the steering program of UDP port " +
        std::to_string(wire::kRoceUdpPort) + ": " + std::strerror(errno));
  }
  map_ = map;
  return absl::OkStatus();
}

void Group::BeginLocating() {
  located_ = false;
  locating_ = Locating();
  for (const Member& m : members_) locating_->candidate.push_back(m.index);
}

void Group::Locate() {
  if (locating_.has_value() && !LocateSome()) EndLocating(false);
}

// Returns false if the positions cannot be found.
bool Group::LocateSome() {
  if (!Install().ok()) return false;
  Locating& now = *locating_;
  if (now.prober == nullptr) {
    UniqueFd sender = BindUdp(address_, 0, Sharing::kExclusive);
    if (!sender.valid()) return false;
    std::vector<int> sockets;
    for (const Member& m : members_) sockets.push_back(m.fd.get());
    now.prober = std::make_unique<Prober>(std::move(sockets), std::move(sender),
                                          address_, probe_word_);
  }
  const int64_t deadline = MonotonicNs() + kLocateStepNs;
  for (; now.round < kProbeRounds; ++now.round) {
    const int64_t wait_ns =
        std::min(kProbeWaitNs << now.round, kLongestProbeWaitNs);
    if (!now.search.has_value()) now.search.emplace().indexes = now.candidate;
    const Prober::Outcome outcome =
        now.prober->Continue(*now.search, wait_ns, deadline);
    if (outcome == Prober::Outcome::kMore) return true;
    const bool verified = now.search->all_right;
    now.candidate = std::move(now.search->indexes);
    now.search.reset();
    if (outcome == Prober::Outcome::kFound && verified) {
      for (size_t m = 0; m < members_.size(); ++m) {
        members_[m].index = now.candidate[m];
      }
      EndLocating(true);
      return true;
    }
  }
  return false;
}

// If not all were `found`, keeps the best known indexes.
void Group::EndLocating(bool found) {
  locating_.reset();
  located_ = found;
  settled_ = Install().ok();
}

}  // namespace rxe_user::broker
