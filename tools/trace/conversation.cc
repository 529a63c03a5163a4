#include "tools/trace/conversation.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "absl/strings/str_format.h"
#include "tools/trace/timeline_ends.h"
#include "wire/aeth.h"
#include "wire/cm.h"
#include "wire/psn.h"

namespace trace {
namespace {

using rxe_user::trace::BegunEvent;
using rxe_user::trace::CompletedEvent;
using rxe_user::trace::PolledEvent;
using rxe_user::trace::PostedEvent;
using wire::Operation;

constexpr uint32_t kUsualMtu = 1024;

bool IsRead(const Packet& packet) {
  return wire::OperationOf(packet.opcode) == Operation::kReadRequest;
}

bool IsReliable(const Packet& packet) {
  const wire::Transport transport = wire::TransportOf(packet.opcode);
  return transport == wire::Transport::kRc ||
         transport == wire::Transport::kXrc;
}

bool IsFatalNak(const Packet& p) {
  return p.info().Has(wire::kAeth) &&
         wire::AethKindOf(p.syndrome) == wire::AethKind::kNak &&
         wire::NakCodeOf(p.syndrome) != wire::NakCode::kPsnSequence;
}

const char* NakText(uint8_t syndrome) {
  switch (wire::NakCodeOf(syndrome)) {
    case wire::NakCode::kPsnSequence:
      return "PSN sequence error";
    case wire::NakCode::kInvalidRequest:
      return "invalid request";
    case wire::NakCode::kRemoteAccess:
      return "remote access error";
    case wire::NakCode::kRemoteOperational:
      return "remote operational error";
    case wire::NakCode::kInvalidRd:
      return "invalid RD request";
  }
  return "reserved code";
}

// "RDMA_WRITE" for RC_RDMA_WRITE_FIRST.
std::string OperationName(const Packet& packet) {
  std::string name = packet.info().name;
  name.erase(0, name.find('_') + 1);
  for (const char* part : {"_FIRST", "_ONLY", "_MIDDLE", "_LAST", "_REQUEST",
                           "_WITH_IMMEDIATE", "_WITH_INVALIDATE"}) {
    const size_t at = name.find(part);
    if (at != std::string::npos) name.erase(at, std::string(part).size());
  }
  return name;
}

class Analyzer {
 public:
  Analyzer(Timeline* timeline, CarriedState* carried)
      : t_(*timeline),
        carried_(*carried),
        mtus_(carried->mtus),
        ends_(*timeline) {}

  Conversation Analyze() {
    FindMtus();
    for (size_t i = 0; i < t_.arrows.size(); ++i) OnSent(i);
    FindConnections();
    FinishMessages();
    UseEvents();
    for (auto& [key, flow] : flows_) {
      if (!flow.is_noted) Note(flow);
    }
    std::stable_sort(
        c_.messages.begin(), c_.messages.end(),
        [](const Message& a, const Message& b) { return a.begin < b.begin; });
    return std::move(c_);
  }

 private:
  // Packets from one end to a queue pair of another.
  using FlowKey = CarriedState::FlowKey;
  struct Flow : CarriedState::Requests {
    FlowKey key;
    bool is_noted = false;  // in carried_
    bool has_response = false;
    uint32_t highest_response = 0;
    size_t last_answered = kNone;
    uint32_t last_response = 0;
    std::unordered_map<uint32_t, uint32_t> times;  // times sent, by PSN
    std::unordered_map<uint32_t, size_t> latest;   // arrow, by PSN
    std::vector<size_t> messages;
    std::vector<int64_t> firsts;  // PSN of each, as `highest`
    Flow* partner = nullptr;
    size_t connection = kNone;
  };

  static std::pair<size_t, size_t> Pair(const Arrow& arrow) {
    return std::minmax(arrow.from, arrow.to);
  }

  void FindMtus() {
    for (const Arrow& arrow : t_.arrows) {
      const Packet& p = arrow.packet();
      if (!p.info().full_mtu_payload) continue;
      uint32_t& mtu = mtus_[Pair(arrow)];
      mtu = std::max(mtu, p.payload);
    }
  }
  uint32_t MtuOf(const Arrow& arrow) const {
    const auto mtu = mtus_.find(Pair(arrow));
    return mtu == mtus_.end() || mtu->second == 0 ? kUsualMtu : mtu->second;
  }

  Flow& FlowOf(const Arrow& arrow) {
    const FlowKey key = {arrow.from, arrow.to, arrow.packet().qpn};
    const auto [at, is_new] = flows_.try_emplace(key);
    if (is_new) {
      at->second.key = key;
      const auto known = carried_.requests.find(key);
      if (known != carried_.requests.end()) {
        static_cast<CarriedState::Requests&>(at->second) = known->second;
      }
    }
    return at->second;
  }

  void Note(Flow& flow) {
    flow.is_noted = true;
    if (flow.has_request) carried_.requests[flow.key] = flow;
  }

  void OnSent(size_t i) {
    Arrow& arrow = t_.arrows[i];
    const Packet& p = arrow.packet();
    if (!IsReliable(p) || arrow.fate == Fate::kDuplicate) {
      if (p.info().is_request && !p.is_cm()) FlowOf(arrow);
      return;
    }
    Flow& flow = FlowOf(arrow);
    if (p.info().is_request) {
      OnRequest(i, &flow);
    } else if (p.info().is_response) {
      OnResponse(i, &flow);
    }
  }

  void OnRequest(size_t i, Flow* flow) {
    Arrow& arrow = t_.arrows[i];
    const Packet& p = arrow.packet();
    if (p.is_kept && !flow->is_noted) Note(*flow);
    uint32_t more = 0;  // PSNs
    if (IsRead(p) && p.length > 0) more = (p.length - 1) / MtuOf(arrow);
    const uint32_t last = wire::PsnAdd(p.psn, more);
    const int32_t beyond =
        flow->has_request ? wire::PsnDiff(p.psn, flow->highest_request) : 1;
    const int64_t first = flow->highest + beyond;
    if (beyond > 0) {
      flow->has_request = true;
      flow->highest_request = last;
      flow->highest = first + more;
      flow->times[p.psn] = 1;
      AddToMessage(arrow, first, last, flow);
    } else {
      arrow.repeat = flow->times[p.psn]++;
      // A READ that is resumed in the middle has its own PSN.
      if (arrow.repeat == 0) arrow.repeat = 1;
      arrow.message = MessageAt(*flow, first);
    }
    flow->latest[p.psn] = i;
    if (flow->partner == nullptr) {
      asked_[{arrow.from, arrow.to}][p.psn].push_back(flow);
    }
  }

  void AddToMessage(Arrow& arrow, int64_t first, uint32_t last, Flow* flow) {
    const Packet& p = arrow.packet();
    if (p.info().starts_message || flow->messages.empty()) {
      Message message;
      // This part may contain only the rest of a message.
      if (p.info().starts_message || flow->numbered == 0) ++flow->numbered;
      message.number = flow->numbered;
      message.shown = p.shown;
      message.end = arrow.from;
      message.name = OperationName(p);
      message.first_psn = p.psn;
      message.bytes = p.length;
      message.begin = arrow.start();
      flow->messages.push_back(c_.messages.size());
      flow->firsts.push_back(first);
      c_.messages.push_back(message);
    }
    Message& message = c_.messages[flow->messages.back()];
    message.last_psn = last;
    // A RETH contains the length of the whole message.
    if (!message.name.starts_with("RDMA")) message.bytes += p.payload;
    arrow.message = message.number;
  }

  // `psn`: counted as Flow::highest.
  uint32_t MessageAt(const Flow& flow, int64_t psn) const {
    const auto after =
        std::upper_bound(flow.firsts.begin(), flow.firsts.end(), psn);
    if (after == flow.firsts.begin()) return 0;
    return c_.messages[flow.messages[after - flow.firsts.begin() - 1]].number;
  }

  // The flow that this one answers: the last flow that has no other partner and
  // has a request with this PSN.
  Flow* FindPartner(const Arrow& arrow, Flow* flow) {
    if (flow->partner != nullptr) return flow->partner;
    const auto others = asked_.find({arrow.to, arrow.from});
    if (others == asked_.end()) return nullptr;
    const auto found = others->second.find(arrow.packet().psn);
    if (found == others->second.end()) return nullptr;
    std::vector<Flow*>& asked = found->second;
    while (!asked.empty() && asked.back()->partner != nullptr) asked.pop_back();
    if (asked.empty()) return nullptr;
    flow->partner = asked.back();
    flow->partner->partner = flow;
    return flow->partner;
  }

  void OnResponse(size_t i, Flow* flow) {
    Arrow& arrow = t_.arrows[i];
    const Packet& p = arrow.packet();
    if (!p.is_acknowledge()) {
      const bool is_new = !flow->has_response ||
                          wire::PsnDiff(p.psn, flow->highest_response) > 0;
      if (is_new) {
        flow->has_response = true;
        flow->highest_response = p.psn;
      } else {
        arrow.repeat = 1;
      }
    }
    Flow* const requests = FindPartner(arrow, flow);
    if (requests == nullptr) return;
    const auto request = requests->latest.find(p.psn);
    if (request != requests->latest.end()) {
      arrow.answers = request->second;
    } else if (flow->last_answered != kNone &&
               wire::PsnDiff(p.psn, flow->last_response) == 1) {
      arrow.answers = flow->last_answered;  // a later packet of a READ
    }
    flow->last_answered = arrow.answers;
    flow->last_response = p.psn;
    if (arrow.answers != kNone) {
      arrow.message = t_.arrows[arrow.answers].message;
    }
  }

  void FindConnections() {
    for (auto& [key, flow] : flows_) {
      if (flow.connection != kNone) continue;
      const auto [from, to, qpn] = key;
      Connection connection = {
          from, to,
          flow.partner != nullptr ? std::get<2>(flow.partner->key) : 0, qpn};
      if (connection.a > connection.b) {
        std::swap(connection.a, connection.b);
        std::swap(connection.qpn_a, connection.qpn_b);
      }
      flow.connection = c_.connections.size();
      if (flow.partner != nullptr) flow.partner->connection = flow.connection;
      c_.connections.push_back(connection);
    }
    for (Arrow& arrow : t_.arrows) {
      const auto at = flows_.find({arrow.from, arrow.to, arrow.packet().qpn});
      if (at == flows_.end()) continue;
      arrow.connection = at->second.connection;
      if (at->second.partner != nullptr && arrow.local_qpn == 0) {
        arrow.local_qpn = std::get<2>(at->second.partner->key);
      }
    }
    for (auto& [key, flow] : flows_) {
      for (const size_t m : flow.messages) {
        c_.messages[m].connection = flow.connection;
      }
    }
  }

  // A message is done when its requester gets an acknowledgement of its last
  // packet or of a later one; a READ is done when it gets its last response.
  void FinishMessages() {
    std::vector<size_t> answers;
    for (size_t i = 0; i < t_.arrows.size(); ++i) {
      const Arrow& arrow = t_.arrows[i];
      const bool is_here = arrow.t1 != kNoTime || arrow.fate == Fate::kUnseen;
      if (is_here && IsReliable(arrow.packet()) &&
          arrow.packet().info().is_response) {
        answers.push_back(i);
      }
    }
    std::stable_sort(answers.begin(), answers.end(), [&](size_t a, size_t b) {
      return t_.arrows[a].end() < t_.arrows[b].end();
    });
    std::map<Flow*, size_t> next;  // the first message that is not done
    for (const size_t i : answers) {
      const Arrow& arrow = t_.arrows[i];
      Flow* const requests = FlowOf(arrow).partner;
      if (requests == nullptr) continue;
      const Packet& p = arrow.packet();
      size_t& n = next[requests];
      while (n < requests->messages.size()) {
        Message& message = c_.messages[requests->messages[n]];
        if (message.begin > arrow.end()) break;
        if (!Finishes(p, message)) break;
        message.done = arrow.end();
        if (IsFatalNak(p)) message.error = NakText(p.syndrome);
        ++n;
        if (!message.error.empty()) {
          n = requests->messages.size();  // later messages never get one
        }
      }
    }
  }

  static bool Finishes(const Packet& p, const Message& message) {
    const bool is_ack = !p.info().Has(wire::kAeth) ||
                        wire::AethKindOf(p.syndrome) == wire::AethKind::kAck;
    if (IsFatalNak(p)) return wire::PsnDiff(p.psn, message.first_psn) >= 0;
    if (!is_ack) return false;
    const int32_t beyond = wire::PsnDiff(p.psn, message.last_psn);
    // Acknowledgements do not cover the data of a READ.
    if (message.name == "RDMA_READ" && p.is_acknowledge()) return beyond > 0;
    return beyond >= 0;
  }

  // --- Work requests of recordings.

  void IndexConnections() {
    for (size_t n = 0; n < c_.connections.size(); ++n) {
      const Connection& c = c_.connections[n];
      connections_.try_emplace({c.a, c.qpn_a}, n);
      connections_.try_emplace({c.b, c.qpn_b}, n);
    }
  }

  size_t ConnectionOf(size_t end, uint32_t qpn) const {
    const auto at = connections_.find({end, qpn});
    return at == connections_.end() ? kNone : at->second;
  }

  void UseEvents() {
    IndexConnections();
    // Message by file and event id: of the posted, and of the completed event.
    std::map<std::pair<size_t, uint64_t>, size_t> posted;
    std::map<std::pair<size_t, uint64_t>, size_t> completed;
    std::map<std::pair<size_t, uint32_t>, uint32_t> numbers = carried_.posted;
    std::vector<Message> requests;
    for (const TimedEvent& e : t_.events) {
      const uint32_t qpn = e.event->header().qpn;
      if (const auto post = e.event->As<PostedEvent>()) {
        if (post->queue != 0 || post->error != 0) continue;
        Message message;
        message.number = ++numbers[{e.file, qpn}];
        message.shown = e.shown;
        if (!e.is_kept) carried_.posted[{e.file, qpn}] = message.number;
        message.end = ends_.Find(e.file, qpn);
        message.connection = ConnectionOf(message.end, qpn);
        for (const Event::Value& value : e.event->Values()) {
          if (value.field->name == "opcode") message.name = value.text;
        }
        message.bytes = post->bytes;
        message.begin = e.time;
        message.has_wr_id = true;
        message.wr_id = post->wr_id;
        posted[{e.file, post->header.id}] = requests.size();
        requests.push_back(message);
      } else if (const auto begun = e.event->As<BegunEvent>()) {
        const auto at = posted.find({e.file, begun->header.cause});
        if (at == posted.end()) continue;
        requests[at->second].first_psn = begun->first_psn;
        requests[at->second].last_psn = begun->last_psn;
        if (begun->message != 0) requests[at->second].number = begun->message;
      } else if (const auto done = e.event->As<CompletedEvent>()) {
        const auto at = posted.find({e.file, done->posted});
        if (at == posted.end()) continue;
        Message& message = requests[at->second];
        message.done = e.time;
        if (done->status != 0) {
          message.error = std::string(rxe_user::trace::NameOf(
              rxe_user::trace::StatusNames(), done->status));
        }
        completed[{e.file, done->header.id}] = at->second;
      } else if (const auto poll = e.event->As<PolledEvent>()) {
        const auto at = completed.find({e.file, poll->header.cause});
        if (at != completed.end()) requests[at->second].polled = e.time;
      }
    }
    if (numbers.empty()) return;
    // Events of an end replace what its packets show.
    std::set<std::pair<size_t, size_t>> replaced;  // end, connection or kNone
    for (const auto& [of, number] : numbers) {
      const size_t end = ends_.Find(of.first, of.second);
      replaced.insert({end, ConnectionOf(end, of.second)});
    }
    std::erase_if(c_.messages, [&](const Message& message) {
      return replaced.contains({message.end, kNone}) ||
             replaced.contains({message.end, message.connection});
    });
    for (Message& message : requests) {
      if (message.end != kNone) c_.messages.push_back(std::move(message));
    }
  }

  Timeline& t_;
  CarriedState& carried_;
  Conversation c_;
  std::map<std::pair<size_t, size_t>, uint32_t>& mtus_;
  std::map<FlowKey, Flow> flows_;
  // Flows without a partner, by their ends and the PSNs of their requests.
  std::map<std::pair<size_t, size_t>,
           std::unordered_map<uint32_t, std::vector<Flow*>>>
      asked_;
  const EndIndex ends_;
  std::map<std::pair<size_t, uint32_t>, size_t> connections_;  // by end, QPN
};

std::string Number(uint64_t number) { return std::to_string(number); }

// "CM REQ", "CM REJ: INVALID_SERVICE_ID". `reason`: as in CmMessageEvent.
std::string CmText(uint16_t attribute, uint16_t reason) {
  std::string text = wire::CmAttributeName(wire::CmAttribute{attribute});
  std::replace(text.begin(), text.end(), '_', ' ');
  if (reason == 0) return text;
  if (attribute == static_cast<uint16_t>(wire::CmAttribute::kRej)) {
    text += std::string(": ") +
            wire::CmRejectReasonName(wire::CmRejectReason{reason});
  } else {
    text += ": status " + Number(reason);
  }
  return text;
}

}  // namespace

Conversation Analyze(Timeline* timeline, CarriedState* carried) {
  return Analyzer(timeline, carried).Analyze();
}

Conversation Analyze(Timeline* timeline) {
  CarriedState carried;
  return Analyze(timeline, &carried);
}

std::string ConnectionName(const Timeline& timeline, const Connection& c) {
  const auto side = [&](size_t end, uint32_t qpn) {
    return timeline.ends[end].name +
           (qpn == 0 ? " ?" : absl::StrFormat(" 0x%06x", qpn));
  };
  return side(c.a, c.qpn_a) + " - " + side(c.b, c.qpn_b);
}

std::string PacketText(const Packet& p) {
  if (p.is_cnp()) return "CNP: congestion";
  if (p.is_cm()) return CmText(p.cm_attribute, p.cm_reason);
  const bool has_aeth = p.info().Has(wire::kAeth);
  if (p.is_acknowledge() && has_aeth) {
    switch (wire::AethKindOf(p.syndrome)) {
      case wire::AethKind::kAck:
        return "ACK " + Number(p.psn) + " msn " + Number(p.msn);
      case wire::AethKind::kRnrNak:
        return "RNR NAK " + Number(p.psn) + ", wait " +
               Number(static_cast<uint64_t>(
                   wire::RnrTimerNanos(wire::AethValueOf(p.syndrome)) / 1000)) +
               " us";
      case wire::AethKind::kNak:
        if (wire::NakCodeOf(p.syndrome) == wire::NakCode::kPsnSequence) {
          return "NAK PSN sequence error, wants " + Number(p.psn);
        }
        return std::string("NAK ") + NakText(p.syndrome) + " at " +
               Number(p.psn);
      case wire::AethKind::kReserved:
        return "ACK with a reserved syndrome";
    }
  }
  std::string text = p.info().name;
  text.erase(0, text.find('_') + 1);
  if (text.starts_with("RDMA_")) text.erase(0, 5);
  std::replace(text.begin(), text.end(), '_', ' ');
  text += " " + Number(p.psn);
  if (IsRead(p)) {
    text += " asks " + Number(p.length) + " B";
  } else if (p.payload != 0) {
    text += " " + Number(p.payload) + " B";
  }
  if (p.ack_req) text += " ackreq";
  return text;
}

std::string EventText(const Event& event) {
  std::map<std::string_view, std::string> v;
  for (const Event::Value& value : event.Values()) {
    v[value.field->name] = value.text;
  }
  using rxe_user::trace::EventType;
  switch (static_cast<EventType>(event.header().type)) {
    case EventType::kRecording:
      return "recording of " + v["program"] + "[" + v["pid"] + "] begins";
    case EventType::kCall:
      return v["function"] + "(" + v["arguments"] + ") = " + v["result"] +
             (v["error"] == "0" ? "" : ", errno " + v["error"]);
    case EventType::kPosted:
      return "posted " + (v["queue"] == "send" ? v["opcode"] : v["queue"]) +
             " wr_id " + v["wr_id"] + ", " + v["bytes"] + " B" +
             (v["error"] == "0" ? "" : ": refused, errno " + v["error"]);
    case EventType::kBegun:
      return "begun wr_id " + v["wr_id"] + ": PSN " + v["first_psn"] + " to " +
             v["last_psn"];
    case EventType::kCompleted:
      return "completed wr_id " + v["wr_id"] + ": " + v["status"];
    case EventType::kPolled:
      return "polled wr_id " + v["wr_id"];
    case EventType::kQpState:
      return "state " + v["from"] + " to " + v["to"];
    case EventType::kTimer:
      return v["kind"] + " " + v["action"] + ", for " + v["psn"];
    case EventType::kRetransmission:
      return "sends " + v["first_psn"] + " to " + v["last_psn"] +
             " again: " + v["why"];
    case EventType::kPath:
      return "window " + v["window"] + " B, in flight " + v["in_flight"] +
             " B, rate " + v["rate"] + " B/s, round trip " + v["round_trip"] +
             " ns";
    case EventType::kCnp:
      return "CNP " + v["way"] + ", rate " + v["rate"] + " B/s";
    case EventType::kAsyncEvent:
      return "event " + v["event"] + " of " + v["object"];
    case EventType::kNotification:
      return "CQ " + v["cq"] + " " + v["action"];
    case EventType::kCmMessage: {
      const auto message = event.As<rxe_user::trace::CmMessageEvent>();
      return CmText(message->attribute, message->reason) +
             (v["way"] == "sent" ? " sent to " : " received from ") +
             v["peer"] +
             (message->service_id == 0 ? "" : ", service " + v["service_id"]);
    }
    case EventType::kOverflow:
      return v["packets"] + " packets dropped: the receive buffer was full";
    case EventType::kFault:
      return "fault on command: " + v["action"] + ", rule " + v["rule"] + " (" +
             v["text"] + ")";
    case EventType::kFaultRule:
      return "fault rule " + v["rule"] + " (" + v["text"] + ") fired " +
             v["fired"] + " times";
    case EventType::kMissed:
      return v["events"] + " events and " + v["packets"] +
             " packets are missing here";
    case EventType::kIncident: {
      std::string kind = v["kind"];
      std::replace(kind.begin(), kind.end(), '_', ' ');
      return kind + ", PSN " + v["psn"];
    }
    case EventType::kPacket:
      break;
  }
  return event.name();
}

}  // namespace trace
