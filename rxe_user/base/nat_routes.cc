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

constexpr size_t kRecentEntries = 4096;
// A limit, since all of them are tried for each datagram.
constexpr size_t kMaxPeers = 64;

// Keeps the newest entries: at least kRecentEntries, at most twice as many.
template <typename Key, typename Value>
class Recent {
 public:
  void Set(const Key& key, const Value& value) {
    if (recent_.size() >= kRecentEntries) {
      older_ = std::move(recent_);
      recent_.clear();
    }
    recent_[key] = value;
  }
  std::optional<Value> Find(const Key& key) const {
    for (const auto* map : {&recent_, &older_}) {
      const auto found = map->find(key);
      if (found != map->end()) return found->second;
    }
    return std::nullopt;
  }

 private:
  std::map<Key, Value> recent_;
  std::map<Key, Value> older_;
};

class Routes {
 public:
  void Learn(const wire::IpAddress& peer, uint32_t qpn,
             const transport::Via& via) {
    const std::lock_guard lock(mutex_);
    routes_.Set({peer, qpn}, via);
  }
  transport::Via Find(const wire::IpAddress& peer, uint32_t qpn) {
    const std::lock_guard lock(mutex_);
    return routes_.Find({peer, qpn}).value_or(transport::Via{});
  }

  void LearnSender(const transport::Via& seen, const wire::IpAddress& sender) {
    const std::lock_guard lock(mutex_);
    senders_.Set({seen.address, seen.port}, sender);
  }
  std::optional<wire::IpAddress> SenderAt(const transport::Via& seen) {
    const std::lock_guard lock(mutex_);
    return senders_.Find({seen.address, seen.port});
  }

  void Note(const wire::IpAddress& peer) {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(peers_, peer);
    if (found == peers_.end()) {
      if (peers_.size() == kMaxPeers) peers_.pop_back();
      peers_.insert(peers_.begin(), peer);
    }
  }
  std::vector<wire::IpAddress> Noted() {
    const std::lock_guard lock(mutex_);
    return peers_;
  }

 private:
  ForkSafeMutex mutex_;
  Recent<std::pair<wire::IpAddress, uint32_t>, transport::Via> routes_;
  Recent<std::pair<wire::IpAddress, uint16_t>, wire::IpAddress> senders_;
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
    // The next packet teaches it again.
  }
}

transport::Via FindRoute(const wire::IpAddress& peer, uint32_t qpn) {
  return NatMode() ? OnlyOne<Routes>().Find(peer, qpn) : transport::Via{};
}

void LearnSender(const transport::Via& seen, const wire::IpAddress& sender) {
  try {
    OnlyOne<Routes>().LearnSender(seen, sender);
  } catch (const std::bad_alloc&) {
    // The next packet teaches it again.
  }
}

std::optional<wire::IpAddress> SenderAt(const transport::Via& seen) {
  return OnlyOne<Routes>().SenderAt(seen);
}

void NotePeer(const wire::IpAddress& peer) {
  if (!NatMode() || peer.is_v4()) return;
  OnlyOne<Routes>().Note(peer);
}

std::vector<wire::IpAddress> PossibleSenders(const transport::Via& seen) {
  Routes& routes = OnlyOne<Routes>();
  try {
    std::vector<wire::IpAddress> senders;
    if (!seen.address.is_v4()) senders = routes.Noted();
    if (const auto sender = routes.SenderAt(seen)) {
      senders.insert(senders.begin(), *sender);
    }
    return senders;
  } catch (const std::bad_alloc&) {
    return {};  // the datagram is dropped
  }
}

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
