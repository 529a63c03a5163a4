#include "tools/trace/flows.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "transport/base/types.h"
#include "wire/dc.h"
#include "wire/packet.h"
#include "wire/psn.h"

namespace trace {

using rxe_user::trace::QpStateEvent;
using wire::IpAddress;
using wire::Operation;
using wire::Transport;
using wire::pcapng::Direction;

FlowKey KeyOf(const Packet& p) { return {p.src, p.dst, p.qpn}; }

bool IsReliable(const Packet& p) {
  const Transport transport = wire::TransportOf(p.opcode);
  return transport == Transport::kRc || transport == Transport::kXrc ||
         transport == Transport::kDc;
}

bool IsConnected(const Packet& p) {
  return IsReliable(p) || wire::TransportOf(p.opcode) == Transport::kUc;
}

int64_t Flow::IndexOf(uint32_t psn) const {
  return next + wire::PsnDiff(psn, PsnOf(next));
}

uint32_t Flow::PsnOf(int64_t index) const {
  return wire::PsnAdd(first_psn, index);
}

void Flows::Mtu::Add(uint32_t seen) {
  ambiguous |= bytes != 0 && bytes != seen;
  bytes = std::max(bytes, seen);
}

Flows::Flows(const Recording& recording, std::span<const IpAddress> senders)
    : recording_(recording), senders_(senders.begin(), senders.end()) {
  for (const Packet& p : recording.packets) {
    if (!p.info().full_mtu_payload || p.icrc == IcrcVerdict::kBad) continue;
    if (p.payload < 256 || !std::has_single_bit(p.payload)) continue;
    path_mtus_[std::minmax(p.src, p.dst)].Add(p.payload);
    flow_mtus_[KeyOf(p)].Add(p.payload);
  }
}

bool Flows::WasSentHere(const Packet& p) const {
  if (p.direction != Direction::kUnknown) {
    return p.direction == Direction::kSent;
  }
  return std::find(senders_.begin(), senders_.end(), p.src) != senders_.end();
}

bool Flows::WasReceivedHere(const Packet& p) {
  return p.direction != Direction::kSent;
}

void Flows::OnEvent(const Event& event) {
  const auto state = event.As<QpStateEvent>();
  if (!state) return;
  const uint32_t qpn = event.header().qpn;
  if (const auto known = connected_.find(qpn); known != connected_.end()) {
    const auto to = connected_to_.find(known->second.to_peer);
    // Another queue pair may be connected to the same peer by now.
    if (to != connected_to_.end() && to->second == qpn) connected_to_.erase(to);
    connected_.erase(known);
  }
  if (state->to > static_cast<uint8_t>(transport::QpState::kInit)) {
    if (state->dest_qpn == 0) return;
    const auto local = IpAddress::FromGid(state->source);
    const auto peer = IpAddress::FromGid(state->destination);
    const Connected connected{
        *state, {local, peer, state->dest_qpn}, {peer, local, qpn}};
    connected_[qpn] = connected;
    connected_to_[connected.to_peer] = qpn;
    for (const bool sent : {false, true}) {
      const auto flow =
          current_[sent].find(sent ? connected.to_peer : connected.to_local);
      if (flow != current_[sent].end()) Adopt(connected, flow->second);
    }
    return;
  }
  // A queue pair that was reset starts anew. Packets that it receives have its
  // own number, packets that it sends have its peer's.
  Forget(qpn);
  if (state->dest_qpn != 0) Forget(state->dest_qpn);
}

void Flows::Forget(uint32_t qpn) {
  const auto found = flows_of_.find(qpn);
  if (found == flows_of_.end()) return;
  const auto erase = [](FlowMap& map, const FlowKey& key, const Flow* flow) {
    const auto known = map.find(key);
    if (known != map.end() && known->second == flow) map.erase(known);
  };
  for (const Flow* flow : found->second) {
    erase(current_[flow->at_requester], flow->requests, flow);
    if (flow->responses) {
      erase(answered_[flow->at_requester], *flow->responses, flow);
    }
  }
  flows_of_.erase(found);
}

void Flows::SetResponses(Flow* flow, const FlowKey& responses) {
  flow->responses = responses;
  answered_[flow->at_requester][responses] = flow;
  flows_of_[std::get<2>(responses)].push_back(flow);
}

void Flows::Adopt(const Connected& connected, Flow* flow) {
  const QpStateEvent& state = connected.state;
  if (!flow->responses) {
    SetResponses(flow,
                 flow->at_requester ? connected.to_local : connected.to_peer);
  }
  if (state.path_mtu != 0) flow->path_mtu = state.path_mtu;
  if (!flow->at_requester) return;
  flow->timeout = state.timeout;
  flow->retry_count = state.retry_count;
  flow->rnr_retry = state.rnr_retry;
}

Flow* Flows::Create(const FlowKey& key, const Packet& p, bool sent) {
  Flow& flow = flows_.emplace_back();
  flow.requests = key;
  flow.at_requester = sent;
  flow.reliable = IsReliable(p);
  flow.first_psn = p.psn;
  current_[sent][key] = &flow;
  flows_of_[std::get<2>(key)].push_back(&flow);
  if (wire::TransportOf(p.opcode) == Transport::kDc) {
    SetResponses(&flow, FlowKey{{}, p.src, std::get<2>(key)});
  }
  if (!sent) {
    const auto own = connected_.find(std::get<2>(key));
    if (own != connected_.end() && own->second.to_local == key) {
      Adopt(own->second, &flow);
    }
  } else if (const auto to = connected_to_.find(key);
             to != connected_to_.end()) {
    Adopt(connected_.at(to->second), &flow);
  }
  return &flow;
}

uint32_t Flows::MtuOf(const Packet& p, const Flow& flow) const {
  for (const auto& key : {std::optional(KeyOf(p)), flow.responses}) {
    if (!key) continue;
    const auto known = flow_mtus_.find(*key);
    if (known != flow_mtus_.end()) return known->second.value();
  }
  const auto known = path_mtus_.find(std::minmax(p.src, p.dst));
  return known != path_mtus_.end() ? known->second.value() : 0;
}

int64_t Flows::PsnsOf(const Packet& p, const Flow& flow) const {
  if (wire::OperationOf(p.opcode) != Operation::kReadRequest) return 1;
  if (p.length <= 256) return 1;
  return flow.path_mtu == 0 ? 0 : (p.length - 1) / flow.path_mtu + 1;
}

void Flows::OnDamaged(const Packet& p) {
  // Any of its fields may be wrong, including the queue pair.
  for (FlowMap& flows : current_) {
    // Flows of DC have no destination.
    for (const IpAddress& dst : {IpAddress{}, p.dst}) {
      for (auto each = flows.lower_bound({p.src, dst, 0});
           each != flows.end() && std::get<0>(each->first) == p.src &&
           std::get<1>(each->first) == dst;
           ++each) {
        each->second->unsure = each->second->lacks_some = true;
      }
    }
  }
}

FlowPacket Flows::OnRequest(const Packet& p, bool sent) {
  FlowKey key = KeyOf(p);
  if (wire::TransportOf(p.opcode) == Transport::kDc) {
    wire::PacketView view;
    if (recording_.View(p, &whole_, &view)) {
      key = {p.src, IpAddress{}, view.dceth().src_qpn};
    }
  }
  const auto known = current_[sent].find(key);
  Flow* flow = known != current_[sent].end() ? known->second : nullptr;
  bool is_first = flow == nullptr;
  if (!is_first) {
    const int32_t ahead = wire::PsnDiff(p.psn, flow->PsnOf(flow->next));
    is_first = std::abs(ahead) > kOtherConnection ||
               // An initiator repeats a CONNECT only before other packets, so
               // this one was reset.
               (p.opcode == wire::kOpcodeDcConnect && ahead < -1);
  }
  if (is_first) flow = Create(key, p, sent);
  // The targets of a DC initiator may have different path MTUs.
  if (flow->path_mtu == 0 || std::get<1>(key) == IpAddress{}) {
    flow->path_mtu = MtuOf(p, *flow);
  }
  FlowPacket in{.packet = p, .flow = *flow};
  in.index = flow->IndexOf(p.psn);
  in.psns = PsnsOf(p, *flow);
  in.ahead = in.index - flow->next;
  in.unsure = is_first || flow->unsure;
  flow->lacks_some |= in.psns == 0;
  if (in.ahead >= 0 || in.last() >= flow->next) {
    flow->next = in.last() + 1;
    // The READ may be for a part of one that was damaged.
    const bool is_read = wire::OperationOf(p.opcode) == Operation::kReadRequest;
    flow->unsure = in.psns == 0 || (flow->unsure && is_read);
  }
  return in;
}

// If it is not known yet which flow the response answers, takes the one from
// the response's destination to its source that has the PSN, provided that
// there is only one.
std::optional<FlowPacket> Flows::OnResponse(const Packet& p, bool sent) {
  const bool at_requester = !sent;
  const bool is_dc = wire::TransportOf(p.opcode) == Transport::kDc;
  const FlowKey key = is_dc ? FlowKey{{}, p.dst, p.qpn} : KeyOf(p);
  FlowMap& current = current_[at_requester];
  FlowMap& answered = answered_[at_requester];
  Flow* flow = nullptr;
  if (const auto known = answered.find(key); known != answered.end()) {
    const auto same = current.find(known->second->requests);
    if (same != current.end()) {
      // The queue pair may have begun another connection.
      if (!same->second->responses) SetResponses(same->second, key);
      if (same->second->responses == key) flow = same->second;
    }
    if (flow == nullptr) {
      answered.erase(known);
    } else {
      known->second = flow;
    }
  }
  if (flow == nullptr && is_dc) return std::nullopt;
  if (flow == nullptr) {
    for (auto each = current.lower_bound({p.dst, p.src, 0});
         each != current.end() && std::get<0>(each->first) == p.dst &&
         std::get<1>(each->first) == p.src;
         ++each) {
      Flow* const candidate = each->second;
      if (!candidate->reliable || candidate->responses || candidate->unsure) {
        continue;
      }
      const int64_t index = candidate->IndexOf(p.psn);
      if (index < 0 || index >= candidate->next) continue;
      if (flow != nullptr) return std::nullopt;
      flow = candidate;
    }
    if (flow == nullptr) return std::nullopt;
    SetResponses(flow, key);
  }
  return FlowPacket{.packet = p, .flow = *flow, .index = flow->IndexOf(p.psn)};
}

}  // namespace trace
