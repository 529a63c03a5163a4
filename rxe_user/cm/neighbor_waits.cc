#include "rxe_user/cm/neighbor_waits.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rxe_user/base/public_addresses.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/ports/udp_socket.h"

namespace rxe_user {
namespace {

// Makes the kernel look up the next hop, by sending a datagram with hop limit 1
// to the discard port (RFC 863), which no host processes.
bool TriggerLookup(const LocalAddress& local, const wire::IpAddress& remote) {
  constexpr uint16_t kDiscardPort = 9;
  const bool v4 = local.address.is_v4();
  const UniqueFd fd(
      ::socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return false;
  const int hops = 1;
  (void)::setsockopt(fd.get(), v4 ? IPPROTO_IP : IPPROTO_IPV6,
                     v4 ? IP_TTL : IPV6_UNICAST_HOPS, &hops, sizeof(hops));
  SocketAddress from;
  socklen_t size =
      ToSocketAddress(BoundAddress(local.address), 0, local.scope_id, &from);
  if (::bind(fd.get(), &from.any, size) != 0) return false;
  SocketAddress to;
  size = ToSocketAddress(remote, kDiscardPort, local.scope_id, &to);
  return ::sendto(fd.get(), nullptr, 0, MSG_DONTWAIT, &to.any, size) >= 0;
}

}  // namespace

NeighborWaits::NeighborWaits() : ForkGuard(ForkLevel::kDescriptors) {
  EnterForkGuard();
}

NeighborWaits::~NeighborWaits() { LeaveForkGuard(); }

void NeighborWaits::AfterForkInChild() {
  events_.AbandonInChild();
  // Replaced, not destroyed: the handlers belong to the parent.
  new (&waiting_) List;
  mutex_.unlock();
}

NeighborWait NeighborWaits::Begin(const LocalAddress& local,
                                  const wire::IpAddress& remote,
                                  Clock::time_point deadline,
                                  std::shared_ptr<NeighborHandler> handler) {
  if (remote == local.address || remote.is_multicast()) return 0;
  const std::optional<Neighbor> neighbor = NeighborOn(Bound(local), remote);
  if (!neighbor.has_value()) return 0;
  std::optional<NeighborState> state = StateOfNeighbor(*neighbor);
  if (!state.has_value() || *state == NeighborState::kKnown ||
      !AsksForNeighbors(neighbor->interface)) {
    return 0;
  }
  List one;
  one.push_back({.name = 0,
                 .neighbor = *neighbor,
                 .deadline = deadline,
                 .handler = std::move(handler)});
  const std::lock_guard lock(mutex_);
  if (waiting_.empty() && !events_.Subscribe()) return 0;
  // A neighbor that failed before is looked up again.
  state.reset();
  if (TriggerLookup(local, remote)) state = StateOfNeighbor(*neighbor);
  if (!state.has_value() || *state == NeighborState::kKnown) {
    if (waiting_.empty()) events_.Unsubscribe();
    return 0;
  }
  one.front().name = ++last_;
  waiting_.splice(waiting_.end(), one);
  return last_;
}

NeighborWaits::List::iterator NeighborWaits::Find(NeighborWait wait) {
  return std::ranges::find(waiting_, wait, &Waiting::name);
}

void NeighborWaits::Cancel(NeighborWait wait) {
  List ended;  // destroyed without the lock held
  const std::lock_guard lock(mutex_);
  const auto found = Find(wait);
  if (found == waiting_.end()) return;
  End(found, 0, &ended);
  if (waiting_.empty()) events_.Unsubscribe();
}

int NeighborWaits::fd() const {
  const std::lock_guard lock(mutex_);
  return waiting_.empty() ? -1 : events_.fd();
}

NeighborWaits::Clock::time_point NeighborWaits::time() const {
  const std::lock_guard lock(mutex_);
  Clock::time_point first = Clock::time_point::max();
  for (const Waiting& waiting : waiting_) {
    first = std::min(first, waiting.deadline);
  }
  return first;
}

void NeighborWaits::Run() {
  List ended;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) return;
    ReadEvents(&ended);
    Expire(&ended);
    if (waiting_.empty()) events_.Unsubscribe();
  }
  for (const Waiting& waiting : ended) {
    waiting.handler->OnNeighbor(waiting.error);
  }
}

void NeighborWaits::End(List::iterator waiting, int error, List* ended) {
  waiting->error = error;
  ended->splice(ended->end(), waiting_, waiting);
}

void NeighborWaits::OnState(const Neighbor& neighbor, NeighborState state,
                            List* ended) {
  if (state == NeighborState::kUnknown) return;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto waiting = at++;
    if (waiting->neighbor != neighbor) continue;
    End(waiting, state == NeighborState::kKnown ? 0 : EHOSTUNREACH, ended);
  }
}

void NeighborWaits::ReadEvents(List* ended) {
  const bool complete =
      events_.Read([&](const Neighbor& neighbor, NeighborState state) {
        OnState(neighbor, state, ended);
      });
  if (!complete) LookUp(ended);
}

void NeighborWaits::LookUp(List* ended) {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto waiting = at++;
    const auto state = StateOfNeighbor(waiting->neighbor);
    if (state == NeighborState::kKnown) End(waiting, 0, ended);
    if (state == NeighborState::kFailed) End(waiting, EHOSTUNREACH, ended);
  }
}

// Checks the state once more, since an event may have been lost.
void NeighborWaits::Expire(List* ended) {
  const Clock::time_point now = Clock::now();
  const auto is_late = [now](const Waiting& w) { return w.deadline <= now; };
  if (std::ranges::none_of(waiting_, is_late)) return;
  LookUp(ended);
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto waiting = at++;
    if (is_late(*waiting)) End(waiting, ETIMEDOUT, ended);
  }
}

}  // namespace rxe_user
