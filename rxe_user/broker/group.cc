#include "rxe_user/broker/group.h"

#include <arpa/inet.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif

namespace rxe_user::broker {
namespace {

// What a slot's queue should hold where we may exceed net.core.rmem_max.
constexpr int kPrivilegedReceiveBuffer = 16 << 20;
// How long a probe may take to arrive before it is sent again or given up. On
// an idle machine it has arrived when sendto returns.
constexpr int64_t kProbeWaitNs = 2'000'000;
constexpr int64_t kProbeBudgetNs = 100'000'000;
constexpr int kProbeRounds = 5;
constexpr int kWholeQueue = 1 << 16;  // more than one holds
constexpr int kMeminfoWords = 9;
constexpr int kMeminfoDrops = 8;

int64_t NowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * int64_t{1'000'000'000} + t.tv_nsec;
}

uint32_t Random32() {
  uint32_t v = 0;
  if (getrandom(&v, sizeof(v), 0) != sizeof(v)) {
    v = static_cast<uint32_t>(NowNs());
  }
  return v;
}

std::optional<uint32_t> DropsOf(int fd) {
  uint32_t info[kMeminfoWords] = {};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &size) != 0 ||
      size < sizeof(info)) {
    return std::nullopt;
  }
  return info[kMeminfoDrops];
}

bool Attach(int fd, int option, std::vector<sock_filter> code) {
  const sock_fprog program{static_cast<unsigned short>(code.size()),
                           code.data()};
  return setsockopt(fd, SOL_SOCKET, option, &program, sizeof(program)) == 0;
}

absl::Status BindError(const Address& address, int error) {
  if (error == EADDRINUSE) {
    return absl::UnavailableError(PortTakenText(address));
  }
  const std::string text = "cannot bind UDP port " + std::to_string(kRocePort) +
                           " of " + address.ToString() + ": " +
                           std::strerror(error);
  if (error == EADDRNOTAVAIL || error == ENODEV || error == EINVAL) {
    return absl::NotFoundError(text);
  }
  return absl::InternalError(text);
}

void RaiseReceiveBuffer(int fd) {
  const int size = kPrivilegedReceiveBuffer;
  // Refused without CAP_NET_ADMIN: then the client does what it may.
  (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
}

}  // namespace

Group::Group(const Address& address)
    : address_(address),
      probe_word_((uint32_t{kProbeFirstByte} << 24) |
                  (Random32() & 0x00ffffff)) {
  former_.fill(kNoIndex);
  map_.fill(kNoIndex);
}

absl::StatusOr<Group> Group::Create(const Address& address) {
  // Alone on the port? Joining others' group would give unknown positions.
  if (!BindUdp(address, kRocePort, Sharing::kExclusive).valid()) {
    const int error = errno;
    if (error == EADDRINUSE &&
        BindUdp(address, kRocePort, Sharing::kReusePort).valid()) {
      return absl::AlreadyExistsError(PortTakenText(address));
    }
    return BindError(address, error);
  }
  Group group(address);
  const absl::StatusOr<Member*> first = group.Add(0, geteuid());
  if (!first.ok()) return first.status();
  const absl::Status status = group.Install();
  if (!status.ok()) return status;
  group.settled_ = true;
  return group;
}

Group Group::ForAdoption(const Address& address, const LedgerGroup* former) {
  Group group(address);
  group.adopted_ = true;
  if (former != nullptr) group.former_ = former->index;
  return group;
}

bool Group::Adopt(uint8_t slot, uid_t uid, UniqueFd socket, uint16_t index,
                  UniqueFd keeper) {
  bool any = false;
  const auto take = [&](uint8_t for_slot, UniqueFd fd, uint16_t claimed) {
    if (!fd.valid() || !IsGroupSocket(fd.get(), address_)) return;
    any = true;
    const uint64_t cookie = SocketCookie(fd.get());
    for (const Member& m : members_) {
      if (m.cookie == cookie || m.slot == for_slot) return;
    }
    members_.push_back({std::move(fd), cookie, for_slot, claimed, uid});
    former_[for_slot] = kNoIndex;
  };
  take(0, std::move(keeper), 0);
  take(slot, std::move(socket), index);
  if (any) settled_ = false;
  return any;
}

absl::Status Group::Settle() {
  Locate();
  if (Find(0) == nullptr) {
    const absl::StatusOr<Member*> added = Add(0, geteuid());
    if (!added.ok()) return added.status();
  }
  const absl::Status status = Install();
  settled_ = status.ok();
  return status;
}

bool Group::has_gaps() const {
  return std::any_of(members_.begin(), members_.end(), [&](const Member& m) {
    return m.index >= members_.size();
  });
}

Group::Member* Group::Find(uint8_t slot) {
  const auto it = std::find_if(members_.begin(), members_.end(),
                               [&](const Member& m) { return m.slot == slot; });
  return it == members_.end() ? nullptr : &*it;
}

Group::Member* Group::FindFree(uid_t uid) {
  const auto it = std::find_if(
      members_.begin(), members_.end(),
      [&](const Member& m) { return !m.slot.has_value() && m.uid == uid; });
  return it == members_.end() ? nullptr : &*it;
}

absl::StatusOr<Group::Member*> Group::Add(uint8_t slot, uid_t uid) {
  UniqueFd fd = BindUdp(address_, kRocePort, Sharing::kReusePort);
  if (!fd.valid()) return BindError(address_, errno);
  RaiseReceiveBuffer(fd.get());
  const uint64_t cookie = SocketCookie(fd.get());
  const uint16_t index = static_cast<uint16_t>(members_.size());
  members_.push_back({std::move(fd), cookie, slot, index, uid});
  // Sockets that we do not know of may stand in an adopted group.
  if (adopted_) Locate();
  return &members_.back();
}

absl::StatusOr<const Group::Member*> Group::Assign(uint8_t slot, uid_t uid) {
  Member* m = Find(slot);
  if (m == nullptr) {
    m = FindFree(uid);
    if (m != nullptr) {
      // What arrived for the last owner is not for the next one.
      Drain(m->fd.get(), kWholeQueue);
      m->slot = slot;
    } else {
      const absl::StatusOr<Member*> added = Add(slot, uid);
      if (!added.ok()) return added.status();
      m = *added;
    }
    former_[slot] = kNoIndex;
    const absl::Status status = Install();
    if (!status.ok()) return status;
  }
  return m;
}

void Group::Release(uint8_t slot) {
  Member* m = slot == 0 ? nullptr : Find(slot);
  former_[slot] = kNoIndex;
  if (m == nullptr) return;
  m->slot = std::nullopt;
  if (settled_) (void)Install();
  Drain(m->fd.get(), kWholeQueue);
}

void Group::Forget(uint8_t slot) {
  if (slot == 0 || former_[slot] == kNoIndex) return;
  former_[slot] = kNoIndex;
  if (settled_) (void)Install();
}

int Group::management_fd() const {
  for (const Member& m : members_) {
    if (m.slot == 0) return m.fd.get();
  }
  return -1;
}

absl::Status Group::Install() {
  IndexMap map;
  map.fill(kNoIndex);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    // A position that a known socket holds is no longer the former one's.
    const uint16_t index = former_[slot];
    if (index != kNoIndex &&
        std::none_of(members_.begin(), members_.end(),
                     [&](const Member& m) { return m.index == index; })) {
      map[slot] = index;
    }
  }
  for (const Member& m : members_) {
    if (m.slot.has_value()) map[*m.slot] = m.index;
  }
  if (members_.empty() ||
      !Attach(members_[0].fd.get(), SO_ATTACH_REUSEPORT_CBPF,
              SteeringProgram(map, probe_word_))) {
    return absl::InternalError(
        "cannot install the steering program of UDP port " +
        std::to_string(kRocePort) + ": " + std::strerror(errno));
  }
  map_ = map;
  return absl::OkStatus();
}

// Finds every member's index. False if it could not: then the indexes are the
// best known.
bool Group::Locate() {
  if (members_.empty() || !Install().ok()) return false;
  const UniqueFd socket = BindUdp(address_, 0, Sharing::kExclusive);
  if (!socket.valid()) return false;
  for (const Member& m : members_) {
    Attach(m.fd.get(), SO_ATTACH_FILTER, ProbeFilter(probe_word_));
  }
  bool found = false;
  for (int round = 0; round < kProbeRounds && !found; ++round) {
    found = LocateOnce(socket.get());
  }
  for (const Member& m : members_) {
    const int unused = 0;
    setsockopt(m.fd.get(), SOL_SOCKET, SO_DETACH_FILTER, &unused,
               sizeof(unused));
  }
  return found;
}

bool Group::LocateOnce(int socket) {
  std::vector<uint32_t> drops;
  for (const Member& m : members_) {
    const std::optional<uint32_t> d = DropsOf(m.fd.get());
    if (!d.has_value()) return false;
    drops.push_back(*d);
  }
  std::vector<uint16_t> index(members_.size(), kNoIndex);
  const SocketAddress to = ToSocketAddress(address_, kRocePort);
  const int64_t deadline = NowNs() + kProbeBudgetNs;
  size_t located = 0;
  // The members whose counters moved since the last look: the last of them,
  // and how many.
  const auto look = [&](size_t& moved) {
    size_t hit = members_.size();
    moved = 0;
    for (size_t m = 0; m < members_.size(); ++m) {
      const uint32_t now = DropsOf(members_[m].fd.get()).value_or(drops[m]);
      moved += now - drops[m];
      if (now != drops[m]) hit = m;
      drops[m] = now;
    }
    return hit;
  };
  // Sends one probe; the member that dropped it, or the size if none did.
  // `clean` becomes false when something else was dropped meanwhile.
  bool clean = true;
  const auto probe = [&](uint16_t i) {
    const Probe p{htonl(probe_word_), htonl(i), {}};
    if (sendto(socket, &p, sizeof(p), MSG_DONTWAIT, to.get(), to.size) < 0) {
      return members_.size();
    }
    const int64_t until = NowNs() + kProbeWaitNs;
    size_t moved = 0;
    size_t hit;
    do {
      hit = look(moved);
    } while (moved == 0 && NowNs() < until);
    clean = clean && moved <= 1;
    return hit;
  };
  for (uint16_t i = 0; i < 2 * kSlots && located < members_.size(); ++i) {
    size_t m = members_.size();
    for (int attempt = 0; attempt < 2 && m == members_.size(); ++attempt) {
      if (NowNs() > deadline) return false;
      m = probe(i);
    }
    if (!clean) return false;
    if (m == members_.size()) continue;  // somebody else's socket
    if (index[m] != kNoIndex) return false;
    index[m] = i;
    ++located;
  }
  size_t late = 0;
  look(late);
  if (located < members_.size() || late != 0) return false;
  for (size_t m = 0; m < members_.size(); ++m) members_[m].index = index[m];
  return true;
}

}  // namespace rxe_user::broker
