#include "rxe_user/observe/report_text.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rxe_user/base/random.h"
#include "rxe_user/observe/refusals.h"
#include "transport/qp/qp_type.h"
#include "transport/qp/state_table.h"

namespace rxe_user {
namespace {

constexpr std::string_view kMagic = "rxe_user-stat ";
constexpr std::string_view kEnd = "end";
// A line or value takes up to 80 bytes of memory. So the number of both is
// limited to one per kMinBytes of the text, plus kShortReport.
constexpr size_t kMinBytes = 8;
constexpr size_t kShortReport = 1000;

bool IsPlain(char c) { return c > ' ' && c < 0x7f && c != '"'; }

class Writer {
 public:
  void Begin(std::string_view kind) { text_.append(kind); }
  void Number(std::string_view name, uint64_t value) {
    absl::StrAppend(&text_, " ", View(name), "=", value);
  }
  void Word(std::string_view name, std::string_view value) {
    absl::StrAppend(&text_, " ", View(name), "=\"");
    for (const char c : value) text_ += IsPlain(c) ? c : '?';
    text_ += '"';
  }
  void End(const std::vector<CounterValue>& counters) {
    if (!counters.empty()) text_ += " |";
    for (const CounterValue& value : counters) {
      Number(value.counter->name, value.value);
    }
    text_ += '\n';
  }
  void End(const std::vector<std::pair<std::string, uint64_t>>& counters) {
    if (!counters.empty()) text_ += " |";
    for (const auto& [name, value] : counters) Number(name, value);
    text_ += '\n';
  }
  void End() { text_ += '\n'; }
  std::string Take() { return std::move(text_); }

 private:
  static absl::string_view View(std::string_view text) {
    return {text.data(), text.size()};
  }
  std::string text_;
};

// Distinguishes processes with the same ID in different PID namespaces.
uint64_t InstanceOfThisProcess() {
  static const uint64_t instance = SecureRandom32();
  return instance;
}

void WriteProcess(Writer* out) {
  out->Begin(absl::StrCat("rxe_user-stat ", kReportVersion));
  out->End();
  out->Begin("process");
  out->Number("pid", static_cast<uint64_t>(::getpid()));
  out->Number("instance", InstanceOfThisProcess());
  out->Word("command", program_invocation_short_name);
  out->End();
}

const char* NameOf(transport::WaitsFor what) {
  // In the order of WaitsFor.
  static constexpr const char* kNames[] = {"nothing", "ack",    "rnr_timer",
                                           "credits", "window", "resume"};
  static_assert(std::size(kNames) ==
                static_cast<size_t>(transport::WaitsFor::kResume) + 1);
  return kNames[static_cast<size_t>(what)];
}

void WriteRefusals(Writer* out) {
  for (const Refusal& refusal : Refusals()) {
    std::string check = refusal.check;
    std::replace(check.begin(), check.end(), ' ', kBlank);
    out->Begin("refusal");
    out->Word("call", refusal.call);
    out->Number("errno", static_cast<uint64_t>(refusal.error));
    out->Word("check", check);
    out->Number("time_ns", static_cast<uint64_t>(refusal.time));
    out->Number("count", refusal.count);
    out->End();
  }
}

void WriteFaultRules(const std::vector<FaultRuleStatus>& rules, Writer* out) {
  for (const FaultRuleStatus& rule : rules) {
    std::string text = rule.text;
    std::replace(text.begin(), text.end(), ' ', kRuleBlank);
    out->Begin("fault_rule");
    out->Number("number", rule.number);
    out->Word("text", text);
    out->Number("matched", rule.matched);
    out->Number("fired", rule.fired);
    out->Number("maybe", rule.maybe ? 1 : 0);
    out->End();
  }
}

// `prefix`: "send_cq_" or "recv_cq_".
void WriteCq(const std::string& prefix, const transport::CqReport& cq,
             Writer* out) {
  if (cq.id == 0) return;
  out->Number(prefix + "id", cq.id);
  out->Number(prefix + "capacity", cq.capacity);
  out->Number(prefix + "unpolled", cq.unpolled);
  if (cq.unpolled > 0) {
    out->Number(prefix + "oldest_ns", static_cast<uint64_t>(cq.oldest));
  }
  out->Number(prefix + "channel", cq.has_channel ? 1 : 0);
  out->Number(prefix + "armed", cq.armed ? 1 : 0);
  out->Number(prefix + "overrun", cq.overrun ? 1 : 0);
}

void WriteEvent(size_t lane, const RecordedEvent& recorded, Writer* out) {
  const transport::RareEvent& event = recorded.event;
  out->Begin("event");
  out->Number("lane", lane);
  out->Number("qpn", event.qpn);
  out->Word("kind", transport::TextOf(event.kind).name);
  out->Number("reason", static_cast<uint64_t>(event.reason));
  out->Number("value", event.value);
  out->Number("psn", event.psn);
  out->Number("time_ns", static_cast<uint64_t>(event.time));
  out->Number("last_ns", static_cast<uint64_t>(recorded.last));
  out->Number("count", recorded.count);
  out->End();
}

void WriteQueuePair(size_t lane, const transport::QpReport& qp, bool by_memory,
                    Writer* out) {
  out->Begin("queue_pair");
  out->Number("lane", lane);
  out->Number("qpn", qp.qpn);
  out->Word("type", transport::TraitsOf(qp.type).name);
  out->Word("state", transport::NameOf(qp.state));
  if (qp.path_mtu != 0 && !qp.destination.is_unspecified()) {
    out->Number("peer_qpn", qp.dest_qpn);
    out->Word("address", qp.source.ToString());
    out->Word("peer_address", qp.destination.ToString());
    out->Number("source_port", qp.source_port);
    out->Word("medium", by_memory ? "memory" : "udp");
    out->Number("path_mtu", qp.path_mtu);
    out->Number("window", qp.window);
    out->Number("in_flight", qp.in_flight);
    out->Number("paused", qp.paused);
    out->Number("smoothed_rtt_ns", static_cast<uint64_t>(qp.smoothed_rtt));
  }
  out->Number("send_psn", qp.send_psn);
  out->Number("unacked_psn", qp.unacked_psn);
  out->Number("expected_psn", qp.expected_psn);
  out->Number("send_queued", qp.send_queued);
  out->Number("recv_queued", qp.recv_queued);
  out->Number("uses_srq", qp.uses_srq ? 1 : 0);
  out->Number("first_error", static_cast<uint64_t>(qp.first_error));
  if (qp.send_queued > 0) {
    out->Number("wr_id", qp.wr_id);
    out->Number("opcode", static_cast<uint64_t>(qp.opcode));
    out->Word("waits_for", NameOf(qp.waits_for));
    if (qp.waits_since > 0) {
      out->Number("waits_since_ns", static_cast<uint64_t>(qp.waits_since));
    }
    if (qp.waits_until > 0) {
      out->Number("waits_until_ns", static_cast<uint64_t>(qp.waits_until));
    }
  }
  out->Number("timeout", qp.timeout);
  out->Number("retry_cnt", qp.retry_cnt);
  out->Number("rnr_retry", qp.rnr_retry);
  out->Number("min_rnr_timer", qp.min_rnr_timer);
  WriteCq("send_cq_", qp.send_cq, out);
  WriteCq("recv_cq_", qp.recv_cq, out);
  out->End(CountersOf(qp));
}

// Removes the part of `*text` before the next `separator` and the separator.
// Returns that part.
std::string_view TakeUntil(char separator, std::string_view* text) {
  const size_t end = std::min(text->find(separator), text->size());
  const std::string_view part = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return part;
}

bool ParseNumber(std::string_view text, uint64_t* value) {
  return absl::SimpleAtoi(absl::string_view(text.data(), text.size()), value);
}

std::optional<ReportRecord::Value> ParseValue(std::string_view text) {
  if (uint64_t number; ParseNumber(text, &number)) return number;
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') {
    return std::nullopt;
  }
  text = text.substr(1, text.size() - 2);
  if (!std::all_of(text.begin(), text.end(), IsPlain)) return std::nullopt;
  return std::string(text);
}

bool IsName(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// Subtracts the line and its values from `*quota`; fails if that is used up.
std::optional<ReportRecord> ParseRecord(std::string_view line, size_t* quota) {
  if (*quota == 0) return std::nullopt;
  --*quota;
  ReportRecord record;
  record.kind = TakeUntil(' ', &line);
  if (!IsName(record.kind)) return std::nullopt;
  for (bool counters = false; !line.empty();) {
    std::string_view value = TakeUntil(' ', &line);
    if (value == "|" && !counters) {
      counters = true;
      continue;
    }
    if (*quota == 0) return std::nullopt;
    --*quota;
    const std::string_view name = TakeUntil('=', &value);
    const std::optional<ReportRecord::Value> parsed = ParseValue(value);
    if (!IsName(name) || !parsed) return std::nullopt;
    if (!counters) {
      record.attributes.emplace_back(name, *parsed);
    } else if (const uint64_t* number = std::get_if<uint64_t>(&*parsed)) {
      record.counters.emplace_back(name, *number);
    } else {
      return std::nullopt;
    }
  }
  record.attributes.shrink_to_fit();
  record.counters.shrink_to_fit();
  return record;
}

}  // namespace

std::string ReportText(const ManagerReport& manager) {
  Writer out;
  WriteProcess(&out);
  out.Begin("connection_manager");
  out.Number("connections", manager.connections);
  out.End(manager.counters);
  out.Begin(kEnd);
  out.End();
  return out.Take();
}

std::string ReportText(const DeviceReport& device) {
  Writer out;
  WriteProcess(&out);
  size_t queue_pairs = 0;
  size_t left_out = 0;
  for (const LaneReport& lane : device.lanes) {
    queue_pairs += lane.queue_pairs.size() + lane.left_out;
    left_out += lane.left_out;
  }
  out.Begin("device");
  out.Word("name", device.name);
  out.Word("netdev", device.netdev);
  out.Number("queue_pair_count", queue_pairs);
  out.Number("queue_pairs_left_out", left_out);
  out.Number("now_ns", static_cast<uint64_t>(device.now));
  out.End(CountersOf(device));
  WriteRefusals(&out);
  WriteFaultRules(device.fault_rules, &out);
  for (size_t i = 0; i < device.lanes.size(); ++i) {
    out.Begin("lane");
    out.Number("index", i);
    out.Number("slot", device.lanes[i].slot);
    out.Number("queue_pair_count",
               device.lanes[i].queue_pairs.size() + device.lanes[i].left_out);
    out.Number("events_lost", device.lanes[i].events_lost);
    out.End(CountersOf(device.lanes[i]));
    for (const transport::QpReport& qp : device.lanes[i].queue_pairs) {
      WriteQueuePair(i, qp, device.lanes[i].by_memory.contains(qp.qpn), &out);
    }
    for (const RecordedEvent& event : device.lanes[i].events) {
      WriteEvent(i, event, &out);
    }
  }
  out.Begin(kEnd);
  out.End();
  return out.Take();
}

uint64_t ReportRecord::Number(std::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key != name) continue;
    const auto* number = std::get_if<uint64_t>(&value);
    return number != nullptr ? *number : 0;
  }
  return 0;
}

std::string ReportRecord::Word(std::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key != name) continue;
    const auto* word = std::get_if<std::string>(&value);
    return word != nullptr ? *word : "";
  }
  return "";
}

std::optional<std::vector<ReportRecord>> ParseReport(std::string_view text) {
  std::string_view first = TakeUntil('\n', &text);
  uint64_t version;
  if (!first.starts_with(kMagic) ||
      !ParseNumber(first.substr(kMagic.size()), &version) ||
      version != kReportVersion) {
    return std::nullopt;
  }
  std::vector<ReportRecord> records;
  size_t quota = text.size() / kMinBytes + kShortReport;
  while (!text.empty()) {
    const std::string_view line = TakeUntil('\n', &text);
    if (line == kEnd)
      return text.empty() ? std::optional(std::move(records)) : std::nullopt;
    std::optional<ReportRecord> record = ParseRecord(line, &quota);
    if (!record) return std::nullopt;
    records.push_back(*std::move(record));
  }
  return std::nullopt;
}

}  // namespace rxe_user
