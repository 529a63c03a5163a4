#include "rxe_user/faults/process_faults.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "rxe_user/base/clock.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/only_one.h"
#include "rxe_user/base/timed_lock.h"
#include "rxe_user/base/warn_once.h"
#include "transport/faults/rule_parser.h"
#include "transport/qp/qp_type.h"
#include "wire/aeth.h"

namespace rxe_user {
namespace {

using transport::kNever;
using transport::RareEventKind;
using transport::Time;
using transport::faults::Action;
using transport::faults::Rule;

// How long a program that ends waits for the lock.
constexpr std::chrono::milliseconds kExitPatience{1000};

std::atomic<ProcessFaults*> current_faults = nullptr;

class Holder final : private ForkGuard {
 public:
  static Holder& Get() { return OnlyOne<Holder>(); }

  Holder() : ForkGuard(ForkLevel::kLeafLocks) { EnterForkGuard(); }
  ~Holder() { LeaveForkGuard(); }

  ProcessFaults* Find() {
    if (started_.load(std::memory_order_acquire)) return current_faults;
    const std::lock_guard lock(mutex_);
    if (!started_) {
      FaultSettings settings;
      if (!ReadFaultSettings(&settings) && settings.on) {
        faults_ = new ProcessFaults(std::move(settings), ProcessFaults::Now());
        current_faults = faults_;
      }
      started_.store(true, std::memory_order_release);
    }
    return current_faults;
  }

 private:
  void BeforeFork() override {
    mutex_.lock();
    if (faults_ != nullptr) faults_->LockForFork();
  }
  void AfterForkInParent() override {
    if (faults_ != nullptr) faults_->UnlockAfterFork();
    mutex_.unlock();
  }
  // The parent's ports still refer to it, so it is not freed.
  void AfterForkInChild() override {
    if (faults_ != nullptr) faults_->RenewInChild();
    faults_ = nullptr;
    current_faults = nullptr;
    started_ = false;
    mutex_.unlock();
  }

  std::mutex mutex_;
  ProcessFaults* faults_ = nullptr;    // under mutex_
  std::atomic<bool> started_ = false;  // changed under mutex_
};

__attribute__((destructor)) void WarnOfFaultsAtExit() {
  if (const ProcessFaults* const faults = current_faults) faults->WarnAtExit();
}

}  // namespace

ProcessFaults* ProcessFaults::Find() { return Holder::Get().Find(); }

ProcessFaults* ProcessFaults::Current() {
  return current_faults.load(std::memory_order_acquire);
}

Time ProcessFaults::Now() { return MonotonicNs(); }

ProcessFaults::ProcessFaults(FaultSettings settings, Time start)
    : injector_(std::move(settings.rules), settings.seed, start),
      effects_(injector_.rules().size()) {
  UpdateConcerns();
}

void ProcessFaults::UpdateConcerns() {
  uint32_t concerns = injector_.concerns();
  if (link_.rule != nullptr) {
    concerns |= kLinkDown | transport::faults::kReceived |
                transport::faults::kTransmitted;
  }
  concerns_.store(concerns, std::memory_order_relaxed);
}

std::optional<std::string> ProcessFaults::Add(
    std::string_view text, Time now, std::vector<FaultRuleStatus>* added) {
  std::vector<Rule> rules;
  if (const auto wrong = transport::faults::ParseRules(text, &rules)) {
    return wrong->ToString();
  }
  {
    const std::lock_guard lock(mutex_);
    const size_t before = injector_.rules().size();
    effects_.reserve(before + rules.size());
    if (!injector_.Add(std::move(rules), now)) {
      return "the process would have had more than " +
             std::to_string(transport::faults::Injector::kMaxRulesEver) +
             " rules since it began";
    }
    effects_.resize(injector_.rules().size());
    UpdateConcerns();
    *added = StatusLocked(before);
  }
  targets_.TickAfter(0);
  return std::nullopt;
}

std::optional<std::string> ProcessFaults::Remove(
    const std::vector<uint32_t>& numbers,
    std::vector<FaultRuleStatus>* removed) {
  std::unique_lock lock(mutex_);
  for (const uint32_t number : numbers) {
    if (number == 0 || number > injector_.rules().size() ||
        injector_.counts()[number - 1].removed) {
      return "there is no rule " + std::to_string(number);
    }
  }
  const std::vector<FaultRuleStatus> all = StatusLocked();
  const auto remove = [&](uint32_t number) {
    if (!injector_.Remove(number)) return;
    removed->push_back(all[number - 1]);
    effects_[number - 1].stall_until = 0;
    effects_[number - 1].down_until = 0;
  };
  if (numbers.empty()) {
    for (const Rule& rule : injector_.rules()) remove(rule.number);
  }
  for (const uint32_t number : numbers) remove(number);
  ChooseStall();
  ChooseOutage();
  UpdateConcerns();
  lock.unlock();
  targets_.TickAfter(0);
  return std::nullopt;
}

transport::faults::Fate ProcessFaults::Decide(
    const transport::faults::PacketFacts& facts, Time now) {
  std::unique_lock lock(mutex_);
  if (link_.is_down(now)) {
    injector_.CountOnly(facts);
    transport::faults::Fate lost;
    lost.rule = link_.rule;
    lost.is_consequence = true;
    return lost;
  }
  const transport::faults::Fate fate = injector_.Decide(facts, now);
  if (fate.rule == nullptr) return fate;
  if (fate.rule->action == Action::kStall) Stall(*fate.rule, now + fate.delay);
  if (fate.rule->action == Action::kLink) {
    SetLink(*fate.rule, now);
    lock.unlock();
    targets_.TickAfter(0);
  } else if (fate.rule->action == Action::kEvent) {
    lock.unlock();
    targets_.Raise(*fate.rule, facts.qpn, !facts.transmitted);
  }
  return fate;
}

void ProcessFaults::SetLink(const Rule& rule, Time now) {
  // The thread that calls Tick may be late. `link up` ends only outages that
  // began before its time, and ends them at that time.
  const Time at = rule.is_timed ? injector_.BeginOf(rule) : now;
  if (rule.link_up) {
    for (Effect& effect : effects_) {
      if (effect.down_since > at) continue;
      effect.down_until = std::min(effect.down_until, at);
    }
    ChooseOutage();
    UpdateConcerns();
    return;
  }
  const Time until = rule.is_timed           ? injector_.EndOf(rule)
                     : rule.during == kNever ? kNever
                                             : now + rule.during;
  // Of two outages by a rule, the later end counts.
  Effect& effect = effects_[rule.number - 1];
  if (until > effect.down_until) {
    effect.down_since = at;
    effect.down_until = until;
    went_down_ = true;
  }
  ChooseOutage();
  UpdateConcerns();
}

void ProcessFaults::ChooseOutage() {
  const Effect* longest = nullptr;
  for (const Effect& effect : effects_) {
    const Time until = longest != nullptr ? longest->down_until : 0;
    if (effect.down_until > until) longest = &effect;
  }
  link_ = {};
  if (longest == nullptr) return;
  link_ = {.rule = &injector_.rules()[longest - effects_.data()],
           .until = longest->down_until};
}

void ProcessFaults::ChooseStall() {
  // The rule stays: lanes may still hold packets because of it.
  stall_.until = 0;
  for (const Rule& rule : injector_.rules()) {
    Stall(rule, effects_[rule.number - 1].stall_until);
  }
}

// Only this function tells contexts the port's state. tick_mutex_ serializes
// its callers, so that contexts learn of changes in order.
std::vector<const Rule*> ProcessFaults::Tick(Time now, Time* next) {
  const std::lock_guard tick(tick_mutex_);
  std::vector<const Rule*> fired;
  bool is_down;
  bool went_down;
  {
    const std::lock_guard lock(mutex_);
    while (const Rule* const rule = injector_.TakeTimed(now)) {
      fired.push_back(rule);
      if (rule->action == Action::kLink) SetLink(*rule, now);
    }
    if (link_.rule != nullptr && link_.until <= now) {
      for (Effect& effect : effects_) effect.down_until = 0;
      link_ = {};
      UpdateConcerns();
    }
    is_down = link_.rule != nullptr;
    went_down = std::exchange(went_down_, false);
    *next = std::min(injector_.NextTimed(now), is_down ? link_.until : kNever);
  }
  for (const Rule* const rule : fired) {
    if (rule->action == Action::kEvent) targets_.Raise(*rule, 0, false);
  }
  // The port may have been down only between two calls.
  if (went_down && !is_down && !reported_down_) {
    targets_.SetLink(false);
    reported_down_ = true;
  }
  if (is_down != reported_down_) targets_.SetLink(!is_down);
  reported_down_ = is_down;
  return fired;
}

void ProcessFaults::Add(FaultedContext* context, Time now) {
  // Other threads may call Tick as soon as targets_ has the context. They wait
  // for SkipTimedUntil.
  const std::lock_guard tick(tick_mutex_);
  if (!targets_.Add(context)) return;
  const std::lock_guard lock(mutex_);
  injector_.SkipTimedUntil(now);
}

const Rule* ProcessFaults::DecideTransfer(
    const transport::faults::TransferFacts& facts, Time now) {
  uint32_t number;
  const Rule* rule;
  {
    const std::lock_guard lock(mutex_);
    rule = injector_.DecideTransfer(facts, now, &number);
  }
  if (rule != nullptr)
    targets_.OnTransferFault(*rule, facts.qpn, !facts.reads, number);
  return rule;
}

bool ProcessFaults::IsValid(const Rule& rule, Time now) const {
  const std::lock_guard lock(mutex_);
  return injector_.IsValid(rule, now);
}

FaultStall ProcessFaults::stall() const {
  const std::lock_guard lock(mutex_);
  return stall_;
}

FaultLink ProcessFaults::link() const {
  const std::lock_guard lock(mutex_);
  return link_;
}

std::optional<uint8_t> ProcessFaults::Refuse(
    uint32_t qpn, const transport::RequestToExecute& request) {
  if (!refuses()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const Rule* const rule = injector_.TakeRefusal(
      qpn, {.address = request.requester, .qpn = request.requester_qpn},
      request.psn);
  if (rule == nullptr) return std::nullopt;
  return rule->syndrome.value_or(wire::MakeRnrSyndrome(request.min_rnr_timer));
}

const Rule* ProcessFaults::DecideCompletion(
    const transport::faults::CompletionFacts& facts) {
  const Time now = Now();
  const std::lock_guard lock(mutex_);
  return injector_.DecideCompletion(facts, now);
}

transport::faults::NumberedFate ProcessFaults::DecideCall(
    std::string_view call, std::optional<uint64_t> wr_id) {
  const Time now = Now();
  std::unique_lock lock(mutex_);
  const transport::faults::NumberedFate fate =
      injector_.DecideCall(call, wr_id, now);
  if (fate.rule == nullptr) return fate;
  const Action action = fate.rule->action;
  if (action == Action::kStall) Stall(*fate.rule, now + fate.delay);
  if (action == Action::kLink) SetLink(*fate.rule, now);
  lock.unlock();
  if (action == Action::kLink) targets_.TickAfter(0);
  if (action == Action::kEvent) targets_.Raise(*fate.rule, 0, false);
  return fate;
}

transport::faults::NumberedFate ProcessFaults::DecideMad(
    const transport::faults::MadFacts& facts, Time now) {
  const std::lock_guard lock(mutex_);
  if (link_.is_down(now)) return {.rule = link_.rule};
  return injector_.DecideMad(facts, now);
}

void ProcessFaults::Stall(const Rule& rule, Time until) {
  Time& of_rule = effects_[rule.number - 1].stall_until;
  of_rule = std::max(of_rule, until);
  if (until > stall_.until) stall_ = {.until = until, .rule = &rule};
}

void ProcessFaults::CountNoRoom(const Rule& rule) {
  const std::lock_guard lock(mutex_);
  ++effects_[rule.number - 1].no_room;
}

void ProcessFaults::OnCreated(uint32_t qpn, bool has_cqs, bool has_srq) {
  const std::lock_guard lock(mutex_);
  try {
    injector_.OnCreated(qpn, has_cqs, has_srq);
  } catch (const std::bad_alloc&) {
    // Without memory, rules that name the queue pair do not find it.
  }
}

void ProcessFaults::OnPosted(
    uint32_t qpn, std::span<const transport::faults::PostedRequest> requests,
    size_t unknown) {
  const std::lock_guard lock(mutex_);
  size_t known = 0;
  try {
    for (const auto& request : requests) {
      injector_.OnPosted(qpn, request);
      ++known;
    }
  } catch (const std::bad_alloc&) {
    // Without memory, rules that name the request do not find it.
  }
  injector_.OnPostedUnknown(qpn, requests.size() - known + unknown);
}

void ProcessFaults::OnPostRefused(uint32_t qpn, size_t count) {
  const std::lock_guard lock(mutex_);
  injector_.OnPostRefused(qpn, count);
}

void ProcessFaults::OnSent(uint32_t qpn, std::span<const uint8_t> bytes) {
  wire::PacketView packet;
  if (wire::PacketView::Parse(bytes, &packet) != wire::ParseError::kOk) return;
  const std::lock_guard lock(mutex_);
  try {
    injector_.OnSent(qpn, packet);
  } catch (const std::bad_alloc&) {
    // Without memory, rules do not find the message.
  }
}

void ProcessFaults::OnRareEvent(const transport::RareEvent& event,
                                transport::QpType type,
                                const transport::QpAttributes& attributes) {
  if (event.kind == RareEventKind::kDestroyed) {
    const std::lock_guard lock(mutex_);
    injector_.OnDestroyed(event.qpn);
    return;
  }
  // Any peer may send datagrams, so there is no first PSN to receive.
  if (event.kind != RareEventKind::kState) return;
  const auto from = static_cast<transport::QpState>(event.value >> 8);
  const auto to = static_cast<transport::QpState>(event.value & 0xff);
  const std::lock_guard lock(mutex_);
  if (to == transport::QpState::kReset) injector_.OnReset(event.qpn);
  if (to == transport::QpState::kRtr) {
    injector_.OnPathMtu(event.qpn, attributes.path_mtu);
  }
  // Requests that were posted until now were flushed, too.
  if (from == transport::QpState::kSqe && to == transport::QpState::kRts) {
    injector_.OnFlushed(event.qpn);
  }
  if (to == transport::QpState::kRtr && type != transport::QpType::kUd) {
    injector_.OnReceivePsn(event.qpn, attributes.rq_psn);
  } else if (from == transport::QpState::kRtr &&
             to == transport::QpState::kRts) {
    injector_.OnSendPsn(event.qpn, attributes.sq_psn);
  }
}

std::vector<FaultRuleStatus> ProcessFaults::Status() const {
  const std::lock_guard lock(mutex_);
  return StatusLocked();
}

std::vector<FaultRuleStatus> ProcessFaults::StatusAtExit(
    std::chrono::milliseconds patience) const {
  const auto lock = LockWithin(mutex_, patience);
  if (!lock.owns_lock()) return {};
  return StatusLocked();
}

std::vector<FaultRuleStatus> ProcessFaults::StatusLocked(size_t first) const {
  std::vector<FaultRuleStatus> status;
  for (size_t i = first; i < injector_.rules().size(); ++i) {
    const Rule& rule = injector_.rules()[i];
    const bool removed = injector_.counts()[i].removed;
    status.push_back({.number = rule.number,
                      .text = rule.text,
                      .matched = injector_.counts()[i].matched,
                      .fired = injector_.counts()[i].fired,
                      .maybe = rule.maybe || removed,
                      .removed = removed,
                      .target = transport::faults::TargetOf(rule)});
  }
  return status;
}

void ProcessFaults::WarnAtExit() const {
  std::vector<Effect> effects;
  std::vector<FaultRuleStatus> rules;
  {
    const auto lock = LockWithin(mutex_, kExitPatience);
    if (!lock.owns_lock()) return;
    effects = effects_;
    rules = StatusLocked();
  }
  for (const FaultRuleStatus& rule : rules) {
    const std::string name =
        "fault rule " + std::to_string(rule.number) + " (" + rule.text + ")";
    if (rule.fired == 0 && !rule.maybe) {
      Warn(name + " never fired: " +
           (rule.target == std::string_view("time")
                ? std::string("its time was not within the program's")
            : rule.matched == 0
                ? std::string("no ") + rule.target + " matched it"
                : std::to_string(rule.matched) + " " + rule.target +
                      "s matched it, but it was for others of these, or an "
                      "earlier rule hit them") +
           "; a rule that says 'maybe' may do that");
    }
    if (const uint64_t lost = effects[rule.number - 1].no_room; lost != 0) {
      Warn(name + " dropped " + std::to_string(lost) +
           " packets: there was no room to hold them");
    }
  }
}

}  // namespace rxe_user
