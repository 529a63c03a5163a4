#include "transport/sim/wire_rules.h"

#include <algorithm>

#include "wire/aeth.h"
#include "wire/psn.h"

namespace sim {
namespace {

bool TakesReceive(const wire::PacketView& packet) {
  using enum wire::Operation;
  switch (packet.operation()) {
    case kSendLast:
    case kSendLastImm:
    case kSendLastInvalidate:
    case kSendOnly:
    case kSendOnlyImm:
    case kSendOnlyInvalidate:
    case kWriteLastImm:
    case kWriteOnlyImm:
      return true;
    default:
      return false;
  }
}

// Whether the response is more than an ACK.
bool IsAnswered(const wire::PacketView& packet) {
  using enum wire::Operation;
  switch (packet.operation()) {
    case kReadRequest:
    case kCompareSwap:
    case kFetchAdd:
    case kAtomicWrite:
    case kFlush:
      return true;
    default:
      return false;
  }
}

std::string CheckPayload(const wire::PacketView& packet, uint32_t mtu) {
  const size_t bytes = packet.payload().size();
  const wire::OpcodeInfo& info = packet.info();
  if (!info.carries_payload)
    return bytes == 0 ? "" : "payload where none may be";
  if (info.full_mtu_payload && bytes != mtu) {
    return "first or middle packet not of the path MTU";
  }
  if (bytes > mtu) return "payload beyond the path MTU";
  // A LAST packet is never empty.
  if (info.ends_message && !info.starts_message && bytes == 0) {
    return "empty last packet";
  }
  return "";
}

}  // namespace

void WireRules::Watch(const Requester& requester) {
  State& state = by_responder_[{requester.peer_host, requester.peer_qpn}];
  state = State{};
  state.of = requester;
  state.next_psn = requester.first_psn;
  by_requester_[{requester.host, requester.qpn}] = &state;
}

void WireRules::SetQueue(int host, uint32_t qpn, Queue queue) {
  const auto it = by_requester_.find({host, qpn});
  if (it == by_requester_.end()) return;
  it->second->queue = queue;
  it->second->begun = 0;
}

std::string WireRules::OnSent(int host, int to,
                              const wire::PacketView& packet) {
  const wire::Bth& bth = packet.bth();
  if (bth.opcode == wire::kOpcodeCnp) return "";
  if (!bth.mig_req || bth.pkey != wire::kDefaultPkey || bth.fecn || bth.becn) {
    return "BTH fields";
  }
  if (packet.info().is_request) {
    const auto it = by_responder_.find({to, bth.dest_qpn});
    if (it == by_responder_.end() || it->second.of.host != host) return "";
    return OnRequest(it->second, packet);
  }
  const auto it = by_requester_.find({to, bth.dest_qpn});
  if (it == by_requester_.end() || it->second->of.peer_host != host) return "";
  return OnResponse(*it->second, packet);
}

std::string WireRules::OnRequest(State& state, const wire::PacketView& packet) {
  const wire::Bth& bth = packet.bth();
  const uint32_t mtu = state.of.path_mtu;
  if (std::string wrong = CheckPayload(packet, mtu); !wrong.empty()) {
    return wrong;
  }
  if (bth.solicited && !TakesReceive(packet)) {
    return "solicited on a packet that ends no receive";
  }
  if (!state.of.reliable) return OnUnreliable(state, packet);
  if (state.queue == Queue::kDrained) return "a request of a drained queue";
  const int32_t ahead = wire::PsnDiff(bth.psn, state.next_psn);
  if (ahead > 0) return "a PSN was skipped";
  uint32_t psns = 1;
  if (packet.operation() == wire::Operation::kReadRequest) {
    psns = std::max(1u, (packet.reth().length + mtu - 1) / mtu);
  }
  const uint32_t end = wire::PsnAdd(bth.psn, psns);
  if (ahead < 0) {
    // A responder cannot handle a request that is half duplicate, half new.
    return wire::PsnDiff(end, state.next_psn) > 0
               ? "a repeated request extends beyond what was sent"
               : "";
  }
  // A READ that was split into several requests may continue.
  if (state.queue == Queue::kDraining && packet.info().starts_message &&
      packet.operation() != wire::Operation::kReadRequest &&
      ++state.begun > 1) {
    return "a draining queue begins a message";
  }
  state.next_psn = end;
  if (IsAnswered(packet)) {
    state.unanswered.push_back(wire::PsnAdd(end, -1));
    if (state.unanswered.size() > state.of.max_rd_atomic) {
      return "more READs and atomics outstanding than agreed";
    }
  }
  return "";
}

// IBA vol. 1, 9.8.1: PSNs increase by one, and messages are not interleaved.
std::string WireRules::OnUnreliable(State& state,
                                    const wire::PacketView& packet) {
  using enum wire::Operation;
  const wire::Bth& bth = packet.bth();
  const wire::OpcodeInfo& info = packet.info();
  if (packet.transport() != wire::Transport::kUc) return "not an opcode of UC";
  if (bth.ack_req && !packet.requests_uc_report()) {
    return "AckReq on an unreliable connection";
  }
  if (bth.ack_req) state.asked.insert(bth.psn);
  if (bth.psn != state.next_psn) return "a PSN that is not the next one";
  state.next_psn = wire::PsnAdd(bth.psn, 1);
  State::Open kind = State::Open::kWrite;
  switch (packet.operation()) {
    case kSendFirst:
    case kSendMiddle:
    case kSendLast:
    case kSendLastImm:
    case kSendOnly:
    case kSendOnlyImm:
      kind = State::Open::kSend;
      break;
    default:
      break;
  }
  if (state.open != (info.starts_message ? State::Open::kNone : kind)) {
    return "opcode out of sequence";
  }
  state.open = info.ends_message ? State::Open::kNone : kind;
  return "";
}

// A report must name a packet that requested one; one report each.
std::string WireRules::OnUnreliableResponse(State& state,
                                            const wire::PacketView& packet) {
  if (packet.transport() != wire::Transport::kUc) return "not an opcode of UC";
  if (wire::AethKindOf(packet.aeth().syndrome) != wire::AethKind::kAck) {
    return "a syndrome other than an ACK's";
  }
  return state.asked.erase(packet.bth().psn) == 1 ? ""
                                                  : "an answer unasked for";
}

std::string WireRules::OnResponse(State& state,
                                  const wire::PacketView& packet) {
  const wire::Bth& bth = packet.bth();
  if (!state.of.reliable) return OnUnreliableResponse(state, packet);
  if (bth.solicited || bth.ack_req) return "solicited or AckReq in a response";
  const bool nak =
      packet.operation() == wire::Operation::kAcknowledge &&
      wire::AethKindOf(packet.aeth().syndrome) != wire::AethKind::kAck;
  // A NAK names the expected PSN, which may not have been sent yet.
  if (wire::PsnDiff(bth.psn, state.next_psn) >= (nak ? 1 : 0)) {
    return "an answer to a PSN that was never sent";
  }
  return CheckPayload(packet, state.of.path_mtu);
}

void WireRules::OnDelivered(int host, const wire::PacketView& packet) {
  if (!packet.info().is_response) return;
  const auto it = by_requester_.find({host, packet.bth().dest_qpn});
  if (it == by_requester_.end()) return;
  std::erase(it->second->unanswered, packet.bth().psn);
}

}  // namespace sim
