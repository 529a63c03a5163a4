// Received MADs of connections, by state: 12.9.7.
#include <algorithm>
#include <new>

#include "transport/cm/connection_manager.h"
#include "wire/bytes.h"

namespace transport::cm {

using wire::CmAnswered;
using wire::CmRejectReason;

namespace {

// Maximum events of one message: a dropped older request, and the new one.
constexpr size_t kMaxEvents = 2;

}  // namespace

void ConnectionManager::OnMad(const IncomingMad& in, Time now) {
  wire::CmView mad;
  if (wire::CmView::Parse(in.bytes, &mad) != wire::CmParseError::kOk) {
    ++counters_.malformed;
    return;
  }
  counters_.rx_msgs.Count(mad.attribute());
  if (!events_.Reserve(kMaxEvents)) {
    ++counters_.no_memory;
    return;
  }
  try {
    OnMessage(in, mad, now);
  } catch (const std::bad_alloc&) {
    // There is no memory for a new connection.
    ++counters_.no_memory;
  }
  SendHeldBack(now);
}

void ConnectionManager::OnMessage(const IncomingMad& in,
                                  const wire::CmView& mad, Time now) {
  switch (mad.attribute()) {
    case wire::CmAttribute::kReq:
      return OnReq(in, mad, now);
    case wire::CmAttribute::kMra:
      return OnMra(in, mad, now);
    case wire::CmAttribute::kRej:
      return OnRej(in, mad, now);
    case wire::CmAttribute::kRep:
      return OnRep(in, mad, now);
    case wire::CmAttribute::kRtu:
      return OnRtu(in, mad, now);
    case wire::CmAttribute::kDreq:
      return OnDreq(in, mad, now);
    case wire::CmAttribute::kDrep:
      return OnDrep(in, mad, now);
    case wire::CmAttribute::kSidrReq:
      return OnSidrReq(in, mad, now);
    case wire::CmAttribute::kSidrRep:
      return OnSidrRep(in, mad);
    case wire::CmAttribute::kLap:
      return OnLap(in, mad);
    case wire::CmAttribute::kApr:
      ++counters_.wrong_state;  // we never send a LAP
      return;
  }
}

Connection* ConnectionManager::FindFor(const IncomingMad& in,
                                       const wire::CmView& mad) {
  Connection* const c = Find(mad.remote_comm_id());
  if (c == nullptr || c->state == State::kIdle) {
    ++counters_.unknown_id;
    return nullptr;
  }
  if (c->remote != in.remote || c->local != in.local ||
      (c->remote_comm_id != 0 && c->remote_comm_id != mad.local_comm_id())) {
    ++counters_.wrong_peer;
    return nullptr;
  }
  c->via = in.via;
  return c;
}

// --- REQ.

void ConnectionManager::OnReq(const IncomingMad& in, const wire::CmView& mad,
                              Time now) {
  const wire::CmReq req = mad.req();
  if (const CmId known = by_remote_id_.Find(
          {in.remote, req.local_ca_guid, req.local_comm_id})) {
    return OnDuplicateReq(*Find(known), in, mad, req, now);
  }
  const bool is_service = req.service == wire::CmService::kRc ||
                          req.service == wire::CmService::kUc || IsXrc(req);
  if (!is_service) {
    return AnswerRej(in, mad, CmAnswered::kReq,
                     CmRejectReason::kInvalidServiceType, now);
  }
  if (const CmId known =
          by_remote_qp_.Find({in.remote, req.local_ca_guid, req.local_qpn})) {
    // The peer has forgotten an older connection of this queue pair (12.9.8.3).
    ++counters_.stale;
    AnswerRej(in, mad, CmAnswered::kReq, CmRejectReason::kStaleConnection, now);
    return DisconnectStale(known, in, now);
  }
  OnNewReq(in, mad, req, now);
}

void ConnectionManager::DisconnectStale(CmId id, const IncomingMad& in,
                                        Time now) {
  Connection* const old = Find(id);
  if (old == nullptr || old->state != State::kEstablished) return;
  // The sender of a translated message is the one that it names, so a message
  // from another host may name any sender.
  if ((old->via.port == 0) != (in.via.port == 0) ||
      old->via.address != in.via.address) {
    return;
  }
  SendDreq(*old, {}, now);
}

void ConnectionManager::OnDuplicateReq(Connection& c, const IncomingMad& in,
                                       const wire::CmView& mad,
                                       const wire::CmReq& req, Time now) {
  if (c.remote_qpn != req.local_qpn) {
    return AnswerRej(in, mad, CmAnswered::kReq,
                     CmRejectReason::kDuplicateLocalCommId, now);
  }
  counters_.rx_duplicates.Count(mad.attribute());
  switch (c.state) {
    case State::kReqReceived:
      c.service_timeout = config_.mra_service_timeout;
      Enter(c, State::kMraReqSent);
      return SendMra(c);
    case State::kMraReqSent:
      return SendMra(c);
    case State::kRepSent:
      return Retransmit(c);
    case State::kTimeWait:
      if (RepeatRej(c, in, now)) return;
      return AnswerRej(in, mad, CmAnswered::kReq,
                       CmRejectReason::kStaleConnection, now);
    default:
      return;  // the peer is ahead of this state
  }
}

bool ConnectionManager::HasRoom(Listener& listener,
                                const wire::IpAddress& remote, Time now) {
  if (listener.waiting >= listener.options.backlog) {
    ++counters_.backlog_full;
    return false;
  }
  const auto peer = peers_.find(remote);
  const bool peer_is_full =
      peer != peers_.end() &&
      peer->second.half_open >= config_.max_half_open_for_peer;
  if (!peer_is_full && half_open_ < config_.max_half_open) return true;
  Connection* const oldest =
      peer_is_full ? OldestYielding(remote, now) : OldestYielding(now);
  if (oldest == nullptr) {
    ++counters_.half_open_full;
    return false;
  }
  ++counters_.half_open_given_up;
  KeepTimeoutRej(*oldest);
  if (MayRetransmit(*oldest, now)) {
    Queue(*oldest, oldest->sent);
  }
  Emit(EventKind::kUnreachable, *oldest, nullptr);
  End(*oldest);
  return true;
}

void ConnectionManager::OnNewReq(const IncomingMad& in, const wire::CmView& mad,
                                 const wire::CmReq& req, Time now) {
  Listener* const listener = listeners_.Match(req.service_id, in.local);
  if (listener == nullptr) {
    ++counters_.no_listener;
    return AnswerRej(in, mad, CmAnswered::kReq,
                     CmRejectReason::kInvalidServiceId, now);
  }
  // Otherwise the peer retransmits; a slot may be free by then.
  if (!HasRoom(*listener, in.remote, now)) return;
  Connection& c = New(in.local, in.remote, now);
  c.via = in.via;
  c.listener = listener->id;
  c.transaction_id = mad.transaction_id();
  c.remote_comm_id = req.local_comm_id;
  c.remote_ca_guid = req.local_ca_guid;
  c.remote_qpn = req.local_qpn;
  c.xrc = IsXrc(req);
  c.service_id = req.service_id;
  // The peer's ACK timeout: a round trip and its processing time.
  const Time ack_timeout = wire::CmTimeNanos(req.primary.local_ack_timeout);
  c.round_trip = std::min(ack_timeout, config_.longest_wait);
  c.wait =
      std::clamp(wire::CmTimeNanos(req.local_cm_response_timeout) + ack_timeout,
                 config_.shortest_wait, config_.longest_wait);
  c.time_wait = std::min(ack_timeout, config_.longest_time_wait);
  c.max_retries = req.max_cm_retries;
  c.refused_hold = std::min(
      (c.max_retries + 1) *
          (wire::CmTimeNanos(req.remote_cm_response_timeout) + ack_timeout),
      config_.longest_refused_hold);
  KeepRemoteId(c);
  KeepRemoteQp(c);
  Enter(c, State::kReqReceived);
  Emit(EventKind::kRequest, c, &mad);
}

// --- MRA.

void ConnectionManager::OnMra(const IncomingMad& in, const wire::CmView& mad,
                              Time now) {
  Connection* const c = FindFor(in, mad);
  if (c == nullptr) return;
  const wire::CmMra mra = mad.mra();
  const Time service = std::min(wire::CmTimeNanos(mra.service_timeout),
                                config_.longest_service_wait);
  // Once per try, so the number of tries limits the total wait.
  if (c->state == State::kReqSent && mra.answered == CmAnswered::kReq) {
    Enter(*c, State::kRepWait);
  } else if (c->state == State::kRepSent && mra.answered == CmAnswered::kRep) {
    Enter(*c, State::kRtuWait);
    SetYielding(*c, std::min(now + service + c->round_trip,
                             c->replied + config_.longest_yield));
  } else {
    ++counters_.wrong_state;
    return;
  }
  SetDeadline(*c, now + std::max(service + c->round_trip, c->wait));
}

// --- REJ.

namespace {

// The peer of an established connection names both communication IDs.
bool KnowsBothIds(const Connection& c) {
  return c.state == State::kEstablished || c.state == State::kDreqSent;
}

}  // namespace

void ConnectionManager::OnRej(const IncomingMad& in, const wire::CmView& mad,
                              Time now) {
  const wire::CmRej rej = mad.rej();
  Connection* c = nullptr;
  if (rej.reason == CmRejectReason::kTimeout && rej.remote_comm_id == 0 &&
      rej.info_length >= 8) {
    // The sender never received our communication ID (12.6.7.2).
    c = Find(by_remote_id_.Find({in.remote,
                                 wire::LoadBe64(rej.additional_info.data()),
                                 rej.local_comm_id}));
    if (c == nullptr) {
      ++counters_.unknown_id;
      return;
    }
    if (c->local != in.local || KnowsBothIds(*c)) {
      ++counters_.wrong_peer;
      return;
    }
  } else {
    c = Find(rej.remote_comm_id);
    if (c == nullptr || c->state == State::kIdle) {
      ++counters_.unknown_id;
      return;
    }
    // A peer that does not know the connection has no ID for it.
    const bool names_none = rej.local_comm_id == 0 && !KnowsBothIds(*c);
    if (c->remote != in.remote || c->local != in.local ||
        (c->remote_comm_id != 0 && !names_none &&
         rej.local_comm_id != c->remote_comm_id)) {
      ++counters_.wrong_peer;
      return;
    }
  }
  switch (c->state) {
    case State::kReqSent:
    case State::kRepWait:
    case State::kRepReceived:
    case State::kMraRepSent:
      Emit(EventKind::kRejected, *c, &mad);
      return End(*c);
    case State::kReqReceived:
    case State::kMraReqSent:
      // A reordered REQ after the REJ must not count as a new one.
      Emit(EventKind::kRejected, *c, &mad);
      return EnterWithdrawn(*c, now);
    case State::kRepSent:
    case State::kRtuWait:
      Emit(EventKind::kRejected, *c, &mad);
      return EnterTimeWait(*c, c->time_wait, now);
    case State::kEstablished:
    case State::kDreqSent:
      Emit(EventKind::kDisconnected, *c, &mad);
      return EnterTimeWait(*c, c->time_wait, now);
    default:
      ++counters_.wrong_state;
      return;
  }
}

// --- REP, RTU.

void ConnectionManager::OnRep(const IncomingMad& in, const wire::CmView& mad,
                              Time now) {
  Connection* const found = Find(mad.remote_comm_id());
  if (found == nullptr || found->state == State::kIdle) {
    ++counters_.unknown_id;
    return AnswerRej(in, mad, CmAnswered::kRep, CmRejectReason::kInvalidCommId,
                     now);
  }
  Connection* const c = FindFor(in, mad);
  if (c == nullptr) return;
  switch (c->state) {
    case State::kReqSent:
    case State::kRepWait:
      return OnFirstRep(*c, in, mad, now);
    case State::kRepReceived:
      counters_.rx_duplicates.Count(mad.attribute());
      c->service_timeout = config_.mra_service_timeout;
      Enter(*c, State::kMraRepSent);
      return SendMra(*c);
    case State::kMraRepSent:
      counters_.rx_duplicates.Count(mad.attribute());
      return SendMra(*c);
    case State::kEstablished:
      if (!c->active) break;
      counters_.rx_duplicates.Count(mad.attribute());
      return Retransmit(*c);  // the RTU
    case State::kTimeWait:
      if (!c->active) break;
      counters_.rx_duplicates.Count(mad.attribute());
      if (RepeatRej(*c, in, now)) return;
      return AnswerRej(in, mad, CmAnswered::kRep,
                       CmRejectReason::kStaleConnection, now);
    default:
      break;
  }
  ++counters_.wrong_state;
}

void ConnectionManager::OnFirstRep(Connection& c, const IncomingMad& in,
                                   const wire::CmView& mad, Time now) {
  const wire::CmRep rep = mad.rep();
  c.remote_comm_id = rep.local_comm_id;
  c.remote_ca_guid = rep.local_ca_guid;
  c.remote_qpn = c.xrc ? rep.local_eecn : rep.local_qpn;
  if (!KeepRemoteId(c) || !KeepRemoteQp(c)) {
    // Another connection has this queue pair, or had it recently.
    ++counters_.stale;
    AnswerRej(in, mad, CmAnswered::kRep, CmRejectReason::kStaleConnection, now);
    const CmId old =
        by_remote_qp_.Find({c.remote, c.remote_ca_guid, c.remote_qpn});
    Emit(EventKind::kRejected, c, nullptr);
    End(c);
    return DisconnectStale(old, in, now);
  }
  Enter(c, State::kRepReceived);
  SetDeadline(c, kNever);
  Emit(EventKind::kReply, c, &mad);
}

void ConnectionManager::OnRtu(const IncomingMad& in, const wire::CmView& mad,
                              Time now) {
  Connection* const c = FindFor(in, mad);
  if (c == nullptr) return;
  switch (c->state) {
    case State::kRepSent:
    case State::kRtuWait:
      Enter(*c, State::kEstablished);
      SetDeadline(*c, kNever);
      return Emit(EventKind::kEstablished, *c, &mad);
    case State::kEstablished:
      counters_.rx_duplicates.Count(mad.attribute());
      return;
    case State::kTimeWait:
      // This side has given up: tells the peer.
      if (RepeatRej(*c, in, now)) return;
      break;
    default:
      break;
  }
  ++counters_.wrong_state;
}

// --- DREQ, DREP, LAP.

void ConnectionManager::OnDreq(const IncomingMad& in, const wire::CmView& mad,
                               Time now) {
  const Connection* const found = Find(mad.remote_comm_id());
  if (found == nullptr || found->state == State::kIdle) {
    ++counters_.unknown_id;
    return AnswerDrep(in, mad, now);
  }
  Connection* const c = FindFor(in, mad);
  if (c == nullptr) return;
  if (mad.dreq().remote_qpn != c->local_qpn) {
    ++counters_.wrong_peer;
    return;
  }
  switch (c->state) {
    case State::kRepSent:
    case State::kRtuWait:
    case State::kRepReceived:
    case State::kMraRepSent:
    case State::kEstablished:
      c->mad_transaction_id = mad.transaction_id();
      Enter(*c, State::kDreqReceived);
      SetDeadline(*c, kNever);
      return Emit(EventKind::kDisconnected, *c, &mad);
    case State::kDreqSent:
      // Both ends have sent a DREQ.
      c->mad_transaction_id = mad.transaction_id();
      SendDrep(*c, {});
      Emit(EventKind::kDisconnected, *c, &mad);
      return EnterTimeWait(*c, c->time_wait, now);
    case State::kDreqReceived:
      counters_.rx_duplicates.Count(mad.attribute());
      return;
    case State::kTimeWait:
      counters_.rx_duplicates.Count(mad.attribute());
      if (c->sent_attribute == wire::CmAttribute::kDrep) {
        return Retransmit(*c);
      }
      return AnswerDrep(in, mad, now);
    default:
      ++counters_.wrong_state;
      return;
  }
}

void ConnectionManager::OnDrep(const IncomingMad& in, const wire::CmView& mad,
                               Time now) {
  Connection* const c = FindFor(in, mad);
  if (c == nullptr) return;
  if (c->state != State::kDreqSent) {
    ++counters_.wrong_state;
    return;
  }
  Emit(EventKind::kDisconnected, *c, &mad);
  EnterTimeWait(*c, c->time_wait, now);
}

void ConnectionManager::OnLap(const IncomingMad& in, const wire::CmView& mad) {
  Connection* const c = FindFor(in, mad);
  if (c == nullptr) return;
  if (c->state != State::kEstablished) {
    ++counters_.wrong_state;
    return;
  }
  Mad out;
  wire::EmitCm({.id = mad.transaction_id()},
               wire::CmApr{.local_comm_id = c->id,
                           .remote_comm_id = c->remote_comm_id,
                           .status = wire::CmAprStatus::kUnsupported},
               out);
  Queue(*c, out);
}

}  // namespace transport::cm
