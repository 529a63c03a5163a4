#include "tools/rxe_user_cli/expectation_facts.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "rxe_user/observe/trace_table.h"
#include "tools/trace/escape.h"
#include "tools/trace/time_text.h"
#include "transport/base/counters.h"
#include "transport/base/rare_event.h"

namespace rxe_user_cli {
namespace {

using rxe_user::TallyItem;
using rxe_user::TallyPage;

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// A counter in the tally page, which also has the first event that it counts.
struct Counted {
  uint64_t value = 0;
  const TallyItem* first = nullptr;
};

const transport::Counter* FindQpCounter(std::string_view name) {
  for (const transport::Counter& counter : transport::kQpCounters) {
    if (counter.name == name) return &counter;
  }
  return nullptr;
}

// The event that increments the member of QpCounters at `offset`.
const transport::RareEventText* FindRareEvent(size_t offset) {
  const transport::QpCounters counters;
  const auto* const base = reinterpret_cast<const char*>(&counters);
  for (const transport::RareEventText& event : transport::kRareEvents) {
    if (event.counter != nullptr &&
        reinterpret_cast<const char*>(&(counters.*event.counter)) - base ==
            static_cast<ptrdiff_t>(offset)) {
      return &event;
    }
  }
  return nullptr;
}

std::optional<Counted> FindCounted(const TallyPage& page,
                                   std::string_view name) {
  if (const transport::Counter* counter = FindQpCounter(name)) {
    if (counter->offset == offsetof(transport::QpCounters, retransmitted)) {
      return Counted{page.repeated, &page.first_repeated};
    }
    if (const auto* const event = FindRareEvent(counter->offset)) {
      const auto kind = static_cast<size_t>(event->kind);
      return Counted{page.events[kind], &page.first_event[kind]};
    }
    return std::nullopt;
  }
  constexpr auto kUnknownQp =
      static_cast<size_t>(transport::Disposition::kUnknownQp);
  for (const transport::Counter& counter : transport::kEndpointCounters) {
    if (counter.name != name) continue;
    const size_t at =
        (counter.offset - offsetof(transport::EndpointCounters, dropped)) /
        sizeof(uint64_t);
    if (counter.offset >= offsetof(transport::EndpointCounters, dropped) &&
        at < kUnknownQp) {
      return Counted{page.dropped[at], &page.first_dropped[at]};
    }
  }
  return std::nullopt;
}

// Calls `visit(queue, status)` for each kind of completion that counts.
template <typename Visit>
void VisitCompletions(WorkQueues queues, int status, Visit&& visit) {
  for (size_t q = 0; q < rxe_user::kTallyQueues; ++q) {
    if (queues == WorkQueues::kSend && q != 0) continue;
    if (queues == WorkQueues::kReceive && q != 1) continue;
    for (size_t s = 0; s < rxe_user::kTallyStatuses; ++s) {
      if (status == Quantity::kAnyStatus || s == static_cast<size_t>(status)) {
        visit(q, s);
      }
    }
  }
}

std::string Time(int64_t ns) {
  const auto time = static_cast<double>(ns);
  if (ns >= 1'000'000'000) return absl::StrFormat("%.3fs", time / 1e9);
  if (ns >= 1'000'000) return absl::StrFormat("%.3fms", time / 1e6);
  return absl::StrFormat("%.3fus", time / 1e3);
}

void Append(const std::string& text, std::string* to) {
  if (!to->empty()) *to += "; ";
  *to += text;
}

uint64_t Sum(uint64_t a, uint64_t b) {
  return a > kNoLimit - b ? kNoLimit : a + b;
}

std::string NameOf(const TallyPage& page) {
  return trace::Printable(page.program) + " (process " +
         std::to_string(page.pid) + ")";
}

}  // namespace

void Facts::Add(const TallyPage& page, bool runs) {
  processes_.push_back({page, runs});
}

std::string Facts::WhyUnknown() const {
  if (!unreadable_.empty()) return unreadable_;
  return processes_.empty() ? "no process opened our device" : "";
}

std::string Facts::WhyMayRise() const {
  for (const Process& process : processes_) {
    if (process.runs) return NameOf(process.page) + " still runs";
  }
  return "";
}

Facts::Range Facts::OfProcess(const Process& process,
                              const Quantity& quantity) const {
  const TallyPage& page = process.page;
  Range range;
  bool is_final = !process.runs;
  if (process.runs) range.why = NameOf(page) + " still runs";
  if (quantity.kind == Quantity::Kind::kCompletions) {
    VisitCompletions(quantity.queues, quantity.status, [&](size_t q, size_t s) {
      range.least += page.completions[q][s];
    });
  } else if (quantity.kind == Quantity::Kind::kLints) {
    range.least = page.lints;
  } else {
    const std::string_view name = ExpectedCounters()[quantity.counter];
    const auto counted = FindCounted(page, name);
    const bool has_counters = page.devices_counted >= page.devices_opened;
    const uint64_t added = quantity.counter < rxe_user::kMaxTallyCounters
                               ? page.counters[quantity.counter]
                               : 0;
    if (has_counters && is_final) {
      range.least = added;
    } else if (counted) {
      range.least = std::max(counted->value, added);
    } else {
      range.least = added;
      if (is_final) {
        range.why = NameOf(page) +
                    " ended without exit(), so its counters were not written";
      }
      is_final = false;
    }
  }
  range.most = is_final ? range.least : kNoLimit;
  return range;
}

Facts::Range Facts::Of(const Quantity& quantity) const {
  if (quantity.kind == Quantity::Kind::kNumber) {
    return {quantity.number, quantity.number, ""};
  }
  Range sum;
  for (const Process& process : processes_) {
    const Range one = OfProcess(process, quantity);
    sum.least = Sum(sum.least, one.least);
    sum.most = Sum(sum.most, one.most);
    if (sum.why.empty()) sum.why = one.why;
  }
  if (const std::string why = WhyUnknown(); !why.empty()) {
    sum.most = kNoLimit;
    sum.why = why;
  }
  return sum;
}

std::optional<Facts::Item> Facts::FirstOf(const Quantity& quantity) const {
  std::optional<Item> first;
  for (const Process& process : processes_) {
    const auto consider = [&](const TallyItem& item, std::string what) {
      if (item.is_set == 0) return;
      if (first && first->item.time <= item.time) return;
      first = Item{item, &process, std::move(what)};
    };
    if (quantity.kind == Quantity::Kind::kCompletions) {
      VisitCompletions(
          quantity.queues, quantity.status, [&](size_t q, size_t s) {
            const std::string_view name =
                rxe_user::trace::NameOf(rxe_user::trace::StatusNames(), s);
            consider(process.page.first_completion[q][s],
                     quantity.status == Quantity::kAnyStatus ? std::string(name)
                                                             : "");
          });
    } else if (quantity.kind == Quantity::Kind::kCounter) {
      const auto counted =
          FindCounted(process.page, ExpectedCounters()[quantity.counter]);
      if (counted) consider(*counted->first, "");
    }
  }
  return first;
}

Facts::Slowest Facts::SlowestOf(WorkQueues queues) const {
  Slowest slowest;
  for (const Process& process : processes_) {
    const TallyPage& page = process.page;
    VisitCompletions(queues, Quantity::kAnyStatus, [&](size_t q, size_t s) {
      slowest.completions += page.completions[q][s];
      if (s != 0) return;  // the rest is per queue, not per status
      slowest.untimed += page.untimed[q];
      if (page.slowest_ns[q] <= slowest.ns) return;
      slowest.ns = page.slowest_ns[q];
      slowest.item.reset();
      if (page.slowest[q].is_set != 0) {
        slowest.item = Item{page.slowest[q], &process, ""};
      }
    });
  }
  return slowest;
}

std::string Facts::TextOf(const Item& found) {
  const TallyItem& item = found.item;
  std::vector<std::string> words;
  if (!found.what.empty()) words.push_back(found.what);
  if (item.qpn != 0) {
    words.push_back(absl::StrFormat("queue pair 0x%06x", item.qpn));
  }
  if (item.has_psn != 0) words.push_back(absl::StrCat("PSN ", item.psn));
  if (item.has_wr_id != 0) words.push_back(absl::StrCat("wr_id ", item.wr_id));
  words.push_back("at " + trace::TimeOfDay(item.time, 6));
  words.push_back(NameOf(found.process->page));
  return absl::StrJoin(words, ", ");
}

// --- Judging, with three values, since not everything is known.

Judgement Facts::Judge(const Expectation& expectation) const {
  Judgement judgement;
  judgement.verdict = JudgePart(expectation.condition);
  if (judgement.verdict != Verdict::kTrue) {
    Explain(expectation.condition, false, &judgement);
  }
  return judgement;
}

Judgement Facts::JudgeRule(uint32_t number) const {
  uint64_t hit = 0;
  for (const Process& process : processes_) {
    hit = Sum(hit, process.page.faults[number - 1]);
  }
  if (hit != 0) return {Verdict::kTrue, "", ""};
  for (const std::string& why : {WhyUnknown(), WhyMayRise()}) {
    if (!why.empty()) return {Verdict::kNotKnown, why, ""};
  }
  return {Verdict::kFalse, "it never fired", ""};
}

Verdict Facts::JudgePart(const Condition& part) const {
  Verdict verdict;
  switch (part.kind) {
    case Condition::Kind::kAnd:
      verdict = Verdict::kTrue;
      for (const Condition& each : part.parts) {
        verdict = std::min(verdict, JudgePart(each));
      }
      return verdict;
    case Condition::Kind::kOr:
      verdict = Verdict::kFalse;
      for (const Condition& each : part.parts) {
        verdict = std::max(verdict, JudgePart(each));
      }
      return verdict;
    case Condition::Kind::kNot:
      verdict = JudgePart(part.parts[0]);
      if (verdict == Verdict::kNotKnown) return verdict;
      return verdict == Verdict::kTrue ? Verdict::kFalse : Verdict::kTrue;
    case Condition::Kind::kEvery:
      return JudgeEvery(part);
    case Condition::Kind::kCompare:
      break;
  }
  return JudgeComparison(part);
}

Verdict Facts::JudgeComparison(const Condition& part) const {
  const Range left = Of(part.left);
  const Range right = Of(part.right);
  if (Always(left, part.relation, right)) return Verdict::kTrue;
  return Always(left, Opposite(part.relation), right) ? Verdict::kFalse
                                                      : Verdict::kNotKnown;
}

bool Facts::Always(const Range& left, Relation relation, const Range& right) {
  switch (relation) {
    case Relation::kEqual:
      return left.least == left.most && right.least == right.most &&
             left.least == right.least;
    case Relation::kNotEqual:
      return left.most < right.least || left.least > right.most;
    case Relation::kLess:
    case Relation::kLessOrEqual:
      return Holds(left.most, relation, right.least);
    case Relation::kGreater:
    case Relation::kGreaterOrEqual:
      break;
  }
  return Holds(left.least, relation, right.most);
}

Verdict Facts::JudgeEvery(const Condition& part) const {
  const Slowest slowest = SlowestOf(part.queues);
  if (slowest.ns > part.within) return Verdict::kFalse;
  if (!WhyUnknown().empty() || !WhyMayRise().empty()) return Verdict::kNotKnown;
  if (slowest.untimed != 0) return Verdict::kNotKnown;
  return slowest.completions == 0 ? Verdict::kFalse : Verdict::kTrue;
}

// --- Explaining.

void Facts::Explain(const Condition& part, bool negated, Judgement* out) const {
  const Verdict good = negated ? Verdict::kFalse : Verdict::kTrue;
  switch (part.kind) {
    case Condition::Kind::kNot:
      return Explain(part.parts[0], !negated, out);
    case Condition::Kind::kAnd:
    case Condition::Kind::kOr:
      for (const Condition& each : part.parts) {
        if (JudgePart(each) != good) Explain(each, negated, out);
      }
      return;
    case Condition::Kind::kEvery:
      return ExplainEvery(part, out);
    case Condition::Kind::kCompare:
      return ExplainComparison(part, negated, out);
  }
}

void Facts::ExplainComparison(const Condition& part, bool negated,
                              Judgement* out) const {
  for (const Quantity* quantity : {&part.left, &part.right}) {
    if (quantity->kind == Quantity::Kind::kNumber) continue;
    const Range range = Of(*quantity);
    std::string text = quantity->text + " is ";
    if (range.least == range.most) {
      text += std::to_string(range.least);
    } else if (range.least == 0) {
      text += "not known: " + range.why;
    } else {
      text += "at least " + std::to_string(range.least) + ": " + range.why;
    }
    if (out->seen.find(text) == std::string::npos) Append(text, &out->seen);
  }
  // If a quantity is too large, show the first event that it counted.
  const uint64_t left = Of(part.left).least;
  const uint64_t right = Of(part.right).least;
  const bool swapped = part.left.kind == Quantity::Kind::kNumber;
  const Quantity& of = swapped ? part.right : part.left;
  const bool is_more = swapped ? right > left : left > right;
  const bool is_same = left == right;
  bool too_many = is_more;
  switch (negated ? Opposite(part.relation) : part.relation) {
    case Relation::kNotEqual:
      too_many = is_same;
      break;
    case Relation::kLess:
      too_many = !swapped && (is_more || is_same);
      break;
    case Relation::kGreater:
      too_many = swapped && (is_more || is_same);
      break;
    default:
      break;
  }
  if (!too_many || !out->first.empty()) return;
  if (const auto first = FirstOf(of)) {
    out->first = "the first: " + TextOf(*first);
  }
}

void Facts::ExplainEvery(const Condition& part, Judgement* out) const {
  const Slowest slowest = SlowestOf(part.queues);
  const std::string word(kQueueWords[static_cast<size_t>(part.queues)]);
  if (const std::string why = WhyUnknown(); !why.empty()) {
    Append(why, &out->seen);
  } else if (slowest.completions == 0) {
    Append("there was no " + word, &out->seen);
  } else {
    Append(
        "the slowest " + word + " came " + Time(slowest.ns) + " after its post",
        &out->seen);
    if (slowest.ns <= part.within && slowest.untimed != 0) {
      Append("of " + std::to_string(slowest.untimed) +
                 " more it is not known when they were posted",
             &out->seen);
    }
    if (slowest.ns <= part.within && !WhyMayRise().empty()) {
      Append(WhyMayRise(), &out->seen);
    }
    if (slowest.item && out->first.empty()) {
      out->first = "the slowest: " + TextOf(*slowest.item);
    }
  }
}

}  // namespace rxe_user_cli
