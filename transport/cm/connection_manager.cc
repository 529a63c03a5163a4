// Parts shared by all files: connections, their indices and their ends. The
// application's calls are in cm_calls.cc.
#include "transport/cm/connection_manager.h"

#include <algorithm>
#include <utility>

namespace transport::cm {
namespace {

bool IsHalfOpen(State state) {
  return state == State::kReqReceived || state == State::kMraReqSent ||
         state == State::kRepSent || state == State::kRtuWait ||
         state == State::kSidrReqReceived;
}

// Whether this side has sent a request that the peer must answer.
bool AwaitsAnswer(State state) {
  return state == State::kReqSent || state == State::kSidrReqSent ||
         state == State::kDreqSent;
}

// Preallocated outputs: enough for any input.
constexpr size_t kOutputsKept = 8;

bool WaitsForApplication(State state) {
  return state == State::kReqReceived || state == State::kMraReqSent ||
         state == State::kSidrReqReceived;
}

}  // namespace

ConnectionManager::ConnectionManager(const Config& config, RandomSource* random)
    : config_(config),
      random_(random),
      answers_(uint64_t{random->Next32()} << 32 | random->Next32(),
               config.answers_per_second, config.answer_burst),
      retransmissions_(uint64_t{random->Next32()} << 32 | random->Next32(),
                       config.retransmissions_per_second,
                       config.retransmission_burst),
      outgoing_(kOutputsKept),
      events_(kOutputsKept) {}

Connection* ConnectionManager::Find(CmId id) const {
  const auto found = connections_.find(id);
  return found == connections_.end() ? nullptr : found->second.get();
}

Connection* ConnectionManager::FindOwned(CmId id) const {
  Connection* const c = Find(id);
  return c != nullptr && c->owned ? c : nullptr;
}

std::vector<ConnectedPeer> ConnectionManager::Connected() const {
  std::vector<ConnectedPeer> out;
  for (const auto& [id, c] : connections_) {
    if (const auto peer = Connected(id)) out.push_back(*peer);
  }
  return out;
}

std::optional<ConnectedPeer> ConnectionManager::Connected(CmId id) const {
  const Connection* const c = Find(id);
  if (c == nullptr || c->state < State::kRepSent ||
      c->state > State::kEstablished || c->via.port != 0) {
    return std::nullopt;
  }
  return ConnectedPeer{.local = c->local,
                       .remote = c->remote,
                       .id = id,
                       .remote_comm_id = c->remote_comm_id,
                       .remote_qpn = c->remote_qpn};
}

std::optional<wire::IpAddress> ConnectionManager::PeerOf(CmId id) const {
  const Connection* const c = Find(id);
  return c == nullptr ? std::nullopt : std::optional(c->remote);
}

bool ConnectionManager::Uses(const wire::IpAddress& local) const {
  return std::ranges::any_of(
      connections_, [&](const auto& c) { return c.second->local == local; });
}

std::optional<State> ConnectionManager::state(CmId id) const {
  const Connection* const c = FindOwned(id);
  if (c == nullptr) return std::nullopt;
  return c->state;
}

Connection& ConnectionManager::New(const wire::IpAddress& local,
                                   const wire::IpAddress& remote, Time now) {
  CmId id;
  do {
    id = random_->Next32();
    if (config_.id_prefix.has_value()) {
      id = uint32_t{*config_.id_prefix} << 20 | (id & 0xfffff);
    }
  } while (id == 0 || connections_.contains(id));
  auto c = std::make_unique<Connection>();
  c->id = id;
  c->local = local;
  c->remote = remote;
  c->started = now;
  c->transaction_id = uint64_t{random_->Next32()} << 32 | id;
  decltype(peers_) fresh;
  fresh.try_emplace(remote);
  Connection& made = *connections_.try_emplace(id, std::move(c)).first->second;
  // No allocation from here on.
  peers_.merge(fresh);
  made.peer = &peers_.find(remote)->second;
  ++made.peer->connections;
  return made;
}

void ConnectionManager::KeepDestroyed(Connection& c, Time now) {
  c.destroyed_at = now;
  destroyed_.Enter(c.by_destroyed, {now, c.id}, c.id);
  if (++destroyed_count_ > config_.max_destroyed)
    End(*Find(destroyed_.begin()->second));
}

void ConnectionManager::Remove(Connection& c) {
  if (c.by_destroyed.in_index()) {
    destroyed_.Leave(c.by_destroyed, {c.destroyed_at, c.id});
    --destroyed_count_;
  }
  if (--c.peer->connections == 0) peers_.erase(c.remote);
  connections_.erase(c.id);
}

void ConnectionManager::Enter(Connection& c, State state) {
  if (state != State::kRepSent && state != State::kRtuWait) {
    SetYielding(c, kNever);
  }
  if (!AwaitsAnswer(state)) {
    LeaveTurn(c);
    c.regular_deadline = kNever;
  }
  c.state = state;
  // A withdrawn request that was seen still counts. Otherwise a peer could get
  // around the limits and the backlog by withdrawing each request.
  SetHalfOpen(c, IsHalfOpen(state) || (c.withdrawn && c.seen));
  const bool unanswered = WaitsForApplication(state) || c.withdrawn;
  if (c.waiting != (unanswered && !c.seen)) {
    c.waiting = !c.waiting;
    // The listener may be gone.
    if (Listener* const listener = listeners_.Find(c.listener)) {
      listener->waiting += c.waiting ? 1 : -1;
    }
  }
}

void ConnectionManager::SetHalfOpen(Connection& c, bool half_open) {
  if (c.half_open == half_open) return;
  c.half_open = half_open;
  half_open_ += half_open ? 1 : -1;
  c.peer->half_open += half_open ? 1 : -1;
}

void ConnectionManager::SetRemembered(Connection& c, bool remembered) {
  if (c.remembered == remembered) return;
  c.remembered = remembered;
  remembered_ += remembered ? 1 : -1;
}

void ConnectionManager::SetDeadline(Connection& c, Time deadline) {
  deadlines_.Leave(c.by_deadline, {c.deadline, c.id});
  c.deadline = deadline;
  if (deadline != kNever) {
    deadlines_.Enter(c.by_deadline, {deadline, c.id}, c.id);
  }
}

void ConnectionManager::SetYielding(Connection& c, Time at) {
  yielding_.Leave(c.by_yielding, {c.yields_at, c.id});
  yielding_of_peer_.Leave(c.by_yielding_of_peer, {c.remote, c.yields_at, c.id});
  c.yields_at = at;
  if (at == kNever) return;
  yielding_.Enter(c.by_yielding, {at, c.id}, c.id);
  yielding_of_peer_.Enter(c.by_yielding_of_peer, {c.remote, at, c.id}, c.id);
}

Connection* ConnectionManager::OldestYielding(Time now) const {
  const auto first = yielding_.begin();
  if (first == yielding_.end() || first->first.first > now) return nullptr;
  return Find(first->second);
}

Connection* ConnectionManager::OldestYielding(const wire::IpAddress& peer,
                                              Time now) const {
  const auto first = yielding_of_peer_.From({peer, 0, 0});
  if (first == yielding_of_peer_.end() || std::get<0>(first->first) != peer ||
      std::get<1>(first->first) > now) {
    return nullptr;
  }
  return Find(first->second);
}

Time ConnectionManager::NextTimeout() const {
  const Time deadline =
      deadlines_.empty() ? kNever : deadlines_.begin()->first.first;
  return std::min(deadline, NextTurn());
}

bool ConnectionManager::KeepRemoteId(Connection& c) {
  return by_remote_id_.Enter(
      c.by_remote_id, {c.remote, c.remote_ca_guid, c.remote_comm_id}, c.id);
}

bool ConnectionManager::KeepRemoteQp(Connection& c) {
  if (c.remote_qpn == 0) return true;
  return by_remote_qp_.Enter(c.by_remote_qp,
                             {c.remote, c.remote_ca_guid, c.remote_qpn}, c.id);
}

bool ConnectionManager::KeepLocalQpn(Connection& c, uint32_t qpn) {
  qpn &= wire::kQpnMask;
  c.local_qpn = qpn;
  if (qpn == 0) return true;
  return by_local_qpn_.Enter(c.by_local_qpn, {c.local_ca_guid, qpn}, c.id);
}

void ConnectionManager::ForgetQps(Connection& c) {
  by_remote_qp_.Leave(c.by_remote_qp,
                      {c.remote, c.remote_ca_guid, c.remote_qpn});
  by_local_qpn_.Leave(c.by_local_qpn, {c.local_ca_guid, c.local_qpn});
}

void ConnectionManager::ForgetAll(Connection& c) {
  ForgetQps(c);
  by_remote_id_.Leave(c.by_remote_id,
                      {c.remote, c.remote_ca_guid, c.remote_comm_id});
  by_sidr_.Leave(c.by_sidr, {c.remote, c.remote_comm_id, c.service_id});
}

void ConnectionManager::Emit(EventKind kind, const Connection& c,
                             const wire::CmView* mad) {
  if (!c.owned) return;
  Event& event = events_.Push();
  event.kind = kind;
  event.id = c.id;
  event.listener = c.listener;
  event.local = c.local;
  event.remote = c.remote;
  if (mad != nullptr) {
    event.has_mad = true;
    std::copy(mad->bytes().begin(), mad->bytes().end(), event.mad.begin());
  }
}

void ConnectionManager::End(Connection& c) {
  Enter(c, State::kIdle);
  SetDeadline(c, kNever);
  SetRemembered(c, false);
  ForgetAll(c);
  c.sent_attribute.reset();
  if (!c.owned) Remove(c);
}

void ConnectionManager::EnterTimeWait(Connection& c, Time hold, Time now) {
  Enter(c, State::kTimeWait);
  SetDeadline(c, now + hold);
}

void ConnectionManager::EnterRemembered(Connection& c, Time hold, Time now) {
  if (remembered_ >= config_.max_half_open) return End(c);
  SetRemembered(c, true);
  ForgetQps(c);
  EnterTimeWait(c, hold, now);
}

void ConnectionManager::EnterRefused(Connection& c, Time now) {
  EnterRemembered(
      c, std::min(c.refused_hold + c.mra_wait, config_.longest_refused_hold),
      now);
}

void ConnectionManager::EnterWithdrawn(Connection& c, Time now) {
  c.withdrawn = true;
  EnterRemembered(c, c.time_wait, now);
}

void ConnectionManager::LeaveWithdrawn(Connection& c) {
  if (std::exchange(c.withdrawn, false)) Enter(c, c.state);
}

bool ConnectionManager::PollTransmit(OutgoingMad* out) {
  return outgoing_.Pop(out);
}

bool ConnectionManager::PollEvent(Event* out) { return events_.Pop(out); }

}  // namespace transport::cm
