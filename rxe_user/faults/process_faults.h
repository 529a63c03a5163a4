// The faults of this process: its rules, which may change while it runs, and
// what they have hit, over all lanes and devices.
#ifndef RXE_USER_FAULTS_PROCESS_FAULTS_H_
#define RXE_USER_FAULTS_PROCESS_FAULTS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rxe_user/faults/fault_settings.h"
#include "rxe_user/faults/fault_targets.h"
#include "transport/base/rare_event.h"
#include "transport/base/types.h"
#include "transport/base/work.h"
#include "transport/faults/injector.h"
#include "transport/qp/attributes.h"

namespace rxe_user {

// What is known of a rule.
struct FaultRuleStatus {
  uint32_t number = 0;
  std::string text;
  uint64_t matched = 0;  // packets, calls, completions, ...
  uint64_t fired = 0;
  bool maybe = false;             // also of a rule that was removed
  bool removed = false;           // while the program ran
  const char* target = "packet";  // transport::faults::TargetOf
};

// The device receives and sends nothing until then.
struct FaultStall {
  transport::Time until = 0;
  const transport::faults::Rule* rule = nullptr;  // by which it ends then
};

// The port is down on command.
struct FaultLink {
  bool is_down(transport::Time now) const {
    return rule != nullptr && now < until;
  }

  const transport::faults::Rule* rule = nullptr;  // null: it is not
  transport::Time since = 0;
  transport::Time until = transport::kNever;
};

// Thread: any; a lane's lock may be held.
class ProcessFaults {
 public:
  // The faults of RXE_USER_FAULTS, started by the first call, without a lock
  // later on. Null without the variable, in a secure program, and if the rules
  // are wrong. Stays the same; a child of fork counts anew.
  static ProcessFaults* Find();
  // The same, if Find has been called; else null. Takes no lock.
  static ProcessFaults* Current();

  explicit ProcessFaults(FaultSettings settings, transport::Time start);

  // ns of CLOCK_MONOTONIC, as lanes have it.
  static transport::Time Now();

  // --- What the rules concern. Takes no lock.
  bool concerns_received() const { return Has(transport::faults::kReceived); }
  bool concerns_transmitted() const {
    return Has(transport::faults::kTransmitted);
  }
  // Whether a rule refuses requests.
  bool refuses() const { return Has(transport::faults::kRefusals); }
  bool changes_completions() const {
    return Has(transport::faults::kCompletions);
  }
  // Whether rules are for calls.
  bool is_for_calls() const { return Has(transport::faults::kProgramCalls); }
  // Whether rules take memory away.
  bool unmaps() const { return Has(transport::faults::kTransfers); }
  // Whether the port is down on command. An outage whose time is over counts
  // until the next Tick.
  bool link_is_down() const { return Has(kLinkDown); }

  // --- Rules that come and go (docs/faults-on-command.md). Takes memory.

  // Adds the rules in `text`, or none; their times count from `now`. Returns
  // what is wrong with them; `*added`: the rules.
  std::optional<std::string> Add(std::string_view text, transport::Time now,
                                 std::vector<FaultRuleStatus>* added);
  // Removes the rules with these numbers, or none; without numbers, all that
  // there are. A stall that lasts by one of them ends. Returns what is wrong;
  // `*removed`: the rules.
  std::optional<std::string> Remove(const std::vector<uint32_t>& numbers,
                                    std::vector<FaultRuleStatus>* removed);

  transport::faults::Fate Decide(const transport::faults::PacketFacts& facts,
                                 transport::Time now);
  // Of all lanes. A stall rule that fires begins it, or makes it longer.
  FaultStall stall() const;
  // By which the port is down.
  FaultLink link() const;
  // As transport::EventSink::Refuse, of queue pair `qpn`.
  std::optional<uint8_t> Refuse(uint32_t qpn,
                                const transport::RequestToExecute& request);
  const transport::faults::Rule* DecideCompletion(
      const transport::faults::CompletionFacts& facts);
  // As Injector::DecideCall; the rule lives as long as this. Does what it says,
  // but for kFail and kDelay, which are the caller's. No lane's lock held.
  transport::faults::NumberedFate DecideCall(std::string_view call,
                                             std::optional<uint64_t> wr_id);
  // As Injector::DecideMad. While the link is down by a rule, that is the rule.
  transport::faults::NumberedFate DecideMad(
      const transport::faults::MadFacts& facts, transport::Time now);
  // A packet for which there was no room was dropped in place of being held.
  void CountNoRoom(const transport::faults::Rule& rule);

  // As Injector::DecideTransfer; tells the queue pair of the rule, whose lane
  // is locked.
  const transport::faults::Rule* DecideTransfer(
      const transport::faults::TransferFacts& facts, transport::Time now);
  // Injector::IsValid.
  bool IsValid(const transport::faults::Rule& rule, transport::Time now) const;

  // --- Time. Rules for events and for the port may fire without a packet.

  // Does what is due at `now`: raises events, and lets the port go down and up.
  // Returns the rules that fired; `*next`: when to call it again, kNever: when
  // a context is told. No lane's lock held.
  std::vector<const transport::faults::Rule*> Tick(transport::Time now,
                                                   transport::Time* next);
  // A context was opened, or is closed: then it is not called any more. Rules
  // whose time is over before the first one is open do not fire, and again so
  // after all were closed. No lane's lock held.
  void Add(FaultedContext* context, transport::Time now);
  void Remove(FaultedContext* context) { targets_.Remove(context); }
  // The queue pairs that rules reach.
  FaultTargets& targets() { return targets_; }

  // --- Queue pairs.
  void OnCreated(uint32_t qpn, bool has_cqs = true, bool has_srq = false);
  // As Injector.
  void OnPosted(uint32_t qpn,
                std::span<const transport::faults::PostedRequest> requests);
  void OnPostRefused(uint32_t qpn, size_t count);
  void OnSent(uint32_t qpn, std::span<const uint8_t> packet);
  void OnRareEvent(const transport::RareEvent& event, transport::QpType type,
                   const transport::QpAttributes& attributes);

  // In the order of the rules, with those that were removed.
  std::vector<FaultRuleStatus> Status() const;
  // The same at the end of the program; empty if the lock is not free within
  // `patience`: the end may have begun in a signal handler that interrupted its
  // holder.
  std::vector<FaultRuleStatus> StatusAtExit(
      std::chrono::milliseconds patience) const;
  // A line on stderr for each rule that has never fired and does not say
  // `maybe`, and for each that lacked room.
  void WarnAtExit() const;

  // --- fork.
  // Does not wait for the lock of targets(): its holder may wait for the
  // control threads, which fork has stopped.
  void LockForFork() { mutex_.lock(); }
  void UnlockAfterFork() { mutex_.unlock(); }
  // In the child, in place of UnlockAfterFork. The queue pairs and contexts of
  // the parent are not called any more.
  void RenewInChild() {
    new (&targets_) FaultTargets;
    mutex_.unlock();
  }

 private:
  // Beside the bits of Concern.
  static constexpr uint32_t kLinkDown = transport::faults::kNextConcern;
  bool Has(uint32_t bit) const {
    return (concerns_.load(std::memory_order_relaxed) & bit) != 0;
  }
  // --- With the lock.
  void Survey();
  void SetLink(const transport::faults::Rule& rule, transport::Time now);
  void Stall(const transport::faults::Rule& rule, transport::Time until);
  std::vector<FaultRuleStatus> StatusLocked(size_t first = 0) const;

  std::atomic<uint32_t> concerns_ = 0;  // changed under mutex_
  mutable std::mutex mutex_;  // no lock is taken under it; guards what follows
  transport::faults::Injector injector_;
  FaultStall stall_;
  FaultLink link_;
  bool went_down_ = false;         // since the last Tick
  std::vector<uint64_t> no_room_;  // packets, by rule
  std::mutex tick_mutex_;          // taken before all others
  bool told_down_ = false;         // to contexts; guarded by tick_mutex_
  FaultTargets targets_;           // its lock is taken before mutex_; the
                                   // child's are new
};

}  // namespace rxe_user

#endif  // RXE_USER_FAULTS_PROCESS_FAULTS_H_
