// Calls by the application.
#include <algorithm>
#include <new>
#include <utility>

#include "transport/cm/connection_manager.h"

namespace transport::cm {
namespace {

constexpr uint8_t kMaxRetries = 15;

}  // namespace

Result ConnectionManager::Listen(const ListenOptions& options, ListenerId* id) {
  *id = listeners_.Add(options);
  return *id == 0 ? Result::kServiceInUse : Result::kOk;
}

Result ConnectionManager::StopListening(ListenerId id) {
  return listeners_.Remove(id) ? Result::kOk : Result::kUnknownId;
}

Result ConnectionManager::Connect(const ConnectOptions& options, Time now,
                                  CmId* id) {
  wire::CmReq req = options.req;
  req.local_qpn &= wire::kQpnMask;
  if (req.local_qpn != 0 &&
      by_local_qpn_.Find({req.local_ca_guid, req.local_qpn}) != 0) {
    return Result::kQpnInUse;
  }
  Connection& c = New(options.local, options.remote, now);
  c.active = true;
  c.local_ca_guid = req.local_ca_guid;
  c.xrc = IsXrc(req);
  c.service_id = req.service_id;
  KeepLocalQpn(c, req.local_qpn);
  c.round_trip = std::min(2 * wire::CmTimeNanos(options.packet_life_time),
                          config_.longest_wait);
  c.wait = std::clamp(
      wire::CmTimeNanos(req.remote_cm_response_timeout) + c.round_trip,
      config_.shortest_wait, config_.longest_wait);
  c.time_wait = std::min(wire::CmTimeNanos(req.primary.local_ack_timeout),
                         config_.longest_time_wait);
  c.max_retries = std::min(req.max_cm_retries, kMaxRetries);
  // The REQ tells the peer how long to wait for the RTU, and how often to
  // retry.
  c.refused_hold = std::min(
      (c.max_retries + 1) * (wire::CmTimeNanos(req.local_cm_response_timeout) +
                             wire::CmTimeNanos(req.primary.local_ack_timeout)),
      config_.longest_refused_hold);
  req.local_comm_id = c.id;
  Enter(c, State::kReqSent);
  Keep(c, {.id = c.transaction_id, .attribute_modifier = options.ece_options},
       req);
  SendInTurn(c, now);
  *id = c.id;
  return Result::kOk;
}

Result ConnectionManager::Accept(CmId id, const wire::CmRep& reply, Time now,
                                 uint32_t ece_options) {
  Connection* const c = FindOwned(id);
  if (c == nullptr) return Result::kUnknownId;
  LeaveWithdrawn(*c);
  if (c->state != State::kReqReceived && c->state != State::kMraReqSent) {
    return Result::kWrongState;
  }
  wire::CmRep rep = reply;
  c->local_ca_guid = rep.local_ca_guid;
  if (!KeepLocalQpn(*c, rep.local_qpn)) return Result::kQpnInUse;
  c->qp_used = true;
  rep.local_comm_id = c->id;
  rep.remote_comm_id = c->remote_comm_id;
  if (c->xrc) rep.local_eecn = std::exchange(rep.local_qpn, 0);
  Enter(*c, State::kRepSent);
  Send(*c, {.id = c->transaction_id, .attribute_modifier = ece_options}, rep);
  AwaitRtu(*c, now);
  return Result::kOk;
}

Result ConnectionManager::Seen(CmId id) {
  Connection* const c = FindOwned(id);
  if (c == nullptr) return Result::kUnknownId;
  c->seen = true;
  Enter(*c, c->state);
  return Result::kOk;
}

Result ConnectionManager::Reject(CmId id, const RejectOptions& options,
                                 Time now) {
  Connection* const c = FindOwned(id);
  if (c == nullptr) return Result::kUnknownId;
  if (options.additional_info.size() > wire::kCmAdditionalInfoSize ||
      options.private_data.size() > sizeof(wire::CmRej::private_data)) {
    return Result::kInvalid;
  }
  LeaveWithdrawn(*c);
  switch (c->state) {
    case State::kReqReceived:
    case State::kMraReqSent:
      SendRej(*c, wire::CmAnswered::kReq, options);
      break;
    case State::kRepReceived:
    case State::kMraRepSent:
      SendRej(*c, wire::CmAnswered::kRep, options);
      break;
    default:
      return Result::kWrongState;
  }
  EnterRefused(*c, now);
  return Result::kOk;
}

Result ConnectionManager::Delay(CmId id, uint8_t service_timeout) {
  Connection* const c = FindOwned(id);
  if (c == nullptr) return Result::kUnknownId;
  if (service_timeout > 31) return Result::kInvalid;
  switch (c->state) {
    case State::kReqReceived:
    case State::kMraReqSent:
      Enter(*c, State::kMraReqSent);
      break;
    case State::kRepReceived:
    case State::kMraRepSent:
      Enter(*c, State::kMraRepSent);
      break;
    default:
      return Result::kWrongState;
  }
  c->service_timeout = service_timeout;
  SendMra(*c);
  return Result::kOk;
}

Result ConnectionManager::Establish(CmId id,
                                    std::span<const uint8_t> private_data) {
  Connection* const c = FindOwned(id);
  if (c == nullptr) return Result::kUnknownId;
  if (c->state != State::kRepReceived && c->state != State::kMraRepSent) {
    return Result::kWrongState;
  }
  wire::CmRtu rtu;
  if (!FillData(private_data, &rtu.private_data)) return Result::kInvalid;
  rtu.local_comm_id = c->id;
  rtu.remote_comm_id = c->remote_comm_id;
  c->qp_used = true;
  Enter(*c, State::kEstablished);
  Send(*c, {.id = c->transaction_id}, rtu);
  return Result::kOk;
}

Result ConnectionManager::NotifyEstablished(CmId id) {
  Connection* const c = FindOwned(id);
  if (c == nullptr) return Result::kUnknownId;
  if (c->state != State::kRepSent && c->state != State::kRtuWait) {
    return Result::kWrongState;
  }
  if (!events_.Reserve(1)) throw std::bad_alloc();
  Enter(*c, State::kEstablished);
  SetDeadline(*c, kNever);
  Emit(EventKind::kEstablished, *c, nullptr);
  return Result::kOk;
}

Result ConnectionManager::Disconnect(CmId id,
                                     std::span<const uint8_t> private_data,
                                     Time now) {
  Connection* const c = FindOwned(id);
  if (c == nullptr) return Result::kUnknownId;
  switch (c->state) {
    case State::kEstablished:
      if (private_data.size() > sizeof(wire::CmDreq::private_data)) {
        return Result::kInvalid;
      }
      SendDreq(*c, private_data, now);
      return Result::kOk;
    case State::kDreqReceived:
      if (private_data.size() > sizeof(wire::CmDrep::private_data)) {
        return Result::kInvalid;
      }
      SendDrep(*c, private_data);
      EnterTimeWait(*c, c->time_wait, now);
      return Result::kOk;
    default:
      return Result::kWrongState;
  }
}

Result ConnectionManager::Destroy(CmId id, Time now) {
  Connection* const c = FindOwned(id);
  if (c == nullptr) return Result::kUnknownId;
  c->owned = false;
  events_.RemoveIf([id](const Event& event) { return event.id == id; });
  LeaveWithdrawn(*c);
  switch (c->state) {
    case State::kIdle:
    case State::kSidrReqSent:
      End(*c);
      break;
    case State::kReqSent:
    case State::kRepWait:
      // The peer has not received a request that is held back.
      if (!c->held_back) SendTimeoutRej(*c);
      End(*c);
      break;
    case State::kReqReceived:
    case State::kMraReqSent:
      SendRej(*c, wire::CmAnswered::kReq, {});
      EnterRefused(*c, now);
      break;
    case State::kRepReceived:
    case State::kMraRepSent:
      SendRej(*c, wire::CmAnswered::kRep, {});
      EnterRefused(*c, now);
      break;
    case State::kRepSent:
    case State::kRtuWait:
      SendRej(*c, wire::CmAnswered::kOther, {});
      EnterTimeWait(*c, c->time_wait, now);
      break;
    case State::kEstablished:
      SendDreq(*c, {}, now);
      break;
    case State::kDreqReceived:
      SendDrep(*c, {});
      EnterTimeWait(*c, c->time_wait, now);
      break;
    case State::kSidrReqReceived:
      SendSidrRep(*c, {.status = wire::CmSidrStatus::kRejected}, now);
      break;
    case State::kDreqSent:
    case State::kTimeWait:
      break;  // finishes by itself
  }
  if (Connection* const kept = Find(id)) KeepDestroyed(*kept, now);
  SendHeldBack(now);
  return Result::kOk;
}

}  // namespace transport::cm
