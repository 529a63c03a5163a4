#include "rxe_user/base/nat_routes.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/only_one.h"
#include "rxe_user/base/settings.h"
#include "rxe_user/base/warn_once.h"

namespace rxe_user {
namespace {

constexpr size_t kMostOfEach = 4096;
// All of them are tried for each datagram.
constexpr size_t kMostPeers = 64;

class Routes {
 public:
  void Learn(const wire::IpAddress& peer, uint32_t qpn,
             const transport::Via& via) {
    const std::lock_guard lock(mutex_);
    if (recent_.size() >= kMostOfEach) {
      older_ = std::move(recent_);
      recent_.clear();
    }
    recent_[{peer, qpn}] = via;
  }
  transport::Via Find(const wire::IpAddress& peer, uint32_t qpn) {
    const std::lock_guard lock(mutex_);
    for (const Map* map : {&recent_, &older_}) {
      const auto found = map->find({peer, qpn});
      if (found != map->end()) return found->second;
    }
    return {};
  }

  void Note(const wire::IpAddress& peer) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find(peers_.begin(), peers_.end(), peer);
    if (found == peers_.end()) {
      if (peers_.size() == kMostPeers) peers_.pop_back();
      peers_.insert(peers_.begin(), peer);
    }
  }
  std::vector<wire::IpAddress> Noted() {
    const std::lock_guard lock(mutex_);
    return peers_;
  }

 private:
  using Map = std::map<std::pair<wire::IpAddress, uint32_t>, transport::Via>;
  ForkSafeMutex mutex_;
  Map recent_;
  Map older_;
  std::vector<wire::IpAddress> peers_;  // newest first
};

}  // namespace

bool NatMode() {
  static const bool on = IsOn("RXE_USER_NAT");
  return on;
}

void LearnRoute(const wire::IpAddress& peer, uint32_t qpn,
                const transport::Via& via) {
  try {
    OnlyOne<Routes>().Learn(peer, qpn, via);
  } catch (const std::bad_alloc&) {
    // Learned from the next packet.
  }
}

transport::Via FindRoute(const wire::IpAddress& peer, uint32_t qpn) {
  return NatMode() ? OnlyOne<Routes>().Find(peer, qpn) : transport::Via{};
}

void NotePeer(const wire::IpAddress& peer) {
  if (!NatMode() || peer.is_v4()) return;
  OnlyOne<Routes>().Note(peer);
}

std::vector<wire::IpAddress> NotedPeers() { return OnlyOne<Routes>().Noted(); }

void WarnOfTranslation(const wire::IpAddress& peer, uint16_t port,
                       const transport::Via& seen) {
  const std::string own = peer.ToString();
  const std::string line =
      "packets of " + own +
      (seen.address == peer
           ? " are sent from UDP port " + std::to_string(port) +
                 " and arrive from port " + std::to_string(seen.port)
           : " arrive from " + seen.address.ToString()) +
      ": an address translator (NAT) makes their ICRC wrong, so they are "
      "dropped. Set RXE_USER_NAT=1 at both ends, or give the device "
      "there its public address (docs/nat.md)";
  WarnOnceAbout("translated " + own, line);
}

}  // namespace rxe_user
