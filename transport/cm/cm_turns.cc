// Limits the unanswered requests to each peer. A burst of requests would
// overrun the receive buffer of its queue pair 1, and each lost one waits for
// its timeout.
#include <algorithm>
#include <tuple>

#include "transport/cm/connection_manager.h"

namespace transport::cm {

void ConnectionManager::SendInTurn(Connection& c, Time now) {
  if (c.peer->unanswered < config_.max_unanswered) return SendFirst(c, now);
  ++counters_.held_back;
  c.held_back = true;
  c.turn = ++turns_;
  held_back_.Enter(c.by_turn, {c.remote, c.turn, c.id}, c.id);
}

void ConnectionManager::SendFirst(Connection& c, Time now) {
  LeaveTurn(c);
  c.unanswered_since = now;
  unanswered_.Enter(c.by_turn, {c.remote, now, c.id}, c.id);
  ++c.peer->unanswered;
  Queue(c, c.sent);
  StartRetries(c, now);
}

void ConnectionManager::LeaveTurn(Connection& c) {
  if (c.held_back) {
    held_back_.Leave(c.by_turn, {c.remote, c.turn, c.id});
    c.held_back = false;
  } else if (c.unanswered_since != kNever) {
    unanswered_.Leave(c.by_turn, {c.remote, c.unanswered_since, c.id});
    c.unanswered_since = kNever;
    --c.peer->unanswered;
  }
}

void ConnectionManager::SendHeldBack(Time now) {
  auto at = held_back_.begin();
  while (at != held_back_.end()) {
    const wire::IpAddress peer = std::get<0>(at->first);
    EndTurns(peer, now);
    if (!SendHeldBackFor(peer, now)) return;
    at = held_back_.From({peer, kNever, 0});
  }
}

bool ConnectionManager::SendHeldBackFor(const wire::IpAddress& peer, Time now) {
  for (;;) {
    const auto next = held_back_.From({peer, 0, 0});
    if (next == held_back_.end() || std::get<0>(next->first) != peer) {
      return true;
    }
    Connection& c = *Find(next->second);
    if (c.peer->unanswered >= config_.max_unanswered) return true;
    if (!outgoing_.Reserve(1)) return false;
    SendFirst(c, now);
  }
}

void ConnectionManager::SendAllHeldBack(Time now) {
  while (!held_back_.empty() && outgoing_.Reserve(1)) {
    SendFirst(*Find(held_back_.begin()->second), now);
  }
}

Connection* ConnectionManager::OldestTurn(const wire::IpAddress& peer) const {
  const auto oldest = unanswered_.From({peer, 0, 0});
  if (oldest == unanswered_.end() || std::get<0>(oldest->first) != peer) {
    return nullptr;
  }
  return Find(oldest->second);
}

void ConnectionManager::EndTurns(const wire::IpAddress& peer, Time now) {
  for (Connection* c = OldestTurn(peer);
       c != nullptr && c->unanswered_since + config_.unanswered_hold <= now;
       c = OldestTurn(peer)) {
    LeaveTurn(*c);
  }
}

Time ConnectionManager::NextTurn() const {
  Time next = kNever;
  auto at = held_back_.begin();
  while (at != held_back_.end()) {
    const wire::IpAddress peer = std::get<0>(at->first);
    // A request that is already due was held back for lack of memory.
    const bool due =
        Find(at->second)->peer->unanswered < config_.max_unanswered;
    const Connection* const oldest = due ? nullptr : OldestTurn(peer);
    next = std::min(next, oldest == nullptr ? 0
                                            : oldest->unanswered_since +
                                                  config_.unanswered_hold);
    at = held_back_.From({peer, kNever, 0});
  }
  return next;
}

}  // namespace transport::cm
