// How many messages a peer has to answer at a time. A burst of requests would
// overrun the buffer of its queue pair 1, and each that is lost waits for its
// time-out.
#include <algorithm>
#include <iterator>

#include "transport/cm/connection_manager.h"

namespace transport::cm {

void ConnectionManager::SendInTurn(Connection& c, Time now) {
  Turns& turns = turns_[c.remote];
  if (turns.unanswered.size() < config_.max_unanswered) {
    return SendFirst(c, turns, now);
  }
  ++counters_.held_back;
  c.held_back = true;
  turns.held_back.push_back(c.id);
  crowded_.insert(c.remote);
}

void ConnectionManager::SendFirst(Connection& c, Turns& turns, Time now) {
  c.held_back = false;
  c.unanswered_since = now;
  turns.unanswered.insert({now, c.id});
  Queue(c.local, c.remote, c.sent);
  StartRetries(c, now);
}

void ConnectionManager::LeaveTurn(Connection& c) {
  if (c.unanswered_since == kNever && !c.held_back) return;
  const auto found = turns_.find(c.remote);
  Turns& turns = found->second;
  turns.unanswered.erase({c.unanswered_since, c.id});
  c.unanswered_since = kNever;
  if (c.held_back) std::erase(turns.held_back, c.id);
  c.held_back = false;
  if (turns.held_back.empty()) crowded_.erase(c.remote);
  if (turns.unanswered.empty() && turns.held_back.empty()) turns_.erase(found);
}

void ConnectionManager::SendHeldBack(Time now) {
  for (auto peer = crowded_.begin(); peer != crowded_.end();) {
    Turns& turns = turns_[*peer];
    // Those that have had their time make room, and go by their time-outs.
    while (!turns.unanswered.empty() &&
           turns.unanswered.begin()->first + config_.unanswered_hold <= now) {
      Find(turns.unanswered.begin()->second)->unanswered_since = kNever;
      turns.unanswered.erase(turns.unanswered.begin());
    }
    while (!turns.held_back.empty() &&
           turns.unanswered.size() < config_.max_unanswered) {
      Connection& c = *Find(turns.held_back.front());
      turns.held_back.pop_front();
      SendFirst(c, turns, now);
    }
    peer = turns.held_back.empty() ? crowded_.erase(peer) : std::next(peer);
  }
}

Time ConnectionManager::NextTurn() const {
  Time next = kNever;
  for (const wire::IpAddress& peer : crowded_) {
    const auto& unanswered = turns_.at(peer).unanswered;
    const Time due = unanswered.empty()
                         ? 0
                         : unanswered.begin()->first + config_.unanswered_hold;
    next = std::min(next, due);
  }
  return next;
}

}  // namespace transport::cm
