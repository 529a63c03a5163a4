// Service ID resolution: 12.11.
#include <algorithm>

#include "transport/cm/connection_manager.h"

namespace transport::cm {

Result ConnectionManager::Resolve(const ResolveOptions& options, Time now,
                                  CmId* id) {
  Connection& c = New(options.local, options.remote, now);
  c.active = true;
  c.service_id = options.req.service_id;
  c.wait =
      std::clamp(options.timeout, config_.shortest_wait, config_.longest_wait);
  c.max_retries = options.max_retries;
  wire::CmSidrReq req = options.req;
  req.request_id = c.id;
  Enter(c, State::kSidrReqSent);
  Keep(c, {.id = c.transaction_id}, req);
  SendInTurn(c, now);
  *id = c.id;
  return Result::kOk;
}

Result ConnectionManager::AnswerService(CmId id, const wire::CmSidrRep& rep,
                                        Time now, uint32_t ece_options) {
  Connection* const c = FindOwned(id);
  if (c == nullptr) return Result::kUnknownId;
  if (c->state != State::kSidrReqReceived) return Result::kWrongState;
  SendSidrRep(*c, rep, now, ece_options);
  return Result::kOk;
}

void ConnectionManager::SendSidrRep(Connection& c, wire::CmSidrRep rep,
                                    Time now, uint32_t ece_options) {
  rep.request_id = c.remote_comm_id;
  rep.service_id = c.service_id;
  Send(c, {.id = c.transaction_id, .attribute_modifier = ece_options}, rep);
  if (remembered_ >= config_.max_half_open) return End(c);
  SetRemembered(c, true);
  EnterTimeWait(c, config_.sidr_hold, now);
}

void ConnectionManager::AnswerSidr(const IncomingMad& in,
                                   const wire::CmSidrReq& req,
                                   uint64_t transaction_id,
                                   wire::CmSidrStatus status, Time now) {
  if (!MayAnswer(in, now)) return;
  Mad out;
  wire::EmitCm({.id = transaction_id},
               wire::CmSidrRep{.request_id = req.request_id,
                               .status = status,
                               .service_id = req.service_id},
               out);
  Queue(in.local, in.remote, in.via, out);
}

void ConnectionManager::OnSidrReq(const IncomingMad& in,
                                  const wire::CmView& mad, Time now) {
  const wire::CmSidrReq req = mad.sidr_req();
  if (const CmId known =
          by_sidr_.Find({in.remote, req.request_id, req.service_id})) {
    Connection& c = *Find(known);
    counters_.rx_duplicates.Count(mad.attribute());
    if (c.state == State::kTimeWait && MayAnswer(in, now)) Retransmit(c);
    return;
  }
  Listener* const listener = listeners_.Match(req.service_id, in.local);
  if (listener == nullptr) {
    ++counters_.no_listener;
    return AnswerSidr(in, req, mad.transaction_id(),
                      wire::CmSidrStatus::kInvalidServiceId, now);
  }
  if (!HasRoom(*listener, in.remote, now)) return;
  Connection& c = New(in.local, in.remote, now);
  c.via = in.via;
  c.listener = listener->id;
  c.transaction_id = mad.transaction_id();
  c.remote_comm_id = req.request_id;
  c.service_id = req.service_id;
  by_sidr_.Enter(c.by_sidr, {in.remote, req.request_id, req.service_id}, c.id);
  Enter(c, State::kSidrReqReceived);
  Emit(EventKind::kServiceRequest, c, &mad);
}

void ConnectionManager::OnSidrRep(const IncomingMad& in,
                                  const wire::CmView& mad) {
  const wire::CmSidrRep rep = mad.sidr_rep();
  Connection* const c = Find(rep.request_id);
  if (c == nullptr || c->state != State::kSidrReqSent) {
    ++counters_.unknown_id;
    return;
  }
  if (c->remote != in.remote || c->local != in.local ||
      c->service_id != rep.service_id) {
    ++counters_.wrong_peer;
    return;
  }
  Emit(EventKind::kServiceReply, *c, &mad);
  End(*c);
}

}  // namespace transport::cm
