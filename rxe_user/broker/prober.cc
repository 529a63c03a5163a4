#include "rxe_user/broker/prober.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "rxe_user/base/clock.h"
#include "rxe_user/broker/steering.h"
#include "wire/packet.h"

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif

namespace rxe_user::broker {
namespace {

// A search fails after the first time, plus the second one for each pair of
// sockets.
constexpr int64_t kSearchBudgetNs = 100'000'000;
constexpr int64_t kPairBudgetNs = 2000;
constexpr size_t kProbesAtOnce = 128;
// The range of indexes that a socket may have: others in the group may be
// foreign.
constexpr uint16_t kMaxIndexes = 2 * kSlots;
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

// The clock is the thread's CPU time, so preemption does not count.
int64_t ThreadNs() { return ClockNs(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace

uint32_t ProbeIdentity(int fd) {
  // Cookies are consecutive, so no two sockets of a group share these bits.
  return static_cast<uint32_t>(SocketCookie(fd)) & ~(uint32_t{1} << 31);
}

Prober::Prober(std::vector<int> sockets, UniqueFd sender,
               const LocalAddress& address, uint32_t probe_word)
    : sockets_(std::move(sockets)),
      sender_(std::move(sender)),
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
  return sendto(sender_.get(), &p, sizeof(p), MSG_DONTWAIT, to_.get(),
                to_.size) == ssize_t{sizeof(p)};
}

// Tries the next kProbesAtOnce guesses. The queue of a busy processor may hold
// no more datagrams.
void Prober::Verify(Search& search, int64_t wait_ns) const {
  const size_t begin = search.verified;
  const size_t end = std::min(begin + kProbesAtOnce, sockets_.size());
  std::vector<std::optional<uint32_t>> before;
  for (size_t i = begin; i < end; ++i) before.push_back(DropsOf(sockets_[i]));
  for (size_t i = begin; i < end; ++i) {
    if (!SendProbe(search.indexes[i], ProbeIdentity(sockets_[i]))) {
      before[i - begin] = std::nullopt;
    }
  }
  const int64_t until = MonotonicNs() + wait_ns;
  for (size_t i = begin; i < end; ++i) {
    std::optional<uint32_t>& drops = before[i - begin];
    while (drops.has_value() && DropsOf(sockets_[i]) == drops) {
      if (MonotonicNs() > until) drops = std::nullopt;
    }
    if (drops.has_value()) continue;
    search.indexes[i] = kNoIndex;
    search.all_right = false;
  }
  search.verified = end;
}

Prober::Outcome Prober::Continue(Search& search, int64_t wait_ns,
                                 int64_t deadline_ns) const {
  while (search.verified < sockets_.size()) {
    if (MonotonicNs() > deadline_ns) return Outcome::kMore;
    Verify(search, wait_ns);
  }
  struct Open {
    size_t socket;
    uint32_t drops;
  };
  std::vector<Open> open;  // not found yet
  std::vector<bool> taken(kMaxIndexes);
  for (size_t i = 0; i < sockets_.size(); ++i) {
    const uint16_t index = search.indexes[i];
    if (index != kNoIndex) {
      if (index < kMaxIndexes) taken[index] = true;
      continue;
    }
    const std::optional<uint32_t> drops = DropsOf(sockets_[i]);
    if (!drops.has_value()) return Outcome::kFailed;
    open.push_back({i, *drops});
  }
  // The socket whose drop counter has changed since the last call, if any.
  const auto look = [&] {
    auto hit = open.end();
    for (auto it = open.begin(); it != open.end(); ++it) {
      const uint32_t now = DropsOf(sockets_[it->socket]).value_or(it->drops);
      if (now != it->drops) hit = it;
      it->drops = now;
    }
    return hit;
  };
  const auto probe = [&](uint16_t index) {
    if (!SendProbe(index, kAnyIdentity)) return open.end();
    const int64_t until = MonotonicNs() + wait_ns;
    auto hit = look();
    while (hit == open.end() && MonotonicNs() < until) hit = look();
    return hit;
  };
  const int64_t begin_ns = ThreadNs();
  const auto pairs = static_cast<int64_t>(open.size() * open.size());
  const int64_t budget_ns =
      std::max(kSearchBudgetNs, 8 * wait_ns) + pairs * kPairBudgetNs;
  for (; search.next < kMaxIndexes && !open.empty(); ++search.next) {
    if (taken[search.next]) continue;
    auto hit = open.end();
    for (int attempt = 0; attempt < 2 && hit == open.end(); ++attempt) {
      const int64_t spent = search.spent_ns + ThreadNs() - begin_ns;
      if (spent > budget_ns) return Outcome::kFailed;
      if (MonotonicNs() > deadline_ns) {
        search.spent_ns = spent;
        return Outcome::kMore;
      }
      hit = probe(search.next);
    }
    if (hit == open.end()) continue;  // a socket of another process
    search.indexes[hit->socket] = search.next;
    open.erase(hit);
  }
  return open.empty() ? Outcome::kFound : Outcome::kFailed;
}

}  // namespace rxe_user::broker
