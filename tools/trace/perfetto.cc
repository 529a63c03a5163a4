#include "tools/trace/perfetto.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "tools/trace/escape.h"
#include "tools/trace/text_view.h"
#include "tools/trace/timeline_ends.h"

namespace trace {
namespace {

using Json = nlohmann::ordered_json;
using rxe_user::trace::CallEvent;
using rxe_user::trace::CompletedEvent;
using rxe_user::trace::EventType;
using rxe_user::trace::PolledEvent;
using rxe_user::trace::PostedEvent;

// Duration of posts, completions and polls, which is not recorded, ns.
constexpr int64_t kShort = 100;

std::string NameOfQueuePair(uint32_t qpn) {
  return qpn == 0 ? "no queue pair" : absl::StrFormat("queue pair 0x%06x", qpn);
}

class Writer {
 public:
  Writer(const Timeline& timeline, const Conversation& conversation)
      : t_(timeline), c_(conversation), ends_(timeline) {}

  bool Write(std::FILE* out) {
    for (size_t e = t_.ends.size(); e-- > 0;) {
      AddName("process_name", e, 0, t_.ends[e].label);
    }
    FindFlows();
    for (const Message& message : c_.messages) AddMessage(message);
    for (const TimedEvent& event : t_.events) AddEvent(event);
    for (const Arrow& arrow : t_.arrows) AddPacket(arrow);
    // If slices begin at the same time, the outer one must come first.
    std::stable_sort(
        rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
          return a.time != b.time ? a.time < b.time : a.duration > b.duration;
        });
    Nest();
    return Print(out);
  }

 private:
  // An event of the format; slices have a duration.
  struct Row {
    int64_t time = 0;  // ns since the first
    int64_t duration = 0;
    bool is_slice = false;
    uint64_t track = 0;
    Json object;
  };
  // By file and id of the posted event.
  using Post = std::pair<size_t, uint64_t>;
  struct Flow {
    uint64_t id = 0;
    bool is_polled = false;
  };

  static size_t Process(size_t end) { return end + 1; }

  // --- Rows.

  void AddName(const char* what, size_t end, uint64_t track,
               const std::string& name) {
    names_.push_back({{"ph", "M"},
                      {"name", what},
                      {"pid", Process(end)},
                      {"tid", track},
                      {"args", {{"name", Printable(name)}}}});
  }
  // Numbers of tracks are unique, and differ from those of processes.
  uint64_t Track(size_t end, bool is_thread, uint32_t number) {
    const auto [at, is_new] = tracks_.insert(
        {{end, is_thread, number}, t_.ends.size() + tracks_.size() + 1});
    if (is_new) {
      AddName("thread_name", end, at->second,
              is_thread ? "thread " + std::to_string(number)
                        : NameOfQueuePair(number));
    }
    return at->second;
  }
  // The result is valid until the next Add.
  Json* Add(const char* phase, size_t end, uint64_t track, int64_t time,
            const std::string& name) {
    rows_.push_back({.time = std::max<int64_t>(time - t_.first, 0),
                     .track = track,
                     .object = {{"ph", phase},
                                {"name", Printable(name)},
                                {"pid", Process(end)},
                                {"tid", track}}});
    return &rows_.back().object;
  }
  Json* AddSlice(size_t end, uint64_t track, int64_t time, int64_t duration,
                 const std::string& name) {
    Json* const slice = Add("X", end, track, time, name);
    rows_.back().duration = std::max<int64_t>(duration, 0);
    rows_.back().is_slice = true;
    return slice;
  }
  Json* AddInstant(size_t end, uint32_t qpn, int64_t time,
                   const std::string& name) {
    Json* const instant = Add("i", end, Track(end, false, qpn), time, name);
    (*instant)["s"] = "t";
    return instant;
  }

  // Ends a slice when the outer one ends; a short slice ends at the next slice.
  void Nest() {
    std::map<uint64_t, std::vector<size_t>> open;  // by track, outermost first
    for (size_t i = 0; i < rows_.size(); ++i) {
      Row& row = rows_[i];
      if (!row.is_slice) continue;
      std::vector<size_t>& around = open[row.track];
      const auto end = [&](size_t r) {
        return rows_[r].time + rows_[r].duration;
      };
      while (!around.empty()) {
        Row& outer = rows_[around.back()];
        if (outer.duration <= kShort && row.time > outer.time) {
          outer.duration = std::min(outer.duration, row.time - outer.time);
        }
        if (end(around.back()) > row.time ||
            (end(around.back()) == row.time && row.duration == 0)) {
          break;
        }
        around.pop_back();
      }
      if (!around.empty()) {
        row.duration = std::min(row.duration, end(around.back()) - row.time);
      }
      around.push_back(i);
    }
  }

  bool Print(std::FILE* out) {
    const char* before = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
    const auto print = [&](const Json& object) {
      const std::string text =
          before + object.dump(-1, ' ', false, Json::error_handler_t::replace);
      before = ",\n";
      return std::fputs(text.c_str(), out) >= 0;
    };
    for (const Json& name : names_) {
      if (!print(name)) return false;
    }
    for (Row& row : rows_) {
      row.object["ts"] = static_cast<double>(row.time) / 1000;
      if (row.is_slice) {
        row.object["dur"] = static_cast<double>(row.duration) / 1000;
      }
      if (!print(row.object)) return false;
    }
    if (names_.empty() && rows_.empty() && std::fputs(before, out) < 0) {
      return false;
    }
    return std::fputs("\n]}\n", out) >= 0;
  }

  // --- Sources of the rows.

  // An arrow begins only at a post that has a completion.
  void FindFlows() {
    std::set<Post> posted;
    for (const TimedEvent& e : t_.events) {
      if (ends_.Find(e.file, e.event->header().qpn) == kNone) continue;
      const uint64_t id = e.event->header().id;
      if (const auto post = e.event->As<PostedEvent>();
          post && post->error == 0) {
        posted.insert({e.file, id});
      } else if (const auto done = e.event->As<CompletedEvent>();
                 done && posted.contains({e.file, done->posted}) &&
                 !flows_.contains({e.file, done->posted})) {
        const uint64_t flow = flows_.size() + 1;
        flows_[{e.file, done->posted}].id = flow;
        completed_[{e.file, id}] = {e.file, done->posted};
      } else if (e.event->As<PolledEvent>()) {
        const auto of = completed_.find({e.file, e.event->header().cause});
        if (of == completed_.end() || flows_[of->second].is_polled) continue;
        flows_[of->second].is_polled = true;
        polls_[{e.file, id}] = of->second;
      }
    }
  }

  void AddMessage(const Message& m) {
    uint32_t qpn = 0;
    if (m.connection != kNone) {
      const Connection& c = c_.connections[m.connection];
      qpn = c.a == m.end ? c.qpn_a : c.qpn_b;
    }
    const uint64_t track = Track(m.end, false, qpn);
    const std::string id = std::to_string(++last_message_);
    // Viewers have one track for each name.
    const std::string name = m.name + ", " + NameOfQueuePair(qpn);
    const auto add = [&](const char* phase, int64_t time,
                         const std::string& what) {
      Json* const object =
          Add(phase, m.end, track, std::max(time, m.begin), what);
      (*object)["cat"] = "work request";
      (*object)["id"] = id;
      return object;
    };
    Json args = {{"number", m.number},
                 {"bytes", m.bytes},
                 {"first_psn", m.first_psn},
                 {"last_psn", m.last_psn}};
    if (m.has_wr_id) args["wr_id"] = absl::StrFormat("0x%x", m.wr_id);
    if (!m.error.empty()) args["error"] = Printable(m.error);
    if (m.done == kNoTime) args["done"] = "never";
    (*add("b", m.begin, name))["args"] = std::move(args);
    // A message that was not done lasts until the end of the recordings.
    const int64_t done = m.done == kNoTime ? Last() : m.done;
    add("e", done, name);
  }

  int64_t Last() {
    if (last_ != kNoTime) return last_;
    last_ = t_.first;
    for (const Arrow& arrow : t_.arrows) last_ = std::max(last_, arrow.end());
    if (!t_.events.empty()) last_ = std::max(last_, t_.events.back().time);
    return last_;
  }

  void AddFlow(const char* phase, const Flow& flow, size_t end, uint64_t track,
               int64_t time) {
    Json* const arrow = Add(phase, end, track, time, "work request");
    (*arrow)["cat"] = "flow";
    (*arrow)["id"] = std::to_string(flow.id);
    if (*phase == 'f') (*arrow)["bp"] = "e";  // the enclosing slice
  }

  // A short slice for an event and, unless `flow` is null, the point of the
  // flow's arrow there: `phase` is its start, a step or its end.
  void AddStep(const TimedEvent& timed, size_t end, uint64_t track,
               uint64_t wr_id, const char* phase, const Flow* flow) {
    const Event& event = *timed.event;
    Json* const slice =
        AddSlice(end, track, timed.time, kShort, EventText(event));
    (*slice)["args"] = {
        {"wr_id", absl::StrFormat("0x%x", wr_id)},
        {"queue pair", absl::StrFormat("0x%06x", event.header().qpn)}};
    if (flow != nullptr) AddFlow(phase, *flow, end, track, timed.time);
  }

  void AddEvent(const TimedEvent& timed) {
    const Event& event = *timed.event;
    const auto& header = event.header();
    const size_t end = ends_.Find(timed.file, header.qpn);
    if (end == kNone) return;
    const Post key = {timed.file, header.id};
    const auto thread = [&] { return Track(end, true, header.thread); };
    const auto find = [&](const std::map<Post, Post>& posts) -> const Flow* {
      const auto at = posts.find(key);
      return at == posts.end() ? nullptr : &flows_.at(at->second);
    };
    if (const auto post = event.As<PostedEvent>(); post && post->error == 0) {
      const auto flow = flows_.find(key);
      AddStep(timed, end, thread(), post->wr_id, "s",
              flow == flows_.end() ? nullptr : &flow->second);
      return;
    }
    if (const auto done = event.As<CompletedEvent>()) {
      const Flow* const flow = find(completed_);
      AddStep(timed, end, Track(end, false, header.qpn), done->wr_id,
              flow != nullptr && flow->is_polled ? "t" : "f", flow);
      return;
    }
    if (const auto polled = event.As<PolledEvent>()) {
      AddStep(timed, end, thread(), polled->wr_id, "f", find(polls_));
      return;
    }
    if (const auto call = event.As<CallEvent>()) {
      std::string name;
      for (const Event::Value& value : event.Values()) {
        if (value.field->name == "function") name = value.text;
      }
      const auto duration = static_cast<int64_t>(
          std::min(call->duration, static_cast<uint64_t>(kLatestTime)));
      Json* const slice = AddSlice(end, thread(), timed.time, duration, name);
      (*slice)["args"] = {{"call", Printable(EventText(event))}};
      return;
    }
    switch (static_cast<EventType>(header.type)) {
      case EventType::kRecording:
      case EventType::kBegun:      // the work request has its PSNs
      case EventType::kCmMessage:  // shown as its packet
        return;
      default:
        break;
    }
    Json args = {{"id", header.id}};
    if (header.cause != 0) args["cause"] = header.cause;
    (*AddInstant(end, header.qpn, timed.time, EventText(event)))["args"] =
        std::move(args);
  }

  void AddPacket(const Arrow& arrow) {
    const Packet& p = arrow.packet();
    const std::string fate = FateText(arrow);
    Json args = {{"psn", p.psn}, {"fate", FateName(arrow)}};
    if (arrow.repeat != 0) args["repeat"] = arrow.repeat;
    if (arrow.ambiguous) args["ambiguous"] = true;
    const std::string text = PacketText(p) + (fate.empty() ? "" : " | " + fate);
    if (arrow.t0 != kNoTime) {
      (*AddInstant(arrow.from, p.is_cm() ? p.qpn : arrow.local_qpn, arrow.t0,
                   "sent " + text))["args"] = args;
    }
    if (arrow.t1 != kNoTime) {
      (*AddInstant(arrow.to, p.qpn, arrow.t1, "received " + text))["args"] =
          std::move(args);
    }
  }

  const Timeline& t_;
  const Conversation& c_;
  uint64_t last_message_ = 0;
  int64_t last_ = kNoTime;
  const EndIndex ends_;
  // By end, whether it is a thread, and its number.
  std::map<std::tuple<size_t, bool, uint32_t>, uint64_t> tracks_;
  std::map<Post, Flow> flows_;
  std::map<Post, Post> completed_;  // posts, by completed events
  std::map<Post, Post> polls_;      // posts, by polled events
  std::vector<Json> names_;
  std::vector<Row> rows_;
};

}  // namespace

bool WritePerfetto(const Timeline& timeline, const Conversation& conversation,
                   std::FILE* out) {
  return Writer(timeline, conversation).Write(out);
}

}  // namespace trace
