#include "rxe_user/broker/prober.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "rxe_user/broker/steering.h"
#include "wire/packet.h"

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif

namespace rxe_user::broker {
namespace {

constexpr int64_t kSearchBudgetNs = 100'000'000;
constexpr int kMeminfoWords = 9;
constexpr int kMeminfoDrops = 8;

std::optional<uint32_t> DropsOf(int fd) {
  uint32_t info[kMeminfoWords] = {};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &size) != 0 ||
      size < sizeof(info)) {
    return std::nullopt;
  }
  return info[kMeminfoDrops];
}

}  // namespace

int64_t MonotonicNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * int64_t{1'000'000'000} + t.tv_nsec;
}

uint32_t ProbeIdentity(int fd) {
  // Cookies are consecutive, so no two sockets of a group share these bits.
  return static_cast<uint32_t>(SocketCookie(fd)) & ~(uint32_t{1} << 31);
}

Prober::Prober(std::vector<int> sockets, int sender,
               const LocalAddress& address, uint32_t probe_word)
    : sockets_(std::move(sockets)),
      sender_(sender),
      to_(ToSocketAddress(address, wire::kRoceUdpPort)),
      probe_word_(probe_word) {
  for (const int fd : sockets_) {
    // Locked sockets refuse it.
    (void)AttachFilter(fd, SO_ATTACH_FILTER,
                       ProbeFilter(probe_word_, ProbeIdentity(fd)));
  }
}

Prober::~Prober() {
  for (const int fd : sockets_) {
    const int unused = 0;
    setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused));
  }
}

bool Prober::SendProbe(uint16_t index, uint32_t identity) const {
  const Probe p{htonl(probe_word_), htonl(index), htonl(identity)};
  return sendto(sender_, &p, sizeof(p), MSG_DONTWAIT, to_.get(), to_.size) ==
         ssize_t{sizeof(p)};
}

std::optional<std::vector<uint32_t>> Prober::Drops() const {
  std::vector<uint32_t> drops;
  for (const int fd : sockets_) {
    const std::optional<uint32_t> d = DropsOf(fd);
    if (!d.has_value()) return std::nullopt;
    drops.push_back(*d);
  }
  return drops;
}

bool Prober::Verify(const std::vector<uint16_t>& indexes,
                    int64_t wait_ns) const {
  const std::optional<std::vector<uint32_t>> before = Drops();
  if (!before.has_value()) return false;
  for (size_t i = 0; i < sockets_.size(); ++i) {
    if (!SendProbe(indexes[i], ProbeIdentity(sockets_[i]))) return false;
  }
  const int64_t until = MonotonicNs() + wait_ns;
  for (size_t i = 0; i < sockets_.size(); ++i) {
    while (DropsOf(sockets_[i]) == (*before)[i]) {
      if (MonotonicNs() > until) return false;
    }
  }
  return true;
}

Prober::Outcome Prober::Continue(Search& search, int64_t wait_ns,
                                 int64_t deadline_ns) const {
  std::optional<std::vector<uint32_t>> drops = Drops();
  if (!drops.has_value()) return Outcome::kFailed;
  const size_t none = sockets_.size();
  search.indexes.resize(none, kNoIndex);
  // The socket whose counter changed since the last call, if any.
  const auto look = [&] {
    size_t hit = none;
    for (size_t i = 0; i < sockets_.size(); ++i) {
      const uint32_t now = DropsOf(sockets_[i]).value_or((*drops)[i]);
      if (now != (*drops)[i]) hit = i;
      (*drops)[i] = now;
    }
    return hit;
  };
  const auto probe = [&](uint16_t index) {
    if (!SendProbe(index, kAnyIdentity)) return none;
    const int64_t until = MonotonicNs() + wait_ns;
    size_t hit;
    do {
      hit = look();
    } while (hit == none && MonotonicNs() < until);
    return hit;
  };
  const int64_t begin_ns = MonotonicNs();
  const int64_t budget_ns = std::max(kSearchBudgetNs, 8 * wait_ns);
  for (; search.next < 2 * kSlots && search.found < none; ++search.next) {
    size_t hit = none;
    for (int attempt = 0; attempt < 2 && hit == none; ++attempt) {
      const int64_t now = MonotonicNs();
      if (search.spent_ns + (now - begin_ns) > budget_ns) {
        return Outcome::kFailed;
      }
      if (now > deadline_ns) {
        search.spent_ns += now - begin_ns;
        return Outcome::kMore;
      }
      hit = probe(search.next);
    }
    if (hit == none) continue;  // a socket of another process
    if (search.indexes[hit] != kNoIndex) return Outcome::kFailed;
    search.indexes[hit] = search.next;
    ++search.found;
  }
  return search.found < none ? Outcome::kFailed : Outcome::kFound;
}

}  // namespace rxe_user::broker
