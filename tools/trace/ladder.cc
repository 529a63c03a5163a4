#include "tools/trace/ladder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "tools/trace/escape.h"
#include "tools/trace/event.h"
#include "tools/trace/text_view.h"
#include "tools/trace/time_text.h"
#include "tools/trace/timeline_ends.h"
#include "wire/aeth.h"
#include "wire/cm_messages.h"

namespace trace {
namespace {

using wire::Operation;

// Sizes in px.
constexpr double kTop = 56;
constexpr double kBottom = 40;
constexpr double kMargin = 470;   // beside the outer ends: labels and bars
constexpr double kGap = 360;      // between two ends
constexpr double kWideGap = 470;  // between more: labels are there, too
constexpr double kLabelHeight = 12;
constexpr double kBarWidth = 9;
constexpr double kBarStep = 15;
constexpr size_t kBarLanes = 7;
constexpr double kFold = 40;  // a silence
// A gap is a silence if it is longer than this, and than eight usual gaps.
constexpr int64_t kSilence = 300'000;
constexpr int64_t kUsualGaps = 8;
constexpr size_t kShortestBand = 4;

std::string Px(double value) {
  std::string text = absl::StrFormat("%.1f", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

bool IsMiddle(const Packet& p) {
  return !p.info().starts_message && !p.info().ends_message &&
         p.info().full_mtu_payload;
}

bool IsReadResponse(const Packet& p) {
  return p.info().is_response && !p.is_acknowledge() &&
         wire::OperationOf(p.opcode) != Operation::kAtomicAcknowledge;
}

// The class of a packet's kind: its colour and the shape of its arrow head.
std::string Kind(const Arrow& arrow) {
  const Packet& p = arrow.packet();
  if (p.is_cnp()) return "c";
  if (p.is_cm()) return "y";
  if (p.info().Has(wire::kAeth) && p.is_acknowledge()) {
    switch (wire::AethKindOf(p.syndrome)) {
      case wire::AethKind::kNak:
        return "n";
      case wire::AethKind::kRnrNak:
        return "e";
      default:
        return "k";
    }
  }
  if (IsReadResponse(p)) return "d";
  if (p.info().is_response) return "k";
  // Neighboring messages have different classes.
  return "w" + std::to_string(arrow.message % 4);
}

// A drawn item: a packet, a band of packets, or an event.
struct Item {
  size_t arrow = kNone;  // the first one of a band
  size_t last = kNone;   // the last one of a band; otherwise kNone
  size_t count = 1;
  const TimedEvent* event = nullptr;
  size_t end = kNone;  // that of an event
  // Filled in by Place.
  double start = 0, start_last = 0, stop = 0, stop_last = 0;
};

class Drawer {
 public:
  Drawer(const Timeline& timeline, const Conversation& conversation,
         size_t limit)
      : t_(timeline), c_(conversation), ends_(timeline) {
    ladder_.arrows = std::min(limit, t_.arrows.size());
    ladder_.missing = t_.arrows.size() - ladder_.arrows;
    gap_ = t_.ends.size() > 2 ? kWideGap : kGap;
  }

  Ladder Draw() {
    MakeItems();
    Place();
    DrawEnds();
    for (const Silence& silence : silences_) DrawSilence(silence, false);
    DrawMessages();
    for (const Item& item : items_) {
      if (item.event != nullptr) {
        DrawEvent(item);
        continue;
      }
      ladder_.packets.push_back(item.arrow);
      if (item.count > 1) {
        DrawBand(item);
      } else {
        DrawArrow(item);
      }
    }
    for (const Silence& silence : silences_) DrawSilence(silence, true);
    return std::move(ladder_);
  }

 private:
  struct Moment {
    int64_t time;
    size_t item;
    double Item::*y;
    int label;  // the side of the label; -1: none
  };
  struct Silence {
    double y;
    int64_t ns;
  };

  double X(size_t end) const {
    return kMargin + gap_ * static_cast<double>(end);
  }
  double Width() const {
    return 2 * kMargin +
           gap_ * static_cast<double>(std::max<size_t>(t_.ends.size(), 1) - 1);
  }
  bool LabelIsLeft(const Arrow& arrow) const { return arrow.from <= arrow.to; }
  // Labels that must not overlap have the same number.
  int Side(size_t end, bool left) const {
    return static_cast<int>(end * 2 + (left ? 0 : 1));
  }
  bool EventIsLeft(size_t end) const {
    return end == 0 || end + 1 < t_.ends.size();
  }

  // --- Collecting items.

  static bool FitsBand(const Arrow& arrow) {
    return IsMiddle(arrow.packet()) && arrow.repeat == 0 && !arrow.ambiguous &&
           !arrow.went_wrong() &&
           (arrow.fate == Fate::kArrived || arrow.fate == Fate::kUnseen ||
            arrow.fate == Fate::kReceived);
  }

  void MakeItems() {
    std::map<std::tuple<size_t, size_t, uint32_t>, size_t> open;  // items
    std::vector<std::vector<size_t>> runs;  // arrows of each item
    for (size_t i = 0; i < ladder_.arrows; ++i) {
      const Arrow& arrow = t_.arrows[i];
      const auto flow =
          std::make_tuple(arrow.from, arrow.to, arrow.packet().qpn);
      const auto at = open.find(flow);
      if (at != open.end()) {
        const Arrow& before = t_.arrows[runs[at->second].back()];
        if (FitsBand(arrow) && before.fate == arrow.fate &&
            before.message == arrow.message &&
            before.packet().opcode == arrow.packet().opcode &&
            arrow.packet().psn == ((before.packet().psn + 1) & 0xffffff) &&
            arrow.end() >= before.end()) {
          runs[at->second].push_back(i);
          continue;
        }
        open.erase(at);
      }
      if (FitsBand(arrow)) open[flow] = runs.size();
      runs.push_back({i});
    }
    for (const auto& run : runs) {
      if (run.size() >= kShortestBand) {
        Item item;
        item.arrow = run.front();
        item.last = run.back();
        item.count = run.size();
        items_.push_back(item);
        continue;
      }
      for (const size_t i : run) {
        Item item;
        item.arrow = i;
        items_.push_back(item);
      }
    }
    const int64_t last = LastTime();
    for (const TimedEvent& event : t_.events) {
      if (event.time > last || !IsDrawn(*event.event)) continue;
      Item item;
      item.event = &event;
      item.end = ends_.Find(event.file, event.event->header().qpn);
      if (item.end != kNone) items_.push_back(item);
    }
  }

  // The time of the last item drawn.
  int64_t LastTime() const {
    if (ladder_.missing == 0) return INT64_MAX;
    return ladder_.arrows == 0 ? INT64_MIN
                               : t_.arrows[ladder_.arrows - 1].start();
  }

  // Rare events are drawn. Work requests are drawn as bars.
  static bool IsDrawn(const Event& event) {
    using rxe_user::trace::EventType;
    switch (static_cast<EventType>(event.header().type)) {
      case EventType::kCall:
        return event.As<rxe_user::trace::CallEvent>()->error != 0;
      case EventType::kPosted:
        return event.As<rxe_user::trace::PostedEvent>()->error != 0;
      case EventType::kCompleted:
        return event.As<rxe_user::trace::CompletedEvent>()->status != 0;
      case EventType::kTimer:
        return event.As<rxe_user::trace::TimerEvent>()->action ==
               static_cast<uint8_t>(rxe_user::trace::TimerAction::kFired);
      case EventType::kRecording:
      case EventType::kBegun:
      case EventType::kPolled:
      case EventType::kPacket:
      case EventType::kPath:
      case EventType::kNotification:
      case EventType::kCmMessage:  // drawn as its packet's arrow
        return false;
      default:
        return true;
    }
  }

  // --- Positions.

  void AddMoments(size_t n, std::vector<Moment>* moments) const {
    const Item& item = items_[n];
    if (item.event != nullptr) {
      moments->push_back({item.event->time, n, &Item::start,
                          Side(item.end, EventIsLeft(item.end))});
      return;
    }
    const Arrow& arrow = t_.arrows[item.arrow];
    const bool starts = arrow.t0 != kNoTime && arrow.fate != Fate::kDuplicate;
    const size_t side_end = starts ? arrow.from : arrow.to;
    const bool left = starts ? LabelIsLeft(arrow) : !LabelIsLeft(arrow);
    const int side = Side(side_end, left);
    if (starts) {
      moments->push_back({arrow.t0, n, &Item::start, side});
      if (item.count > 1) {
        moments->push_back({t_.arrows[item.last].t0, n, &Item::start_last, -1});
      }
    }
    if (arrow.t1 != kNoTime) {
      moments->push_back({arrow.t1, n, &Item::stop, starts ? -1 : side});
      if (item.count > 1) {
        moments->push_back({t_.arrows[item.last].t1, n, &Item::stop_last, -1});
      }
    }
  }

  static int64_t UsualGap(const std::vector<Moment>& moments) {
    std::vector<int64_t> gaps;
    for (size_t i = 1; i < moments.size(); ++i) {
      const int64_t gap = moments[i].time - moments[i - 1].time;
      if (gap > 0) gaps.push_back(gap);
    }
    if (gaps.empty()) return 0;
    std::nth_element(gaps.begin(), gaps.begin() + gaps.size() / 2, gaps.end());
    return gaps[gaps.size() / 2];
  }

  static double Step(int64_t ns) {
    if (ns == 0) return 0;
    const double us = static_cast<double>(ns) / 1000;
    return us < 2 ? 3 : std::min(kFold, 5 + 4 * std::log10(us));
  }

  void Place() {
    std::vector<Moment> moments;
    for (size_t n = 0; n < items_.size(); ++n) AddMoments(n, &moments);
    std::stable_sort(
        moments.begin(), moments.end(),
        [](const Moment& a, const Moment& b) { return a.time < b.time; });
    const int64_t usual = std::min(UsualGap(moments), kLatestTime / kUsualGaps);
    const int64_t silence = std::max(kSilence, kUsualGaps * usual);
    double y = kTop + 20;
    std::map<int, double> labels;
    for (size_t i = 0; i < moments.size(); ++i) {
      const Moment& m = moments[i];
      const int64_t gap = i == 0 ? 0 : m.time - moments[i - 1].time;
      if (gap >= silence) {
        silences_.push_back({y + kFold / 2, gap});
        y += kFold;
      } else {
        y += Step(gap);
      }
      if (m.label >= 0) {
        const auto [last, is_first] = labels.try_emplace(m.label, 0);
        if (!is_first) y = std::max(y, last->second + kLabelHeight);
        last->second = y;
      }
      items_[m.item].*m.y = y;
      if (places_.empty() || places_.back().first < m.time) {
        places_.push_back({m.time, y});
      }
    }
    ladder_.width = Width();
    ladder_.height = y + kBottom;
  }

  double YAt(int64_t time) const {
    const auto after = std::lower_bound(
        places_.begin(), places_.end(), time,
        [](const auto& place, int64_t t) { return place.first < t; });
    if (after == places_.end()) return ladder_.height - kBottom / 2;
    if (after->first == time || after == places_.begin()) return after->second;
    const auto before = after - 1;
    const double part = static_cast<double>(time - before->first) /
                        static_cast<double>(after->first - before->first);
    return before->second + part * (after->second - before->second);
  }

  // --- Drawing.

  void Add(const std::string& text) { ladder_.body += text; }

  std::string Since(int64_t time) const {
    const double us = static_cast<double>(time - t_.first) / 1000;
    return absl::StrFormat("%.*f", us < 99.95 ? 1 : 0, us);
  }

  void DrawEnds() {
    for (size_t e = 0; e < t_.ends.size(); ++e) {
      const std::string x = Px(X(e));
      Add("<path class=\"l\" d=\"M" + x + " " + Px(kTop - 8) + "V" +
          Px(ladder_.height - 14) + "\"/><text class=\"h\" x=\"" + x +
          "\" y=\"" + Px(kTop - 18) + "\">" + EscapeXml(t_.ends[e].label) +
          "</text>\n");
    }
  }

  // The box of a silence is drawn behind the packets, its text in front of
  // them.
  void DrawSilence(const Silence& silence, bool text) {
    const double left = X(0);
    const double right = X(std::max<size_t>(t_.ends.size(), 1) - 1);
    const double x = t_.ends.size() < 2 ? left - 60 : left;
    const double width = t_.ends.size() < 2 ? 120 : right - left;
    if (text) {
      Add("<text class=\"st\" x=\"" + Px(x + width / 2) + "\" y=\"" +
          Px(silence.y + 4) + "\">" + Duration(silence.ns) +
          " of silence</text>\n");
    } else {
      Add("<rect class=\"s\" data-ns=\"" + std::to_string(silence.ns) +
          "\" x=\"" + Px(x) + "\" y=\"" + Px(silence.y - 9) + "\" width=\"" +
          Px(width) + "\" height=\"18\"/>\n");
    }
  }

  // A label beside the line of an end.
  std::string Label(size_t end, bool left, double y, const std::string& text,
                    int64_t time, const std::string& fate = "") const {
    std::string when = "<tspan>" + Since(time) + "</tspan>";
    if (!fate.empty()) {
      when = "<tspan class=\"r\">" + EscapeXml(fate) + "</tspan> " + when;
    }
    const std::string x = Px(X(end) + (left ? -9 : 9));
    return "<text" + std::string(left ? " class=\"z\"" : "") + " x=\"" + x +
           "\" y=\"" + Px(y + 3.5) + "\">" + EscapeXml(text) + " " + when +
           "</text>";
  }

  static std::string Attribute(const char* name, const std::string& value) {
    return std::string(" ") + name + "=\"" + value + "\"";
  }

  void DrawArrow(const Item& item) {
    const Arrow& arrow = t_.arrows[item.arrow];
    const Packet& p = arrow.packet();
    std::string classes = "p " + Kind(arrow);
    if (IsMiddle(p)) classes += " i";
    if (arrow.repeat != 0) classes += " g";
    const bool is_rej =
        p.cm_attribute == static_cast<uint16_t>(wire::CmAttribute::kRej);
    if (arrow.went_wrong() || Kind(arrow) == "n" || Kind(arrow) == "e" ||
        is_rej) {
      classes += " t";
    }
    std::string g = "<g class=\"" + classes + "\"";
    if (arrow.connection != kNone && c_.connections.size() > 1) {
      g += Attribute("data-c", std::to_string(arrow.connection));
    }
    if (arrow.fate != Fate::kArrived) {
      g += Attribute("data-fate", FateName(arrow));
    }
    if (arrow.repeat != 0) {
      g += Attribute("data-again", std::to_string(arrow.repeat));
    }
    if (arrow.ambiguous) g += Attribute("data-ambiguous", "1");
    if (arrow.overtaken) g += Attribute("data-overtaken", "1");
    Add(g + ">" + Lines(item, arrow) + "</g>\n");
  }

  std::string Lines(const Item& item, const Arrow& arrow) const {
    const double x0 = X(arrow.from);
    // From a queue pair to itself, the arrow is a short detour.
    const double x1 = arrow.from == arrow.to ? x0 + gap_ / 3 : X(arrow.to);
    const auto path = [](double xa, double ya, double xb, double yb,
                         const char* more = "") {
      return "<path" + std::string(more) + " d=\"M" + Px(xa) + " " + Px(ya) +
             "l" + Px(xb - xa) + " " + Px(yb - ya) + "\"/>";
    };
    const auto cross = [](double x, double y) {
      return "<path class=\"x\" d=\"M" + Px(x - 4) + " " + Px(y - 4) +
             "l8 8m0-8l-8 8\"/>";
    };
    const std::string text = PacketText(arrow.packet());
    const std::string fate = FateText(arrow);
    const double half = x0 + (x1 - x0) * 0.55;
    const bool left = LabelIsLeft(arrow);
    const std::string end =
        arrow.was_dropped() ? cross(x1, item.stop) : std::string();
    switch (arrow.fate) {
      case Fate::kArrived:
        return path(x0, item.start, x1, item.stop) +
               Label(arrow.from, left, item.start, text, arrow.t0, fate);
      case Fate::kDropped:
        return path(x0, item.start, x1, item.stop) + end +
               Label(arrow.from, left, item.start, text, arrow.t0, fate);
      case Fate::kLost:
        return path(x0, item.start, half, item.start + 6) +
               cross(half + (x1 > x0 ? 9 : -9), item.start + 6) +
               Label(arrow.from, left, item.start, text, arrow.t0, fate);
      case Fate::kAfterEnd:
      case Fate::kUnseen:
        return path(x0, item.start, x0 + (x1 - x0) * 0.85, item.start + 5,
                    " class=\"o\"") +
               Label(arrow.from, left, item.start, text, arrow.t0, fate);
      case Fate::kDuplicate:
        return path(half, item.stop - 6, x1, item.stop) + end +
               Label(arrow.to, !left, item.stop, text, arrow.t1, fate);
      case Fate::kReceived:
      case Fate::kStranger:
        return path(x0 + (x1 - x0) * 0.15, item.stop - 5, x1, item.stop) + end +
               Label(arrow.to, !left, item.stop, text, arrow.t1, fate);
    }
    return "";
  }

  void DrawBand(const Item& item) {
    const Arrow& first = t_.arrows[item.arrow];
    const Arrow& last = t_.arrows[item.last];
    const double x0 = X(first.from);
    const double x1 = first.from == first.to ? x0 + gap_ / 3 : X(first.to);
    double a0 = item.start, a1 = item.start_last;
    double b0 = item.stop, b1 = item.stop_last;
    const bool starts = first.t0 != kNoTime;
    if (!starts) {
      a0 = b0 - 5;
      a1 = b1 - 5;
    } else if (first.t1 == kNoTime) {
      b0 = a0 + 5;
      b1 = a1 + 5;
    }
    std::string text = PacketText(first.packet());
    const std::string psn = std::to_string(first.packet().psn);
    const size_t at = text.find(" " + psn);
    if (at != std::string::npos) text.resize(at);
    text += " " + psn + " to " + std::to_string(last.packet().psn) + ": " +
            std::to_string(item.count) + " x " +
            std::to_string(first.packet().payload) + " B";
    std::string g = "<g class=\"b i " + Kind(first) + "\"" +
                    Attribute("data-n", std::to_string(item.count)) +
                    Attribute("data-to", std::to_string(last.packet().psn));
    if (first.connection != kNone && c_.connections.size() > 1) {
      g += Attribute("data-c", std::to_string(first.connection));
    }
    g += "><path d=\"M" + Px(x0) + " " + Px(a0) + "L" + Px(x1) + " " + Px(b0) +
         "V" + Px(std::max(b1, b0 + 3)) + "L" + Px(x0) + " " +
         Px(std::max(a1, a0 + 3)) + "Z\"/>";
    const bool left = starts ? LabelIsLeft(first) : !LabelIsLeft(first);
    g += Label(starts ? first.from : first.to, left, starts ? a0 : b0, text,
               first.start());
    Add(g + "</g>\n");
  }

  void DrawEvent(const Item& item) {
    const Event& event = *item.event->event;
    const double x = X(item.end);
    const bool left = EventIsLeft(item.end);
    ladder_.events.push_back(item.event - t_.events.data());
    Add("<g class=\"v\"" + Attribute("data-event", EscapeXml(event.name())) +
        Attribute("data-e", std::to_string(item.event - t_.events.data())) +
        "><path d=\"M" + Px(x) + " " + Px(item.start - 4) +
        "l4 4l-4 4l-4-4Z\"/>" +
        Label(item.end, left, item.start, EventText(event), item.event->time) +
        "</g>\n");
  }

  // Bars beside the outer ends, from post to completion.
  void DrawMessages() {
    // The position at which each lane is free again, by line.
    std::map<size_t, std::array<double, kBarLanes>> lanes;
    const int64_t last = LastTime();
    for (size_t n = 0; n < c_.messages.size(); ++n) {
      const Message& m = c_.messages[n];
      if (m.begin > last || m.end >= t_.ends.size()) continue;
      const double y0 = YAt(m.begin);
      const double y1 = m.done == kNoTime || m.done > last
                            ? ladder_.height - kBottom / 2
                            : YAt(m.done);
      auto& used = lanes[m.end];
      auto lane = std::find_if(used.begin(), used.end(),
                               [&](double free) { return free <= y0; });
      // If all are in use, bars overlap.
      if (lane == used.end()) lane = std::min_element(used.begin(), used.end());
      *lane = std::max({*lane, y1 + 14, y0 + 20});
      DrawMessage(n, m, BarX(m.end, lane - used.begin()), y0, y1);
    }
  }

  double BarX(size_t end, size_t lane) const {
    const double step = kBarStep * static_cast<double>(lane);
    if (end == 0) return 16 + step;
    if (end + 1 == t_.ends.size()) return Width() - 16 - step;
    return X(end) + 10 + step / 2;
  }

  void DrawMessage(size_t n, const Message& m, double x, double y0, double y1) {
    std::string classes = "m w" + std::to_string(m.number % 4);
    if (!m.error.empty()) classes += " f";
    if (m.done == kNoTime) classes += " u";
    const double low = std::max(y1, y0 + 4);
    ladder_.messages.push_back(n);
    Add("<path class=\"" + classes + "\"" +
        (m.connection != kNone && c_.connections.size() > 1
             ? Attribute("data-c", std::to_string(m.connection))
             : "") +
        " d=\"M" + Px(x) + " " + Px(y0) + "V" + Px(low) + "\"/>");
    if (m.polled != kNoTime) {
      Add("<path class=\"q\" d=\"M" + Px(x - 5) + " " + Px(YAt(m.polled)) +
          "h10\"/>");
    }
    Add("<text x=\"" + Px(x) + "\" y=\"" + Px(y0 - 3) + "\">" +
        std::to_string(m.number) + "</text>\n");
  }

  const Timeline& t_;
  const Conversation& c_;
  Ladder ladder_;
  double gap_;
  std::vector<Item> items_;
  std::vector<Silence> silences_;
  std::vector<std::pair<int64_t, double>> places_;  // y by time
  const EndIndex ends_;
};

}  // namespace

Ladder MakeLadder(const Timeline& timeline, const Conversation& conversation,
                  size_t limit) {
  return Drawer(timeline, conversation, limit).Draw();
}

const char* LadderStyle() {
  return R"(.ladder{font:10.5px "DejaVu Sans Mono",Menlo,Consolas,monospace;fill:#0f172a;background:#fff}
.ladder path{fill:none}
.l{stroke:#334155;stroke-width:2}
.h{font:600 13px system-ui,"DejaVu Sans",sans-serif;text-anchor:middle}
.p path,.b path{stroke:currentColor;stroke-width:1.4}
.p text,.b text,.v text{fill:currentColor;stroke:#fff;stroke-width:3;paint-order:stroke}
.p tspan,.b tspan,.v tspan{fill:#64748b}
.ladder .r{fill:#b91c1c;font-weight:700}.ladder .g:not([data-fate]) .r{fill:#92400e;font-weight:400}
.z{text-anchor:end}
.w0{color:#0f766e;stroke:#0f766e}.w1{color:#1d4ed8;stroke:#1d4ed8}
.w2{color:#0e7490;stroke:#0e7490}.w3{color:#6d28d9;stroke:#6d28d9}
.k{color:#15803d}.n{color:#dc2626}.e{color:#b45309}.d{color:#a21caf}.c{color:#7c2d12}.y{color:#475569}
.w0>path{marker-end:url(#w0)}.w1>path{marker-end:url(#w1)}
.w2>path{marker-end:url(#w2)}.w3>path{marker-end:url(#w3)}
.k>path{marker-end:url(#k)}.n>path{marker-end:url(#n);stroke-width:2}
.e>path{marker-end:url(#e);stroke-width:2}.d>path{marker-end:url(#d)}
.c>path{marker-end:url(#c);stroke-dasharray:1 3}.y>path{marker-end:url(#y)}
.p.g>path{stroke-dasharray:6 3}
.p>.o{stroke-dasharray:2 3}
.p>.x{marker-end:none;stroke:#dc2626;stroke-width:2.2;stroke-dasharray:none}
.b>path{fill:currentColor;fill-opacity:.16;marker-end:none;stroke-width:1}
.s{fill:#f8fafc;stroke:#94a3b8;stroke-dasharray:3 3}
.st{fill:#475569;text-anchor:middle;font-size:11px;stroke:#fff;stroke-width:4;paint-order:stroke}
.v{color:#334155}.v path{fill:#fff;stroke:#334155;stroke-width:1.5}.v text{font-style:italic}
.ladder .m{stroke-width:9;marker-end:none;stroke-opacity:.75}
.ladder .m.u{stroke-dasharray:6 4}.ladder .m.f{stroke:#dc2626}
.q{stroke:#0f172a;stroke-width:2}
.m+text,.q+text{font-size:9px;fill:#334155;text-anchor:middle;stroke:none}
)";
}

// Shapes differ, not only colours. Requests end in a filled triangle, ACKs in
// an open one, READ responses in a double one, NAKs in a square, RNR NAKs in a
// diamond, CNPs in a circle, connection management in an open square.
const char* LadderMarkers() {
  return R"(<defs>
<marker id="w0" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path style="fill:#0f766e;stroke:none" d="M0 0L8 4L0 8Z"/></marker>
<marker id="w1" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path style="fill:#1d4ed8;stroke:none" d="M0 0L8 4L0 8Z"/></marker>
<marker id="w2" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path style="fill:#0e7490;stroke:none" d="M0 0L8 4L0 8Z"/></marker>
<marker id="w3" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path style="fill:#6d28d9;stroke:none" d="M0 0L8 4L0 8Z"/></marker>
<marker id="k" viewBox="0 0 9 8" refX="9" refY="4" markerWidth="9" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path style="fill:none;stroke:#15803d;stroke-width:1.4" d="M1 .5L8.5 4L1 7.5"/></marker>
<marker id="n" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path style="fill:#dc2626;stroke:none" d="M0 0H8V8H0Z"/></marker>
<marker id="e" viewBox="0 0 10 10" refX="10" refY="5" markerWidth="10" markerHeight="10" markerUnits="userSpaceOnUse" orient="auto"><path style="fill:#b45309;stroke:none" d="M0 5L5 0L10 5L5 10Z"/></marker>
<marker id="d" viewBox="0 0 14 8" refX="14" refY="4" markerWidth="14" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path style="fill:#a21caf;stroke:none" d="M0 0L7 4L0 8ZM7 0L14 4L7 8Z"/></marker>
<marker id="c" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><circle cx="4" cy="4" r="4" style="fill:#7c2d12"/></marker>
<marker id="y" viewBox="0 0 9 9" refX="9" refY="4.5" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path style="fill:#fff;stroke:#475569;stroke-width:1.4" d="M1 1H8V8H1Z"/></marker>
</defs>)";
}

std::string SvgFile(const Ladder& ladder) {
  const std::string width = Px(ladder.width);
  const std::string height = Px(ladder.height);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"ladder\" width=\"" +
         width + "\" height=\"" + height + "\" viewBox=\"0 0 " + width + " " +
         height + "\">\n<style>" + LadderStyle() + "</style>\n" +
         LadderMarkers() + "\n<rect width=\"" + width + "\" height=\"" +
         height + "\" fill=\"#fff\"/>\n" + ladder.body + "</svg>\n";
}

}  // namespace trace
