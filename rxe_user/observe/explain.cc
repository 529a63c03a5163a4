#include "rxe_user/observe/explain.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rxe_user/base/qpn.h"
#include "rxe_user/observe/peer_finding.h"
#include "rxe_user/observe/refusals.h"
#include "rxe_user/observe/status_text.h"
#include "transport/base/rare_event.h"
#include "transport/qp/state_table.h"
#include "wire/aeth.h"

namespace rxe_user {
namespace {

using transport::Reason;

constexpr uint64_t kSecond = 1'000'000'000;
// A completion that lies unpolled for this long is worth a line.
constexpr uint64_t kLongUnpolled = kSecond / 10;
// Events of the chain that are shown: the first ones and the last ones.
constexpr size_t kShownEvents = 24;

absl::string_view View(std::string_view text) {
  return {text.data(), text.size()};
}

std::string Seconds(uint64_t ns) {
  return absl::StrFormat("%.3f s", static_cast<double>(ns) / kSecond);
}

uint64_t Since(uint64_t now, uint64_t then) {
  return now > then ? now - then : 0;
}

void Line(std::string_view label, std::string_view text, std::string* out) {
  absl::StrAppendFormat(out, "  %-14s%s\n", View(label), View(text));
}

std::string StateStep(uint64_t value) {
  return absl::StrCat(
      transport::NameOf(static_cast<transport::QpState>(value >> 8)), " -> ",
      transport::NameOf(static_cast<transport::QpState>(value & 0xff)));
}

// The rules for faults of a process, by number.
using Rules = std::map<uint64_t, std::string>;

Rules RulesOf(const Witness& process) {
  Rules rules;
  for (const ReportRecord& record : process.records) {
    if (record.kind != "fault_rule") continue;
    std::string text = record.Word("text");
    std::replace(text.begin(), text.end(), kRuleBlank, ' ');
    rules[record.Number("number")] = text;
  }
  return rules;
}

// "rule 1 (drop rx op=ack)".
std::string RuleName(uint64_t number, const Rules& rules) {
  const auto rule = rules.find(number);
  return absl::StrCat("rule ", number,
                      rule != rules.end() ? " (" + rule->second + ")" : "");
}

// "drop"; empty: not known.
std::string ActionOf(uint64_t number, const Rules& rules) {
  const auto rule = rules.find(number);
  return rule == rules.end() ? ""
                             : rule->second.substr(0, rule->second.find(' '));
}

// What rules with the action hit.
const char* TargetOf(const std::string& action) {
  if (action == "unmap") return "transfer";
  return action == "complete" || action == "overrun" ||
                 action == "late-completion"
             ? "completion"
             : "packet";
}

// Lines for the rules that hit packets of the queue pair. `whose`: "this queue
// pair", or the peer's. Adds the actions of the rules.
void ExplainFaults(const Witness& process, uint64_t qpn, std::string_view whose,
                   std::set<std::string>* actions, std::string* out) {
  std::map<uint64_t, uint64_t> hits;
  for (const ReportRecord& record : process.records) {
    if (record.kind == "event" && record.Number("qpn") == qpn &&
        record.Word("kind") == "fault") {
      hits[record.Number("value")] += record.Number("count");
    }
  }
  if (hits.empty()) return;
  const Rules rules = RulesOf(process);
  for (const auto& [number, count] : hits) {
    Line("on command",
         absl::StrCat(RuleName(number, rules), " for faults hit ", count, " ",
                      TargetOf(ActionOf(number, rules)), count == 1 ? "" : "s",
                      " of ", View(whose)),
         out);
    actions->insert(ActionOf(number, rules));
  }
}

std::string EventText(const ReportRecord& event, const Rules& rules) {
  const std::string kind = event.Word("kind");
  const uint64_t value = event.Number("value");
  if (kind == "state") {
    const transport::ReasonText* const reason =
        transport::FindReason(static_cast<uint32_t>(event.Number("reason")));
    const bool failed = (value & 0xff) >= 5;  // SQE, ERR
    return absl::StrCat("state ", StateStep(value),
                        failed && reason != nullptr
                            ? absl::StrCat(": ", View(reason->name), " (",
                                           event.Number("reason"), ")")
                            : "");
  }
  std::string text = kind;
  std::replace(text.begin(), text.end(), '_', ' ');
  for (const transport::RareEventText& known : transport::kRareEvents) {
    if (known.name == kind) text = known.help;
  }
  if (kind == "fault") {
    absl::StrAppend(&text, " hit a ", TargetOf(ActionOf(value, rules)), ", by ",
                    RuleName(value, rules));
  }
  if (kind == "rnr_nak_received" || kind == "rnr_nak_sent") {
    absl::StrAppendFormat(
        &text, "; to be sent again after %.2f ms (min_rnr_timer %d)",
        static_cast<double>(
            wire::RnrTimerNanos(static_cast<uint8_t>(value & 31))) /
            1e6,
        value & 31);
  }
  if (event.Number("count") > 1) {
    absl::StrAppend(
        &text, ", ", event.Number("count"), " times in ",
        Seconds(Since(event.Number("last_ns"), event.Number("time_ns"))));
  }
  absl::StrAppendFormat(&text, " [%s, PSN %d]", kind, event.Number("psn"));
  return text;
}

std::string Chain(const std::vector<const ReportRecord*>& events,
                  const Rules& rules, uint64_t now) {
  std::string text;
  for (size_t i = 0; i < events.size(); ++i) {
    if (events.size() > kShownEvents && i == kShownEvents / 2) {
      const size_t left_out = events.size() - kShownEvents;
      absl::StrAppend(&text, "    ... ", left_out, " more\n");
      i += left_out;
    }
    absl::StrAppendFormat(
        &text, "    %9.3f s  %s\n",
        -static_cast<double>(Since(now, events[i]->Number("time_ns"))) /
            kSecond,
        EventText(*events[i], rules));
  }
  return text;
}

// A completion queue of a queue pair; `prefix`: "send_cq_" or "recv_cq_".
void ExplainCq(const ReportRecord& qp, const std::string& prefix, uint64_t now,
               std::string* out) {
  if (qp.Number(prefix + "overrun") != 0) {
    Line("overrun",
         "the " + std::string(prefix == "send_cq_" ? "send" : "receive") +
             " completion queue was full, and completions were lost",
         out);
  }
  const uint64_t unpolled = qp.Number(prefix + "unpolled");
  const uint64_t age = Since(now, qp.Number(prefix + "oldest_ns"));
  if (unpolled == 0 || age < kLongUnpolled) return;
  std::string text = absl::StrCat(
      unpolled, unpolled == 1 ? " completion lies" : " completions lie",
      " unpolled in the ", prefix == "send_cq_" ? "send" : "receive",
      " completion queue, the oldest for ", Seconds(age));
  if (qp.Number(prefix + "channel") == 0) {
    absl::StrAppend(&text,
                    "; the queue has no completion channel, so the program "
                    "has to poll it (ibv_poll_cq(3))");
  } else if (qp.Number(prefix + "armed") != 0) {
    absl::StrAppend(&text,
                    "; the queue is armed: the completions were there before, "
                    "and only new ones raise an event. Poll once more after "
                    "ibv_req_notify_cq(3)");
  } else {
    absl::StrAppend(&text,
                    "; the queue is not armed (ibv_req_notify_cq(3)), so no "
                    "event tells the program. Arm it, then poll until it is "
                    "empty, then wait (ibv_get_cq_event(3))");
  }
  Line("unpolled", text, out);
}

void ExplainWaiting(const ReportRecord& qp, uint64_t now, bool* long_silence,
                    std::string* out) {
  const uint64_t queued = qp.Number("send_queued");
  const std::string what = qp.Word("waits_for");
  const std::string peer = absl::StrFormat("0x%06x", qp.Number("peer_qpn"));
  if (queued > 0) {
    Line("outstanding",
         absl::StrFormat("%d send work requests, the oldest with wr_id %d",
                         queued, qp.Number("wr_id")),
         out);
  }
  if (queued > 0 && what == "ack") {
    const uint64_t since = qp.Number("waits_since_ns");
    const uint64_t age = since > 0 ? Since(now, since) : 0;
    *long_silence = age > kSecond / 2;
    Line("waits for",
         absl::StrCat("an acknowledgement of queue pair ", peer,
                      since > 0 ? " since " + Seconds(age) : "", " (PSN ",
                      qp.Number("unacked_psn"), ")"),
         out);
  } else if (queued > 0 && what == "rnr_timer") {
    const uint64_t until = qp.Number("waits_until_ns");
    Line("waits for",
         absl::StrCat("the RNR timer, for another ", Seconds(Since(until, now)),
                      ": the peer had no receive posted. The peer's "
                      "min_rnr_timer sets it; 0 means 655.36 ms"),
         out);
  } else if (queued > 0 && what == "credits") {
    Line("waits for",
         "credits: the peer allows no more messages until it posts receives",
         out);
  } else if (queued > 0 && what == "window") {
    Line("waits for",
         absl::StrCat("the path's window (", qp.Number("in_flight"), " of ",
                      qp.Number("window"), " bytes in flight), or its turn"),
         out);
  } else if (queued > 0 && what == "resume") {
    Line("waits for", "the program, which moved the queue pair to SQD", out);
  } else if (qp.Number("recv_queued") > 0 && qp.Word("state") != "ERR") {
    Line("waits for",
         absl::StrCat("a message of the peer; ", qp.Number("recv_queued"),
                      " receives are posted"),
         out);
  } else if (qp.Number("recv_queued") == 0 && qp.Number("uses_srq") == 0 &&
             qp.Word("state") == "RTS") {
    Line("receives", "none is posted: a SEND of the peer has to wait", out);
  }
}

constexpr std::string_view kByCommand = "the faults on command";

// Whether packets that are lost can be the cause.
bool IsSilence(Reason reason) {
  return reason == Reason::kNeverAnswered || reason == Reason::kPeerSilent ||
         reason == Reason::kNoProgress || reason == Reason::kGapRepeated;
}

// Whether faults with these actions can be the cause.
bool IsByCommand(Reason reason, const std::set<std::string>& actions) {
  switch (reason) {
    case Reason::kRnrRetriesExceeded:
      return actions.contains("rnr");
    case Reason::kNakAccess:
    case Reason::kNakInvalidRequest:
    case Reason::kNakOperational:
      return actions.contains("nak") || actions.contains("unmap");
    case Reason::kFaultOnCommand:
      return true;
    case Reason::kCqOverrun:
      return actions.contains("overrun");
    case Reason::kLocalFault:
    case Reason::kRemoteFault:
      return actions.contains("unmap");
    default:
      return !actions.empty() && IsSilence(reason);
  }
}

void ExplainRetries(const ReportRecord& qp, std::string* out) {
  uint64_t packets = 0;
  for (const auto& [name, value] : qp.counters) {
    if (name == "retrans_pkts") packets = value;
  }
  const uint64_t timeout = qp.Number("timeout") & 31;
  Line("gave up",
       absl::StrCat(
           "after ", packets,
           packets == 1 ? " retransmission" : " retransmissions",
           timeout == 0
               ? "; timeout 0 sets no limit"
               : absl::StrFormat(
                     "; timeout %d is %.1f ms without an acknowledgement, and "
                     "retry_cnt allows %d of them in a row",
                     timeout, 4096e-6 * static_cast<double>(1ull << timeout),
                     qp.Number("retry_cnt") + 1)),
       out);
}

// PSN of what the queue pair waits for. In ERR it has forgotten that; what
// ended it says it.
std::optional<uint32_t> UnackedPsn(
    const ReportRecord& qp, const std::vector<const ReportRecord*>& events) {
  if (qp.Number("send_psn") != qp.Number("unacked_psn")) {
    return static_cast<uint32_t>(qp.Number("unacked_psn"));
  }
  std::optional<uint32_t> psn;
  for (const ReportRecord* event : events) {
    if (event->Word("kind") == "retries_exceeded") {
      psn = static_cast<uint32_t>(event->Number("psn"));
    }
  }
  return psn;
}

// What a process reports of one queue pair.
struct QueuePairRecords {
  const ReportRecord* qp = nullptr;  // null: it was destroyed
  std::vector<const ReportRecord*> events;
  uint64_t now = 0;   // of its device, ns
  uint64_t lost = 0;  // events that the process no longer has
};

QueuePairRecords RecordsOf(const Witness& process, uint32_t qpn) {
  QueuePairRecords out;
  uint64_t device_now = 0;
  for (const ReportRecord& record : process.records) {
    if (record.kind == "device") device_now = record.Number("now_ns");
    if (record.kind == "lane") out.lost += record.Number("events_lost");
    if (record.Number("qpn") != qpn) continue;
    if (record.kind == "queue_pair") out.qp = &record;
    if (record.kind == "event") out.events.push_back(&record);
    out.now = device_now;
  }
  return out;
}

// The first line. `qp`: null if it was destroyed.
std::string HeadLine(const Witness& process, uint32_t qpn,
                     const ReportRecord* qp) {
  std::string text = absl::StrFormat("queue pair 0x%06x (%d)", qpn, qpn);
  if (qp != nullptr) {
    absl::StrAppend(&text, ", ", qp->Word("type"), ", ", qp->Word("state"));
    if (qp->Number("peer_qpn") != 0) {
      absl::StrAppendFormat(&text, ", to 0x%06x at %s", qp->Number("peer_qpn"),
                            qp->Word("peer_address"));
    }
  } else {
    absl::StrAppend(&text, ", destroyed");
  }
  absl::StrAppend(&text, ", process ", process.pid, " (", process.command,
                  ")\n");
  return text;
}

}  // namespace

Witness WitnessOf(pid_t pid, std::string_view report) {
  Witness witness;
  witness.pid = pid;
  auto records = ParseReport(report);
  if (!records) return witness;
  for (const ReportRecord& record : *records) {
    if (record.kind == "process") witness.command = record.Word("command");
  }
  witness.records = *std::move(records);
  return witness;
}

std::vector<uint32_t> QueuePairsOf(const Witness& process) {
  std::set<uint32_t> numbers;
  for (const ReportRecord& record : process.records) {
    if (record.kind == "queue_pair" || record.kind == "event") {
      numbers.insert(static_cast<uint32_t>(record.Number("qpn")));
    }
  }
  return {numbers.begin(), numbers.end()};
}

std::string ExplainQueuePair(const Witness& own, uint32_t qpn,
                             const std::vector<Witness>& others,
                             WitnessOrigin origin) {
  const auto [qp, events, now, lost] = RecordsOf(own, qpn);
  if (qp == nullptr && events.empty()) return "";

  uint64_t error = qp != nullptr ? qp->Number("first_error") : 0;
  for (const ReportRecord* event : events) {
    if (qp == nullptr && error == 0) error = event->Number("reason");
  }
  std::string text = HeadLine(own, qpn, qp);
  const transport::ReasonText* const reason =
      transport::FindReason(static_cast<uint32_t>(error));
  const bool failed = reason != nullptr && reason->reason != Reason::kNone;
  std::optional<PeerFinding> finding;
  bool long_silence = false;
  std::string waiting;
  if (qp != nullptr) ExplainWaiting(*qp, now, &long_silence, &waiting);
  if (qp != nullptr &&
      (long_silence || (failed && DependsOnPeer(reason->reason)))) {
    finding = FindPeer(*qp, UnackedPsn(*qp, events), others,
                       failed ? reason->reason : Reason::kNone, origin);
  }
  if (failed) {
    const StatusText& status = *FindStatus(StatusOf(reason->reason));
    Line("the program",
         absl::StrCat("saw status ", status.status, " (", View(status.name),
                      "), vendor_err ", error,
                      status.status == 5
                          ? " (or nothing but an asynchronous event)"
                          : ", and 5 (flushed) for all that followed"),
         &text);
    Line("first cause", reason->what, &text);
  }
  std::set<std::string> actions;
  ExplainFaults(own, qpn, "this queue pair", &actions, &text);
  if (qp != nullptr && qp->Number("peer_qpn") != 0) {
    for (const Witness& other : others) {
      ExplainFaults(other, qp->Number("peer_qpn"),
                    absl::StrCat("the peer, by its process ", other.pid),
                    &actions, &text);
    }
  }
  const bool by_command = failed && IsByCommand(reason->reason, actions);
  if (finding.has_value()) {
    Line("the peer", finding->what, &text);
    Line("whose side", by_command ? kByCommand : NameOf(finding->side), &text);
  } else if (failed) {
    Line("whose side", by_command ? kByCommand : NameOf(reason->side), &text);
  }
  if (failed && qp != nullptr && IsSilence(reason->reason)) {
    ExplainRetries(*qp, &text);
  }
  text += waiting;
  if (qp != nullptr) {
    ExplainCq(*qp, "send_cq_", now, &text);
    if (qp->Number("recv_cq_id") != qp->Number("send_cq_id")) {
      ExplainCq(*qp, "recv_cq_", now, &text);
    }
  }
  if (!events.empty()) {
    Line("chain", lost > 0 ? "(older events are lost)" : "", &text);
    text += Chain(events, RulesOf(own), now);
  }
  if (by_command) {
    Line("what to do",
         "Nothing is wrong beside the faults that were asked for: let the rule "
         "hit fewer packets (nth=, times=, for=), or raise timeout, retry_cnt "
         "or rnr_retry.",
         &text);
  } else if (finding.has_value() && !finding->advice.empty()) {
    Line("what to do", finding->advice, &text);
  } else if (failed) {
    Line("what to do", reason->advice, &text);
  }
  if (failed) Line("see", reason->spec, &text);
  return text;
}

std::string ExplainRefusals(const Witness& own) {
  std::string text;
  uint64_t now = 0;
  for (const ReportRecord& record : own.records) {
    if (record.kind == "device") now = record.Number("now_ns");
    if (record.kind != "refusal") continue;
    std::string check = record.Word("check");
    std::replace(check.begin(), check.end(), kBlank, ' ');
    absl::StrAppendFormat(
        &text, "%s failed with %s, %s ago%s: %s\n", record.Word("call"),
        ErrnoName(static_cast<int>(record.Number("errno"))),
        Seconds(Since(now, record.Number("time_ns"))),
        record.Number("count") > 1
            ? absl::StrCat(", ", record.Number("count"), " times")
            : "",
        check.empty() ? "no check noted" : check);
  }
  return text;
}

}  // namespace rxe_user
