#include "tools/trace/sqlog.h"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "rxe_user/observe/trace_table.h"
#include "tools/trace/escape.h"
#include "tools/trace/time_text.h"
#include "tools/trace/timeline_ends.h"

namespace trace {
namespace {

using Json = nlohmann::ordered_json;
using rxe_user::trace::EventField;
using rxe_user::trace::EventType;
using rxe_user::trace::FieldFormat;
using rxe_user::trace::RetransmissionEvent;

constexpr char kFileSchema[] = "urn:ietf:params:qlog:file:sequential";
constexpr char kSerialization[] = "application/qlog+json-seq";
constexpr char kEventSchema[] = "urn:rxe-user:qlog:rdma-00";
constexpr std::string_view kNamespace = "rdma:";
constexpr char kSeparator = '\x1e';

constexpr const char* kPacketEvents[] = {"packet_sent", "packet_received",
                                         "packet_dropped", "packet_lost"};

// The importance as in the main schema: core for events that tools need, base
// for events that explain those, extra for the rest.
const char* ImportanceOf(EventType type) {
  switch (type) {
    case EventType::kBegun:
    case EventType::kCompleted:
    case EventType::kQpState:
    case EventType::kTimer:
    case EventType::kRetransmission:
    case EventType::kIncident:
    case EventType::kCmMessage:
    case EventType::kMissed:
      return "core";
    case EventType::kPosted:
    case EventType::kPolled:
    case EventType::kPath:
    case EventType::kCnp:
    case EventType::kAsyncEvent:
    case EventType::kOverflow:
    case EventType::kFault:
      return "base";
    default:
      return "extra";
  }
}

double Milliseconds(int64_t ns) { return static_cast<double>(ns) / 1e6; }

Json Value(const wire::Field& field) {
  switch (field.format) {
    case wire::Field::Format::kFlag:
      return field.number != 0;
    case wire::Field::Format::kText:
      return std::string(field.text);
    case wire::Field::Format::kHex:
    case wire::Field::Format::kDecimal:
      break;
  }
  // JSON parsers may keep only 53 bits.
  if (field.number >> 53 == 0) return field.number;
  return absl::StrFormat("0x%x", field.number);
}

class Writer {
 public:
  Writer(const Timeline& timeline, std::FILE* out)
      : t_(timeline), out_(out), ends_(timeline) {}

  // `with_header`: the part is the first.
  bool Write(bool with_header) {
    for (size_t f = 0; f < t_.recordings.size(); ++f) {
      for (const Packet& p : t_.recordings[f]->packets) {
        if (p.event != 0) names_[{f, p.event}] = "packet";
      }
    }
    for (const TimedEvent& timed : t_.events) {
      const auto* const known = timed.event->description();
      if (known == nullptr) continue;
      names_[{timed.file, timed.event->header().id}] = known->name;
    }
    for (size_t a = 0; a < t_.arrows.size(); ++a) AddPacket(a);
    for (size_t e = 0; e < t_.events.size(); ++e) {
      if (t_.events[e].event->description() == nullptr) continue;
      if (!t_.events[e].shown) continue;
      rows_.push_back({t_.events[e].time, Kind::kEvent, e});
    }
    std::stable_sort(
        rows_.begin(), rows_.end(),
        [](const Row& a, const Row& b) { return a.time < b.time; });
    if (with_header && !Print(Header())) return false;
    return std::all_of(rows_.begin(), rows_.end(), [this](const Row& row) {
      return Print(row.kind == Kind::kEvent
                       ? EventRecord(t_.events[row.index])
                       : PacketRecord(row.kind, t_.arrows[row.index]));
    });
  }

 private:
  // The first ones are in the order of kPacketEvents.
  enum class Kind : uint8_t { kSent, kReceived, kDropped, kLost, kEvent };
  struct Row {
    int64_t time;
    Kind kind;
    size_t index;  // of the arrow or event
  };

  bool Print(const Json& record) {
    const std::string text =
        record.dump(-1, ' ', false, Json::error_handler_t::replace);
    return std::fputc(kSeparator, out_) != EOF &&
           std::fputs((text + "\n").c_str(), out_) >= 0;
  }

  void AddPacket(size_t index) {
    const Arrow& arrow = t_.arrows[index];
    if (arrow.t0 != kNoTime && arrow.fate != Fate::kDuplicate &&
        arrow.sent->shown) {
      rows_.push_back({arrow.t0, Kind::kSent, index});
      if (arrow.fate == Fate::kLost) {
        rows_.push_back({arrow.t0, Kind::kLost, index});
      }
    }
    if (arrow.t1 == kNoTime || arrow.received == nullptr ||
        !arrow.received->shown) {
      return;
    }
    rows_.push_back({arrow.t1,
                     arrow.was_dropped() ? Kind::kDropped : Kind::kReceived,
                     index});
  }

  Json Header() const {
    std::string notes;
    for (const std::string& note : t_.notes) {
      notes += (notes.empty() ? "" : "; ") + Printable(note);
    }
    std::string name;
    for (const End& end : t_.ends) {
      name += (name.empty() ? "" : ", ") + Printable(end.label);
    }
    Json trace = {
        {"common_fields",
         {{"time_format", "relative_to_epoch"},
          {"reference_time",
           {{"clock_type", "system"}, {"epoch", DateAndTime(t_.first)}}}}},
        {"vantage_point", {{"name", name}, {"type", "unknown"}}},
        {"event_schemas", Json::array({kEventSchema})}};
    Json header = {{"file_schema", kFileSchema},
                   {"serialization_format", kSerialization},
                   {"title", "rxe-user trace"}};
    if (!notes.empty()) header["description"] = notes;
    header["trace"] = std::move(trace);
    return header;
  }

  // The members that all events have, up to the data.
  Json Begin(int64_t time, std::string_view name, size_t end, size_t file,
             uint32_t qpn, uint32_t thread) const {
    Json record = {{"time", Milliseconds(time - t_.first)},
                   {"name", std::string(kNamespace) + std::string(name)}};
    if (qpn != 0 && end < t_.ends.size()) {
      record["group_id"] = absl::StrFormat("%s 0x%06x", t_.ends[end].name, qpn);
    }
    Json system = Json::object();
    if (file < t_.recordings.size() && t_.recordings[file]->about) {
      system["process_id"] = t_.recordings[file]->about->pid;
    }
    if (thread != 0) system["thread_id"] = thread;
    if (!system.empty()) record["system_info"] = std::move(system);
    return record;
  }

  void AddCause(size_t file, uint64_t id, uint64_t cause, Json* data) const {
    if (id != 0) (*data)["id"] = id;
    if (cause == 0) return;
    (*data)["cause"] = cause;
    const auto name = names_.find({file, cause});
    if (name != names_.end()) (*data)["trigger"] = name->second;
  }

  Json PacketRecord(Kind kind, const Arrow& arrow) const {
    const bool is_sent = kind == Kind::kSent || kind == Kind::kLost;
    const Packet& p = is_sent ? *arrow.sent : *arrow.received;
    const size_t file = is_sent ? arrow.sent_file : arrow.received_file;
    Json data;
    t_.recordings[file]->VisitFields(p, [&](const wire::Field& field) {
      data["header"][std::string(field.name)] = Value(field);
    });
    data["raw"] = {{"length", p.size}, {"payload_length", p.payload}};
    if (kind == Kind::kSent) data["fate"] = FateName(arrow.fate);
    if (arrow.repeat != 0) data["repeat"] = arrow.repeat;
    if (arrow.ambiguous) data["ambiguous"] = true;
    if (!is_sent && p.waited() != 0) data["waited"] = Milliseconds(p.waited());
    AddCause(file, p.event, p.cause, &data);
    if (kind == Kind::kDropped) {
      const auto why = rxe_user::trace::NameOf(
          rxe_user::trace::DispositionNames(), p.disposition);
      // Otherwise a rule dropped it.
      if (why != "delivered") data["trigger"] = why;
    }
    Json record = Begin(is_sent ? arrow.t0 : arrow.t1,
                        kPacketEvents[static_cast<size_t>(kind)],
                        is_sent ? arrow.from : arrow.to, file,
                        is_sent ? arrow.local_qpn : p.qpn, 0);
    record["data"] = std::move(data);
    return record;
  }

  Json EventRecord(const TimedEvent& timed) const {
    const Event& event = *timed.event;
    const auto& header = event.header();
    Json data = Json::object();
    for (const Event::Value& value : event.Values()) {
      const std::string name(value.field->name);
      switch (value.field->format) {
        case FieldFormat::kNumber:
          data[name] = value.number;
          break;
        case FieldFormat::kSigned:
          data[name] = static_cast<int64_t>(value.number);
          break;
        case FieldFormat::kTime: {
          const int64_t time = std::clamp<int64_t>(
              static_cast<int64_t>(value.number), 0, kLatestTime);
          if (time == 0) break;
          data[name] = Milliseconds(time - t_.offsets[timed.file] - t_.first);
          break;
        }
        default:
          data[name] = Printable(value.text);
      }
    }
    AddCause(timed.file, header.id, header.cause, &data);
    if (event.As<RetransmissionEvent>()) data["trigger"] = data["why"];
    Json record = Begin(timed.time, event.description()->name,
                        ends_.Find(timed.file, header.qpn), timed.file,
                        header.qpn, header.thread);
    record["data"] = std::move(data);
    return record;
  }

  const Timeline& t_;
  std::FILE* const out_;
  const EndIndex ends_;
  // Names of events and packets, by file and id.
  std::map<std::pair<size_t, uint64_t>, std::string_view> names_;
  std::vector<Row> rows_;
};

class SqlogWriter final : public PartWriter {
 public:
  explicit SqlogWriter(std::FILE* out) : out_(out) {}

  bool Write(const Timeline& part, const Conversation&) override {
    return Writer(part, out_).Write(std::exchange(is_first_, false));
  }
  bool End() override { return true; }

 private:
  std::FILE* const out_;
  bool is_first_ = true;
};

// --- The schema.

Json Count() { return {{"type", "integer"}, {"minimum", 0}}; }
Json Of(const char* type) { return {{"type", type}}; }

Json ObjectOf(Json properties, const std::vector<std::string>& required) {
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", required},
          {"additionalProperties", false}};
}

// The schema of an event whose data have these properties.
Json EventSchema(std::string_view name, std::string_view help,
                 const char* importance, Json properties,
                 std::vector<std::string> required) {
  for (const char* const each : {"id", "cause"}) properties[each] = Count();
  properties["trigger"] = Of("string");
  return {
      {"description", std::string(help) + " Importance: " + importance + "."},
      {"properties",
       {{"name", {{"const", std::string(kNamespace) + std::string(name)}}},
        {"data", ObjectOf(std::move(properties), required)}}}};
}

Json FieldSchema(const EventField& field) {
  Json schema = Of("string");
  if (field.format == FieldFormat::kNumber) schema = Count();
  if (field.format == FieldFormat::kSigned) schema = Of("integer");
  if (field.format == FieldFormat::kTime) schema = Of("number");
  if (!field.help.empty()) schema["description"] = field.help;
  return schema;
}

Json PacketSchema(const char* name) {
  Json header = {
      {"type", "object"},
      {"required", Json::array({"opcode"})},
      {"additionalProperties", {{"type", {"boolean", "integer", "string"}}}}};
  Json properties = {
      {"header", std::move(header)},
      {"raw", ObjectOf({{"length", Count()}, {"payload_length", Count()}},
                       {"length", "payload_length"})},
      {"fate", Of("string")},
      {"repeat", Count()},
      {"ambiguous", {{"type", "boolean"}}},
      {"waited", Of("number")}};
  return EventSchema(name, "A packet.", "core", std::move(properties),
                     {"header", "raw"});
}

}  // namespace

std::unique_ptr<PartWriter> MakeSqlogWriter(std::FILE* out) {
  return std::make_unique<SqlogWriter>(out);
}

std::string SqlogSchema() {
  Json kinds = Json::array();
  for (const char* const name : kPacketEvents) {
    kinds.push_back(PacketSchema(name));
  }
  for (const auto& event : rxe_user::trace::Events()) {
    if (event.type == EventType::kPacket) continue;
    Json properties = Json::object();
    std::vector<std::string> required;
    for (const EventField& field : event.fields) {
      if (field.format == FieldFormat::kReserved) continue;
      properties[std::string(field.name)] = FieldSchema(field);
      if (field.format != FieldFormat::kTime) {
        required.emplace_back(field.name);
      }
    }
    kinds.push_back(EventSchema(event.name, event.help,
                                ImportanceOf(event.type), std::move(properties),
                                required));
  }
  Json header = ObjectOf(
      {{"file_schema", {{"const", kFileSchema}}},
       {"serialization_format", {{"const", kSerialization}}},
       {"title", Of("string")},
       {"description", Of("string")},
       {"trace",
        ObjectOf({{"common_fields",
                   ObjectOf({{"time_format", {{"const", "relative_to_epoch"}}},
                             {"reference_time",
                              ObjectOf({{"clock_type", {{"const", "system"}}},
                                        {"epoch", Of("string")}},
                                       {"clock_type", "epoch"})}},
                            {"time_format", "reference_time"})},
                  {"vantage_point", ObjectOf({{"name", Of("string")},
                                              {"type", {{"const", "unknown"}}}},
                                             {"type"})},
                  {"event_schemas", {{"const", Json::array({kEventSchema})}}}},
                 {"common_fields", "vantage_point", "event_schemas"})}},
      {"file_schema", "serialization_format", "trace"});
  Json event = ObjectOf(
      {{"time", Of("number")},
       {"name", Of("string")},
       {"group_id", Of("string")},
       {"system_info",
        ObjectOf({{"process_id", Count()}, {"thread_id", Count()}}, {})},
       {"data", {{"type", "object"}}}},
      {"time", "name", "data"});
  event["oneOf"] = std::move(kinds);
  const Json schema = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"},
      {"$id", kEventSchema},
      {"title", "A record of rxe-user trace --sqlog"},
      {"oneOf", Json::array({std::move(header), std::move(event)})}};
  return schema.dump(1) + "\n";
}

}  // namespace trace
