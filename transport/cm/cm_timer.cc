// What happens at the deadline of a connection.
#include <utility>

#include "transport/cm/connection_manager.h"

namespace transport::cm {

void ConnectionManager::OnTimer(Time now) {
  // Without memory for an event, timers wait until some events are polled.
  while (!deadlines_.empty() && deadlines_.begin()->first.first <= now &&
         events_.Reserve(1)) {
    Connection& c = *Find(deadlines_.begin()->second);
    SetDeadline(c, kNever);
    OnDeadline(c, now);
  }
  SendHeldBack(now);
}

void ConnectionManager::OnUndelivered(const OutgoingMad& sent, Time now) {
  wire::CmView mad;
  if (wire::CmView::Parse(sent.bytes, &mad) != wire::CmParseError::kOk) return;
  const bool sidr = mad.attribute() == wire::CmAttribute::kSidrReq;
  if (!sidr && mad.attribute() != wire::CmAttribute::kReq) return;
  Connection* const c =
      Find(sidr ? mad.sidr_req().request_id : mad.local_comm_id());
  if (c == nullptr || c->remote != sent.remote || c->local != sent.local ||
      c->state != (sidr ? State::kSidrReqSent : State::kReqSent) ||
      c->undelivered >= config_.undelivered_tries) {
    return;
  }
  const Time next = now + (config_.undelivered_wait << c->undelivered);
  if (c->deadline <= next) return;
  ++c->undelivered;
  if (c->regular_deadline == kNever) c->regular_deadline = c->deadline;
  SetDeadline(*c, next);
}

void ConnectionManager::OnDeadline(Connection& c, Time now) {
  if (c.state == State::kTimeWait) {
    if (c.qp_used) Emit(EventKind::kTimeWaitExit, c, nullptr);
    return End(c);
  }
  if (c.regular_deadline != kNever) {
    const bool is_reminder = c.state == State::kRepSent;
    if (!is_reminder) ++counters_.undelivered;
    if (!is_reminder || MayRetransmit(c, now)) Retransmit(c);
    return SetDeadline(c, std::exchange(c.regular_deadline, kNever));
  }
  if (c.retries_left == 0) return GiveUp(c, now);
  --c.retries_left;
  if (c.state == State::kRepWait) Enter(c, State::kReqSent);
  if (c.state == State::kRtuWait) Enter(c, State::kRepSent);
  if (c.state != State::kRepSent || MayRetransmit(c, now)) Retransmit(c);
  SetDeadline(c, now + c.wait);
}

void ConnectionManager::GiveUp(Connection& c, Time now) {
  switch (c.state) {
    case State::kReqSent:
    case State::kRepWait:
      SendTimeoutRej(c);
      Emit(EventKind::kUnreachable, c, nullptr);
      return End(c);
    case State::kRepSent:
    case State::kRtuWait:
      KeepTimeoutRej(c);
      if (MayRetransmit(c, now)) Queue(c, c.sent);
      Emit(EventKind::kUnreachable, c, nullptr);
      return EnterTimeWait(c, c.time_wait, now);
    case State::kDreqSent:
      Emit(EventKind::kDisconnected, c, nullptr);
      return EnterTimeWait(c, c.time_wait, now);
    case State::kSidrReqSent:
      Emit(EventKind::kUnreachable, c, nullptr);
      return End(c);
    default:
      return;  // other states have no deadline
  }
}

}  // namespace transport::cm
