#include "tools/rxe_user_cli/explain_connections.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/trace/conversation.h"
#include "tools/trace/escape.h"
#include "wire/cm.h"
#include "wire/rdma_cm.h"

namespace rxe_user_cli {
struct CmMessage {
  rxe_user::trace::CmMessageEvent event;
  std::string text;
  int64_t time = 0;

  wire::CmAttribute attribute() const {
    return wire::CmAttribute{event.attribute};
  }
  bool is_sent() const {
    return event.way == static_cast<uint8_t>(rxe_user::trace::WhichWay::kSent);
  }
};

namespace {

using rxe_user::trace::CmMessageEvent;
using rxe_user::trace::WhichWay;
using wire::CmAttribute;
using wire::CmRejectReason;

constexpr int64_t kSecond = 1'000'000'000;
// The number of messages of a chain that are shown: the first and the last.
constexpr size_t kShown = 16;

// The peer refused a request or, with a REJ, gave up a connection.
bool IsRefusal(const CmMessage& message) {
  return !message.is_sent() && (message.attribute() == CmAttribute::kRej ||
                                (message.attribute() == CmAttribute::kSidrRep &&
                                 message.event.reason != 0));
}

// What a refusal means, and what to do.
struct Advice {
  std::string_view cause;
  std::string_view side;
  std::string_view what_to_do;
};

// The reason of the REJ that means the same.
CmRejectReason ReasonOf(const CmMessage& refusal) {
  if (refusal.attribute() == CmAttribute::kRej) {
    return CmRejectReason{refusal.event.reason};
  }
  switch (wire::CmSidrStatus{static_cast<uint8_t>(refusal.event.reason)}) {
    case wire::CmSidrStatus::kInvalidServiceId:
      return CmRejectReason::kInvalidServiceId;
    case wire::CmSidrStatus::kRejected:
      return CmRejectReason::kConsumer;
    case wire::CmSidrStatus::kNoQp:
      return CmRejectReason::kNoQp;
    default:
      return CmRejectReason::kUnsupportedRequest;
  }
}

Advice AdviceFor(CmRejectReason reason) {
  switch (reason) {
    case CmRejectReason::kInvalidServiceId:
      return {"no program at that address listens on the port",
              "the peer, or the order of the start",
              "start the listening program first; compare port, port space "
              "(RDMA_PS_TCP, RDMA_PS_UDP) and address of rdma_bind_addr(3) and "
              "rdma_resolve_addr(3)"};
    case CmRejectReason::kConsumer:
      return {
          "the peer's program called rdma_reject(3), or destroyed the id "
          "before it answered",
          "the peer",
          "look at the peer's own messages; the private data of the event "
          "may say why"};
    case CmRejectReason::kStaleConnection:
      return {"the peer still has a connection with this queue pair number",
              "both: an earlier connection did not end",
              "connect again: the peer ends the old connection now"};
    case CmRejectReason::kTimeout:
      return {"the peer gave up, because answers did not reach it in time",
              "the network, or a program that answers late",
              "see which of the messages the peer received; answer requests "
              "sooner"};
    case CmRejectReason::kInvalidCommId:
      return {"the peer does not know the connection (any more)", "the peer",
              "see whether its process was restarted meanwhile"};
    case CmRejectReason::kNoQp:
    case CmRejectReason::kNoResources:
      return {"the peer has no queue pair or memory for the connection",
              "the peer", "see its limits, and what it has open"};
    default:
      return {"the peer refused the request", "the peer",
              "compare the parameters of both ends"};
  }
}

// "port 7174 (TCP)" of the RDMA IP CM service.
std::string ServiceText(uint64_t service_id) {
  std::string text = absl::StrFormat("service 0x%016x", service_id);
  const auto service = wire::ParseRdmaServiceId(service_id);
  if (!service) return text;
  const char* space = "port space";
  if (service->port_space == static_cast<uint8_t>(wire::RdmaPortSpace::kTcp)) {
    space = "RDMA_PS_TCP";
  } else if (service->port_space ==
             static_cast<uint8_t>(wire::RdmaPortSpace::kUdp)) {
    space = "RDMA_PS_UDP";
  }
  return absl::StrCat(text, " (", space, " port ", service->port, ")");
}

void Line(std::string_view label, const std::string& text, std::string* out) {
  absl::StrAppendFormat(out, "  %-14s%s\n", std::string(label), text);
}

std::string Chain(const std::vector<const CmMessage*>& messages, int64_t now) {
  std::string text;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages.size() > kShown && i == kShown / 2) {
      const size_t left_out = messages.size() - kShown;
      absl::StrAppend(&text, "    ... ", left_out, " more\n");
      i += left_out;
    }
    absl::StrAppendFormat(
        &text, "    %9.3f s  %s\n",
        -static_cast<double>(now - messages[i]->time) / kSecond,
        messages[i]->text);
  }
  return text;
}

std::string ProcessText(const trace::Timeline& timeline, size_t file) {
  const auto& about = timeline.recordings[file]->about;
  if (!about) return "";
  return absl::StrCat(", process ", about->pid, " (",
                      trace::Printable(rxe_user::trace::TextOf(about->program)),
                      ")");
}

// How often the last message was sent, if at least twice and without an answer;
// otherwise 0.
size_t Unanswered(const std::vector<const CmMessage*>& messages) {
  const CmMessage& last = *messages.back();
  if (!last.is_sent() || last.attribute() == CmAttribute::kRej ||
      last.attribute() == CmAttribute::kDrep) {
    return 0;
  }
  const auto other = std::find_if(
      messages.rbegin(), messages.rend(), [&](const CmMessage* message) {
        return !message->is_sent() || message->attribute() != last.attribute();
      });
  const auto times = static_cast<size_t>(other - messages.rbegin());
  return times >= 2 ? times : 0;
}

}  // namespace

Connections::Connections(const trace::Timeline& timeline, size_t file)
    : process_(ProcessText(timeline, file)) {
  for (const trace::TimedEvent& timed : timeline.events) {
    if (timed.file != file) continue;
    now_ = timed.time;
    if (const auto event = timed.event->As<CmMessageEvent>()) {
      messages_.push_back({*event,
                           trace::Printable(trace::EventText(*timed.event)),
                           timed.time});
    }
  }
  // Our communication ID by the peer's. A received REQ belongs to the
  // connection that answers it.
  std::map<std::pair<wire::IpAddress, uint32_t>, uint32_t> own;
  for (const CmMessage& message : messages_) {
    const auto peer = wire::IpAddress::FromGid(message.event.peer);
    if (message.event.local_id != 0 && message.event.remote_id != 0) {
      own.try_emplace({peer, message.event.remote_id}, message.event.local_id);
    }
  }
  for (const CmMessage& message : messages_) {
    const auto peer = wire::IpAddress::FromGid(message.event.peer);
    uint32_t id = message.event.local_id;
    if (id == 0) {
      const auto known = own.find({peer, message.event.remote_id});
      if (known != own.end()) id = known->second;
    }
    connections_[{peer, id}].push_back(&message);
  }
  for (const auto& [key, messages] : connections_) {
    for (const CmMessage* message : messages) {
      by_qpn_.try_emplace(message->event.header.qpn, &messages);
    }
  }
}

Connections::~Connections() = default;

std::string Connections::Failed() const {
  std::string text;
  for (const auto& [key, messages] : connections_) {
    if (key.second == 0) continue;  // not a connection of this process
    const auto refusal =
        std::find_if(messages.begin(), messages.end(),
                     [](const CmMessage* m) { return IsRefusal(*m); });
    const size_t unanswered = Unanswered(messages);
    if (refusal == messages.end() && unanswered == 0) continue;
    absl::StrAppend(&text, "connection with ", key.first.ToString());
    const auto req = std::find_if(
        messages.begin(), messages.end(),
        [](const CmMessage* m) { return m->event.service_id != 0; });
    if (req != messages.end()) {
      absl::StrAppend(&text, ", ", ServiceText((*req)->event.service_id));
    }
    absl::StrAppend(&text, process_, "\n");
    Advice advice;
    if (refusal != messages.end()) {
      advice = AdviceFor(ReasonOf(**refusal));
      const bool was_established =
          std::any_of(messages.begin(), refusal, [](const CmMessage* m) {
            return m->attribute() == CmAttribute::kRtu;
          });
      const uint16_t status = (*refusal)->event.reason;
      std::string seen;
      if (was_established) {
        seen = "DISCONNECTED";
      } else if ((*refusal)->attribute() == CmAttribute::kRej) {
        seen =
            absl::StrCat("REJECTED, status ", status, " (",
                         wire::CmRejectReasonName(CmRejectReason{status}), ")");
      } else {
        seen = absl::StrCat("UNREACHABLE, status ", status);
      }
      Line("the program", "saw RDMA_CM_EVENT_" + seen, &text);
    } else {
      std::string name = wire::CmAttributeName(messages.back()->attribute());
      Line("the program",
           absl::StrCat("waits, or saw RDMA_CM_EVENT_UNREACHABLE: a ",
                        name.substr(3), " was sent ", unanswered,
                        " times without an answer"),
           &text);
      advice = {
          "no answer arrived: the host is down or has no RDMA device at "
          "that address, or packets are lost",
          "the network, or the peer",
          "give the peer's recording, too: it tells whether the messages "
          "arrived. rxe-user devices on that host lists its devices"};
    }
    Line("first cause", std::string(advice.cause), &text);
    Line("whose side", std::string(advice.side), &text);
    Line("chain", "", &text);
    text += Chain(messages, now_);
    Line("what to do", std::string(advice.what_to_do), &text);
    Line("see", "IBA 12.6.7, 12.9; rdma_get_cm_event(3)", &text);
  }
  return text;
}

std::string Connections::MessagesOf(uint32_t qpn, int64_t now) const {
  const auto found = by_qpn_.find(qpn);
  if (found == by_qpn_.end()) return "";
  std::string text;
  Line("connection", "", &text);
  return text + Chain(*found->second, now);
}

}  // namespace rxe_user_cli
