// The applications of CmSim, and the events that they expect.
#include <algorithm>
#include <string>

#include "transport/cm/cm_sim.h"
#include "transport/cm/cm_sim_host.h"

namespace transport::cm {
namespace {

const char* Name(EventKind kind) {
  static constexpr const char* kNames[] = {
      "Request",      "Reply",          "Established",
      "Rejected",     "Unreachable",    "Disconnected",
      "TimeWaitExit", "ServiceRequest", "ServiceReply"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace

uint32_t CmSim::PickQpn() { return 1 + random_.Below(40); }

void CmSim::TakeQpn(Host& host, Id& id, uint32_t qpn) {
  if (!host.qpns.insert(qpn).second) {
    return Fail("queue pair " + std::to_string(qpn) + " is in two connections");
  }
  id.qpn = qpn;
}

void CmSim::ReturnQpn(Host& host, Id& id) {
  if (id.qpn != 0) host.qpns.erase(id.qpn);
  id.qpn = 0;
}

CmSim::End& CmSim::EndOf(const Id& id) {
  Pair& pair = pairs_[id.pair];
  return id.active ? pair.active : pair.passive;
}

void CmSim::ConnectOrResolve(Host& host) {
  if (closing_) return;
  if (random_.Percent(15)) {
    Resolve(host);
  } else {
    Connect(host);
  }
}

void CmSim::Connect(Host& host) {
  const Host& to = *hosts_[random_.Below(hosts_.size())];
  ConnectOptions options;
  options.local = host.address;
  options.remote = to.address;
  options.packet_life_time = kExponent;
  options.req.service_id = random_.Percent(10) ? kServices[2]
                           : random_.Percent(50)
                               ? kServices[0]
                               : kServices[1] + random_.Below(14);
  if (options.req.service_id == kServices[0]) options.req.private_data[0] = 1;
  options.req.local_ca_guid = host.number;
  options.req.local_qpn = PickQpn();
  options.req.remote_cm_response_timeout = kExponent;
  options.req.local_cm_response_timeout = kExponent;
  options.req.max_cm_retries = random_.Percent(80) ? 15 : random_.Below(15);
  // Longer than any packet stays in the network.
  options.req.primary.local_ack_timeout = kExponent + 1;
  CmId id = 0;
  const Result result = host.manager->Connect(options, now_, &id);
  if (result == Result::kQpnInUse) return;
  if (result != Result::kOk) return Fail("Connect fails");
  ++statistics_.connects;
  Id& app = host.apps[id] = {.phase = Phase::kAsked, .active = true};
  TakeQpn(host, app, options.req.local_qpn);
  app.pair = pairs_.size() + 1;
  pairs_[app.pair].active.exists = true;
  pairs_[app.pair].fragile = options.req.max_cm_retries < 15;
  pair_of_[{host.incarnation, id}] = app.pair;
  Trace(host, "connects to host " + std::to_string(to.number) + ", id " +
                  std::to_string(id) + ", pair " + std::to_string(app.pair));
  if (random_.Percent(5)) {
    Later(host, random_.Below(50 * kMillisecond),
          [this, id](Host& h) { Destroy(h, id); });
  }
}

void CmSim::Resolve(Host& host) {
  ResolveOptions options;
  options.local = host.address;
  options.remote = hosts_[random_.Below(hosts_.size())]->address;
  options.timeout = 20 * kMillisecond;
  options.req.service_id = random_.Percent(10) ? kServices[2] : kServices[0];
  CmId id = 0;
  if (host.manager->Resolve(options, now_, &id) != Result::kOk) {
    return Fail("Resolve fails");
  }
  host.apps[id] = {.phase = Phase::kResolving};
}

void CmSim::OnEvent(Host& host, const Event& event) {
  if (trace_) {
    Trace(host, std::string("event ") + Name(event.kind) + ", id " +
                    std::to_string(event.id));
  }
  if (event.kind == EventKind::kRequest) return OnRequest(host, event);
  if (event.kind == EventKind::kServiceRequest) {
    if (host.apps.contains(event.id)) return Fail("a request with an old id");
    host.apps[event.id] = {.phase = Phase::kServing};
    Later(host, random_.Below(30 * kMillisecond),
          [this, id = event.id](Host& h) {
            if (!h.apps.contains(id)) return;
            h.manager->AnswerService(id, {.qpn = 7}, now_);
            DestroyLater(h, id);
          });
    return;
  }
  const auto found = host.apps.find(event.id);
  if (found == host.apps.end()) return Fail("an event for an unknown id");
  Id& id = found->second;
  const auto expect = [&](std::initializer_list<Phase> phases) {
    if (std::ranges::find(phases, id.phase) != phases.end()) {
      return true;
    }
    Fail(std::string("event ") + Name(event.kind) + " in phase " +
         std::to_string(static_cast<int>(id.phase)));
    return false;
  };
  switch (event.kind) {
    case EventKind::kReply:
      if (expect({Phase::kAsked})) OnReply(host, event, id);
      return;
    case EventKind::kEstablished:
      if (!expect({Phase::kAccepted})) return;
      id.phase = Phase::kEstablished;
      EndOf(id).established = EndOf(id).was_established = true;
      ++statistics_.established;
      if (!pairs_[id.pair].active.was_established) {
        Fail("established passively alone");
      }
      if (random_.Percent(50)) {
        Later(host, random_.Below(kSecond),
              [this, i = event.id](Host& h) { Disconnect(h, i); });
      }
      return;
    case EventKind::kRejected:
    case EventKind::kUnreachable:
      if (event.kind == EventKind::kUnreachable) {
        ++statistics_.unreachable;
        const bool fragile = id.pair != 0 && pairs_[id.pair].fragile;
        if (IsReliable() && !fragile) {
          return Fail("gives up on a live peer");
        }
        if (id.phase == Phase::kResolving) return DestroyLater(host, event.id);
        EndOf(id).unheard = true;
      } else {
        ++statistics_.rejected;
      }
      if (!expect({Phase::kAsked, Phase::kRequested, Phase::kReplied,
                   Phase::kAccepted})) {
        return;
      }
      if (event.kind == EventKind::kUnreachable && !id.active) {
        pairs_[id.pair].may_request_again = true;
      }
      if (id.phase != Phase::kAccepted) ReturnQpn(host, id);
      id.phase = Phase::kFailed;
      return DestroyLater(host, event.id);
    case EventKind::kDisconnected:
      if (!expect({Phase::kEstablished, Phase::kAccepted, Phase::kReplied})) {
        return;
      }
      ++statistics_.disconnected;
      id.phase = Phase::kDisconnected;
      EndOf(id).established = false;
      if (!event.has_mad) EndOf(id).unheard = true;
      if (host.manager->state(event.id) == State::kDreqReceived) {
        Later(host, random_.Below(30 * kMillisecond),
              [this, i = event.id](Host& h) { Disconnect(h, i); });
      }
      return DestroyLater(host, event.id);
    case EventKind::kTimeWaitExit:
      if (!expect({Phase::kDisconnected, Phase::kFailed})) return;
      id.phase = Phase::kOver;
      return ReturnQpn(host, id);
    case EventKind::kServiceReply:
      if (!expect({Phase::kResolving})) return;
      ++statistics_.resolved;
      id.phase = Phase::kOver;
      return DestroyLater(host, event.id);
    default:
      return;
  }
}

void CmSim::OnRequest(Host& host, const Event& event) {
  if (host.apps.contains(event.id)) return Fail("a request with an old id");
  wire::CmView view;
  wire::CmView::Parse(event.mad, &view);
  const wire::CmReq req = view.req();
  Id& id = host.apps[event.id] = {.phase = Phase::kRequested};
  // The communication ID tells which incarnation of the peer sent it.
  for (const auto& [key, pair] : pair_of_) {
    if (key.second == req.local_comm_id) id.pair = pair;
  }
  if (id.pair == 0) return Fail("a request without a Connect");
  Pair& pair = pairs_[id.pair];
  if (++pair.requests > 1 && !pair.may_request_again && !small_caps_) {
    return Fail("a second request for pair " + std::to_string(id.pair));
  }
  pair.passive = {.exists = true};
  pair.passive_host = host.number - 1;
  pair.passive_id = event.id;
  if (random_.Percent(5)) {
    pair.fragile = true;  // until its deadline
    return;
  }
  const Time delay = random_.Percent(70) ? random_.Below(kMillisecond)
                                         : random_.Below(60 * kMillisecond);
  if (random_.Percent(10)) {
    host.manager->Delay(event.id, static_cast<uint8_t>(random_.Below(14)));
  }
  Later(host, delay, [this, i = event.id](Host& h) { Answer(h, i); });
}

void CmSim::Answer(Host& host, CmId id) {
  const auto found = host.apps.find(id);
  if (found == host.apps.end() || found->second.phase != Phase::kRequested) {
    return;
  }
  Id& app = found->second;
  if (random_.Percent(10)) {
    app.phase = Phase::kRefused;
    if (host.manager->Reject(id, {}, now_) != Result::kOk) Fail("Reject fails");
    return DestroyLater(host, id);
  }
  if (random_.Percent(5)) return Destroy(host, id);
  for (int i = 0; i < 100; ++i) {
    const uint32_t qpn = PickQpn();
    wire::CmRep rep;
    rep.local_qpn = qpn;
    rep.local_ca_guid = host.number;
    const Result result = host.manager->Accept(id, rep, now_);
    if (result == Result::kQpnInUse) continue;
    if (result != Result::kOk) return Fail("Accept fails");
    app.phase = Phase::kAccepted;
    return TakeQpn(host, app, qpn);
  }
  Destroy(host, id);  // no queue pair is free
}

void CmSim::OnReply(Host& host, const Event& event, Id& id) {
  id.phase = Phase::kReplied;
  if (random_.Percent(3)) {
    pairs_[id.pair].fragile = true;  // until its deadline
    return;
  }
  if (random_.Percent(10)) {
    host.manager->Delay(event.id, static_cast<uint8_t>(random_.Below(14)));
  }
  const Time delay = random_.Percent(70) ? random_.Below(kMillisecond)
                                         : random_.Below(60 * kMillisecond);
  Later(host, delay, [this, i = event.id](Host& h) { AnswerReply(h, i); });
}

void CmSim::AnswerReply(Host& host, CmId id) {
  const auto found = host.apps.find(id);
  if (found == host.apps.end() || found->second.phase != Phase::kReplied) {
    return;
  }
  Id& app = found->second;
  if (random_.Percent(5)) {
    app.phase = Phase::kRefused;
    if (host.manager->Reject(id, {}, now_) != Result::kOk) Fail("Reject fails");
    ReturnQpn(host, app);
    return DestroyLater(host, id);
  }
  if (random_.Percent(3)) return Destroy(host, id);
  if (host.manager->Establish(id, {}) != Result::kOk) {
    return Fail("Establish fails");
  }
  app.phase = Phase::kEstablished;
  EndOf(app).established = EndOf(app).was_established = true;
  if (random_.Percent(20)) {
    At(now_ + random_.Below(20 * kMillisecond),
       [this, pair = app.pair] { NotifyEstablished(pair); });
  }
  if (random_.Percent(40)) {
    Later(host, random_.Below(kSecond),
          [this, id](Host& h) { Disconnect(h, id); });
  }
}

void CmSim::NotifyEstablished(uint64_t number) {
  const Pair& pair = pairs_[number];
  if (pair.passive_host < 0) return;  // the passive host has died
  Host& host = *hosts_[pair.passive_host];
  const auto found = host.apps.find(pair.passive_id);
  if (found == host.apps.end() || found->second.phase != Phase::kAccepted) {
    return;
  }
  const auto state = host.manager->state(pair.passive_id);
  const bool waits = state == State::kRepSent || state == State::kRtuWait;
  const Result result = host.manager->NotifyEstablished(pair.passive_id);
  if (result != (waits ? Result::kOk : Result::kWrongState)) {
    return Fail("NotifyEstablished");
  }
  Pump(host);
}

void CmSim::Disconnect(Host& host, CmId id) {
  const auto found = host.apps.find(id);
  if (found == host.apps.end()) return;
  const auto state = host.manager->state(id);
  if (state != State::kEstablished && state != State::kDreqReceived) return;
  if (random_.Percent(15)) return Destroy(host, id);
  if (host.manager->Disconnect(id, {}, now_) != Result::kOk) {
    Fail("Disconnect fails");
  }
}

void CmSim::Destroy(Host& host, CmId id) {
  const auto found = host.apps.find(id);
  if (found == host.apps.end()) return;
  Trace(host, "destroys id " + std::to_string(id));
  if (found->second.pair != 0) {
    // Its REJ is sent once, and again only for a late RTU.
    const auto state = host.manager->state(id);
    if (state == State::kRepSent || state == State::kRtuWait) {
      pairs_[found->second.pair].fragile = true;
    }
    EndOf(found->second).unheard = true;
    EndOf(found->second).established = false;
  }
  ReturnQpn(host, found->second);
  host.apps.erase(found);
  if (host.manager->Destroy(id, now_) != Result::kOk) Fail("Destroy fails");
}

void CmSim::DestroyLater(Host& host, CmId id) {
  Later(host, random_.Below(200 * kMillisecond),
        [this, id](Host& h) { Destroy(h, id); });
}

}  // namespace transport::cm
