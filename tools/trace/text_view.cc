#include "tools/trace/text_view.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "rxe_user/observe/trace_table.h"
#include "tools/trace/escape.h"
#include "tools/trace/field_json.h"
#include "tools/trace/time_text.h"

namespace trace {
namespace {

using Json = nlohmann::ordered_json;

bool WriteLine(std::FILE* out, const std::string& line) {
  return std::fputs((line + "\n").c_str(), out) >= 0;
}

bool WriteObject(std::FILE* out, const Json& object) {
  return WriteLine(out,
                   object.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// Calls `on_arrow` and `on_event` for what is shown, in order of time, until
// one returns false.
template <typename OnArrow, typename OnEvent>
bool VisitInOrder(const Timeline& t, const OnArrow& on_arrow,
                  const OnEvent& on_event) {
  size_t e = 0;
  for (const Arrow& arrow : t.arrows) {
    for (; e < t.events.size() && t.events[e].time <= arrow.start(); ++e) {
      if (t.events[e].shown && !on_event(t.events[e])) return false;
    }
    if (arrow.packet().shown && !on_arrow(arrow)) return false;
  }
  for (; e < t.events.size(); ++e) {
    if (t.events[e].shown && !on_event(t.events[e])) return false;
  }
  return true;
}

std::string Start(const Timeline& t, int64_t time) {
  return absl::StrFormat("%s %10.3f ", TimeOfDay(time, 6),
                         static_cast<double>(time - t.first) / 1000);
}

// The name of the first end of each file.
std::vector<std::string> NamesOfFiles(const Timeline& t) {
  std::vector<std::string> names(t.recordings.size(), "?");
  for (size_t e = t.ends.size(); e-- > 0;) {
    const End& end = t.ends[e];
    if (end.file < names.size()) names[end.file] = end.name;
  }
  return names;
}

Json Value(const Event::Value& value) {
  using rxe_user::trace::FieldFormat;
  switch (value.field->format) {
    case FieldFormat::kNumber:
      return value.number;
    case FieldFormat::kSigned:
      return static_cast<int64_t>(value.number);
    case FieldFormat::kTime:
      return value.number == 0
                 ? Json()
                 : Json(DateAndTime(static_cast<int64_t>(value.number)));
    default:
      return Printable(value.text);
  }
}

Json PacketObject(const Timeline& t, const Conversation& c,
                  const Arrow& arrow) {
  const Packet& p = arrow.packet();
  Json object = {{"type", "packet"},
                 {"from", t.ends[arrow.from].name},
                 {"to", t.ends[arrow.to].name},
                 {"fate", FateName(arrow)}};
  if (arrow.t0 != kNoTime) object["sent"] = DateAndTime(arrow.t0);
  if (arrow.t1 != kNoTime) object["received"] = DateAndTime(arrow.t1);
  if (arrow.t0 != kNoTime && arrow.t1 != kNoTime) {
    object["took_ns"] = arrow.t1 - arrow.t0;
  }
  if (arrow.received != nullptr && arrow.received->waited() != 0) {
    object["waited_ns"] = arrow.received->waited();
  }
  if (arrow.sent != nullptr) object["sent_frame"] = arrow.sent->frame;
  if (arrow.received != nullptr) {
    object["received_frame"] = arrow.received->frame;
  }
  if (arrow.ambiguous) object["ambiguous"] = true;
  if (arrow.overtaken) object["overtaken"] = true;
  if (arrow.repeat != 0) object["repeat"] = arrow.repeat;
  if (arrow.message != 0) object["message"] = arrow.message;
  if (arrow.connection != kNone) {
    object["connection"] = ConnectionName(t, c.connections[arrow.connection]);
  }
  if (p.event != 0) object["id"] = p.event;
  if (p.cause != 0) object["cause"] = p.cause;
  object["src"] = p.src.ToString();
  object["dst"] = p.dst.ToString();
  object["src_port"] = p.src_port;
  t.recording_of(arrow).VisitFields(p, [&](const wire::Field& field) {
    object[std::string(field.name)] = FieldValue(field);
  });
  object["icrc"] = IcrcName(p.icrc);
  return object;
}

// Notes that a reader needs, each of which is shown once.
class Notes {
 public:
  // Those notes of a part that were not shown yet.
  std::vector<std::string> New(const Timeline& t) {
    std::vector<std::string> notes;
    for (const std::string& note : t.notes) {
      if (said_.insert(note).second) notes.push_back(note);
    }
    return notes;
  }

 private:
  std::set<std::string> said_;
};

class TextWriter final : public PartWriter {
 public:
  explicit TextWriter(std::FILE* out) : out_(out) {}

  bool Write(const Timeline& t, const Conversation&) override {
    const std::vector<std::string> names = NamesOfFiles(t);
    for (const std::string& note : notes_.New(t)) {
      if (!WriteLine(out_, "# " + Printable(note))) return false;
    }
    for (; ends_ < t.ends.size(); ++ends_) {
      if (!WriteLine(out_, "# " + Printable(t.ends[ends_].label))) return false;
    }
    const auto on_arrow = [&](const Arrow& arrow) {
      const Packet& p = arrow.packet();
      std::string line = Start(t, arrow.start()) + t.ends[arrow.from].name +
                         " > " + t.ends[arrow.to].name + " ";
      line += wire::DescribeFields([&](const wire::FieldVisitor& visit) {
        t.recording_of(arrow).VisitFields(p, visit);
      });
      if (arrow.t0 != kNoTime && arrow.t1 != kNoTime && arrow.t1 != arrow.t0) {
        line += " took=" + Duration(arrow.t1 - arrow.t0);
        line.erase(line.rfind(' '), 1);
      }
      const std::string fate = FateText(arrow);
      if (!fate.empty()) line += " | " + fate;
      return WriteLine(out_, line);
    };
    const auto on_event = [&](const TimedEvent& e) {
      const uint32_t qpn = e.event->header().qpn;
      return WriteLine(
          out_, Start(t, e.time) + names[e.file] + "     " + e.event->name() +
                    " " + (qpn == 0 ? "" : absl::StrFormat("qp=0x%06x ", qpn)) +
                    Printable(EventText(*e.event)));
    };
    CountPackets(t, &counts_);
    return VisitInOrder(t, on_arrow, on_event);
  }

  bool End() override { return WriteLine(out_, CountsText(counts_)); }

 private:
  std::FILE* const out_;
  Notes notes_;
  size_t ends_ = 0;  // the number of ends written
  Counts counts_;
};

class JsonWriter final : public PartWriter {
 public:
  explicit JsonWriter(std::FILE* out) : out_(out) {}

  bool Write(const Timeline& t, const Conversation& c) override {
    const std::vector<std::string> names = NamesOfFiles(t);
    NoteFiles(t, names);
    if (is_first_ && is_whole_ && !WriteFiles()) return false;
    is_first_ = false;
    const auto on_arrow = [&](const Arrow& arrow) {
      return WriteObject(out_, PacketObject(t, c, arrow));
    };
    const auto on_event = [&](const TimedEvent& e) {
      const auto& header = e.event->header();
      Json object = {{"type", "event"},
                     {"end", names[e.file]},
                     {"name", e.event->name()},
                     {"id", header.id},
                     {"time", DateAndTime(e.time)}};
      if (header.cause != 0) object["cause"] = header.cause;
      if (header.qpn != 0) object["qpn"] = header.qpn;
      object["thread"] = header.thread;
      for (const Event::Value& value : e.event->Values()) {
        object[std::string(value.field->name)] = Value(value);
      }
      return WriteObject(out_, object);
    };
    CountPackets(t, &counts_);
    return VisitInOrder(t, on_arrow, on_event) && WriteMessages(t, c);
  }

  bool End() override {
    return WriteFiles() &&
           WriteObject(out_, {{"type", "summary"},
                              {"packets", counts_.packets},
                              {"lost", counts_.lost},
                              {"dropped", counts_.dropped},
                              {"damaged", counts_.damaged},
                              {"repeated", counts_.repeated},
                              {"overtaken", counts_.overtaken},
                              {"duplicates", counts_.duplicates},
                              {"ambiguous", counts_.ambiguous},
                              {"after_end", counts_.after_end},
                              {"strangers", counts_.strangers},
                              {"messages", messages_},
                              {"notes", all_notes_}});
  }

 private:
  void NoteFiles(const Timeline& t, const std::vector<std::string>& names) {
    files_.clear();
    is_whole_ = true;
    for (size_t f = 0; f < t.recordings.size(); ++f) {
      const Recording& r = *t.recordings[f];
      is_whole_ &= r.is_whole;
      files_.push_back({{"type", "file"},
                        {"path", Printable(r.path)},
                        {"end", names[f]},
                        {"packets", r.packets_before + r.packets.size()},
                        {"events", r.events_before + r.events.size()},
                        {"malformed", r.malformed},
                        {"other_frames", r.other},
                        {"clock_offset_ns", t.offsets[f]},
                        {"clock_error_ns", t.uncertainties[f]}});
    }
    for (const std::string& note : notes_.New(t)) {
      all_notes_.push_back(Printable(note));
    }
  }

  // Does so only once.
  bool WriteFiles() {
    for (const Json& file : std::exchange(files_, {})) {
      if (!WriteObject(out_, file)) return false;
    }
    return true;
  }

  bool WriteMessages(const Timeline& t, const Conversation& c) {
    for (const Message& m : c.messages) {
      if (!m.shown) continue;
      ++messages_;
      Json object = {
          {"type", "message"},         {"number", m.number},
          {"end", t.ends[m.end].name}, {"name", m.name},
          {"first_psn", m.first_psn},  {"last_psn", m.last_psn},
          {"bytes", m.bytes},          {"begin", DateAndTime(m.begin)}};
      if (m.has_wr_id) object["wr_id"] = absl::StrFormat("0x%x", m.wr_id);
      if (m.done != kNoTime) object["done"] = DateAndTime(m.done);
      if (m.polled != kNoTime) object["polled"] = DateAndTime(m.polled);
      if (!m.error.empty()) object["error"] = m.error;
      if (!WriteObject(out_, object)) return false;
    }
    return true;
  }

  std::FILE* const out_;
  bool is_first_ = true;
  bool is_whole_ = true;
  std::vector<Json> files_;
  Notes notes_;
  Json all_notes_ = Json::array();
  Counts counts_;
  size_t messages_ = 0;
};

}  // namespace

void CountPackets(const Timeline& timeline, Counts* all) {
  Counts& counts = *all;
  for (const Arrow& arrow : timeline.arrows) {
    if (!arrow.packet().shown) continue;
    ++counts.packets;
    counts.lost += arrow.fate == Fate::kLost;
    counts.dropped += arrow.was_dropped();
    counts.duplicates += arrow.fate == Fate::kDuplicate;
    counts.after_end += arrow.fate == Fate::kAfterEnd;
    counts.strangers += arrow.fate == Fate::kStranger;
    counts.repeated += arrow.repeat != 0;
    counts.overtaken += arrow.overtaken;
    counts.ambiguous += arrow.ambiguous;
    counts.damaged += arrow.packet().icrc == IcrcVerdict::kBad;
  }
}

Counts CountPackets(const Timeline& timeline) {
  Counts counts;
  CountPackets(timeline, &counts);
  return counts;
}

std::string CountsText(const Counts& c) {
  std::string text = std::to_string(c.packets) + " packets";
  const auto add = [&](size_t count, const char* what) {
    if (count != 0) text += ", " + std::to_string(count) + " " + what;
  };
  add(c.lost, "lost");
  add(c.dropped, "dropped by the receiver");
  add(c.damaged, "damaged");
  add(c.repeated, "repeated");
  add(c.overtaken, "overtaken");
  add(c.duplicates, "duplicated on the way");
  add(c.ambiguous, "ambiguous");
  add(c.after_end, "after the end of the peer's file");
  add(c.strangers, "that no file of the sender has");
  return text;
}

std::string FateText(const Arrow& arrow) {
  std::string text;
  const auto add = [&](const std::string& what) {
    text += (text.empty() ? "" : ", ") + what;
  };
  if (arrow.repeat == 1) add("again");
  if (arrow.repeat > 1) add("repeat " + std::to_string(arrow.repeat));
  switch (arrow.fate) {
    case Fate::kLost:
      add("LOST");
      break;
    case Fate::kDuplicate:
      add("second copy, made on the way");
      break;
    case Fate::kAfterEnd:
      add("the peer's file or queue pair had ended");
      break;
    case Fate::kStranger:
      add("the sender's file does not have it");
      break;
    case Fate::kArrived:
    case Fate::kDropped:
    case Fate::kUnseen:
    case Fate::kReceived:
      break;
  }
  if (arrow.was_dropped()) {
    std::string why = "DROPPED by the receiver";
    const auto name = rxe_user::trace::NameOf(
        rxe_user::trace::DispositionNames(), arrow.received->disposition);
    if (name != "delivered") why += ": " + std::string(name);
    add(why);
  }
  if (arrow.overtaken) add("overtaken");
  if (arrow.ambiguous) add("or an equal packet: ambiguous");
  if (arrow.packet().icrc == IcrcVerdict::kBad) add("wrong ICRC");
  return text;
}

std::unique_ptr<PartWriter> MakeTextWriter(std::FILE* out) {
  return std::make_unique<TextWriter>(out);
}

std::unique_ptr<PartWriter> MakeJsonWriter(std::FILE* out) {
  return std::make_unique<JsonWriter>(out);
}

}  // namespace trace
