// The fault rules of this process, which may change while it runs, and their
// counts over all lanes and devices.
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

// A rule and its counts.
struct FaultRuleStatus {
  uint32_t number = 0;
  std::string text;
  uint64_t matched = 0;  // packets, calls, completions, ...
  uint64_t fired = 0;
  bool maybe = false;             // also true of a removed rule
  bool removed = false;           // by a command
  const char* target = "packet";  // transport::faults::TargetOf
};

// A stall: the device receives and sends nothing until `until`.
struct FaultStall {
  transport::Time until = 0;
  const transport::faults::Rule* rule = nullptr;  // makes it last until then
};

// Whether the port is down on command.
struct FaultLink {
  bool is_down(transport::Time now) const {
    return rule != nullptr && now < until;
  }

  const transport::faults::Rule* rule = nullptr;  // null: the port is up
  transport::Time until = transport::kNever;
};

// Thread: any; a lane's lock may be held.
class ProcessFaults {
 public:
  // The faults of RXE_USER_FAULTS. The first call reads the variable; later
  // calls take no lock. Null without the variable, in a program that gained
  // privileges (secure_getenv(3)), and if the rules are wrong. The result never
  // changes in a process. A child of fork has another one, which counts from 0.
  static ProcessFaults* Find();
  // The same, but null before the first call of Find. Takes no lock.
  static ProcessFaults* Current();

  explicit ProcessFaults(FaultSettings settings, transport::Time start);

  // ns of CLOCK_MONOTONIC, the clock of lanes.
  static transport::Time Now();

  // --- What the rules are about. Takes no lock.
  bool concerns_received() const { return Has(transport::faults::kReceived); }
  bool concerns_transmitted() const {
    return Has(transport::faults::kTransmitted);
  }
  // Whether a rule refuses requests of a peer.
  bool refuses() const { return Has(transport::faults::kRefusals); }
  bool changes_completions() const {
    return Has(transport::faults::kCompletions);
  }
  // Whether a rule is for calls of the program.
  bool is_for_calls() const { return Has(transport::faults::kProgramCalls); }
  // Whether a rule takes memory away.
  bool unmaps() const { return Has(transport::faults::kTransfers); }
  // Whether the port is down on command. An outage counts until the first Tick
  // after its end.
  bool link_is_down() const { return Has(kLinkDown); }
  // The same, but an outage counts only until its end. Takes no lock if the
  // port is up.
  bool link_is_down(transport::Time now) const {
    return link_is_down() && link().is_down(now);
  }

  // --- Changes of the rules (docs/faults-on-command.md). Allocates memory.

  // Adds all rules in `text`, or none if one is wrong. Their times count from
  // `now`. `*added` gets the rules. Returns what is wrong.
  std::optional<std::string> Add(std::string_view text, transport::Time now,
                                 std::vector<FaultRuleStatus>* added);
  // Removes the rules with these numbers, or none if a number is wrong. Without
  // numbers, removes all rules. A stall or an outage ends unless another rule
  // that fired makes it last longer. `*removed` gets the rules. Returns what is
  // wrong.
  std::optional<std::string> Remove(const std::vector<uint32_t>& numbers,
                                    std::vector<FaultRuleStatus>* removed);

  transport::faults::Fate Decide(const transport::faults::PacketFacts& facts,
                                 transport::Time now);
  // The stall of all lanes. A stall rule that fires begins it, or prolongs it.
  FaultStall stall() const;
  // The state of the port by rules.
  FaultLink link() const;
  // As transport::EventSink::Refuse, of queue pair `qpn`.
  std::optional<uint8_t> Refuse(uint32_t qpn,
                                const transport::RequestToExecute& request);
  const transport::faults::Rule* DecideCompletion(
      const transport::faults::CompletionFacts& facts);
  // As Injector::DecideCall; the rule lives as long as this object. Carries out
  // the rule, unless it is kFail or kDelay, which the caller carries out. The
  // caller holds no lane's lock.
  transport::faults::NumberedFate DecideCall(std::string_view call,
                                             std::optional<uint64_t> wr_id);
  // As Injector::DecideMad. While the link is down, returns the rule that took
  // it down.
  transport::faults::NumberedFate DecideMad(
      const transport::faults::MadFacts& facts, transport::Time now);
  // A packet was dropped rather than held, since there was no room.
  void CountNoRoom(const transport::faults::Rule& rule);

  // As Injector::DecideTransfer. Also tells the queue pair of the rule. The
  // queue pair's lane is locked.
  const transport::faults::Rule* DecideTransfer(
      const transport::faults::TransferFacts& facts, transport::Time now);
  // Injector::IsValid.
  bool IsValid(const transport::faults::Rule& rule, transport::Time now) const;

  // --- Time. Rules for events and for the port may fire without a packet.

  // Does what is due at `now`: raises events, and takes the port down and up.
  // Returns the rules that fired. `*next` gets the time of the next call;
  // kNever: not before a context's TickAfter. The caller holds no lane's lock.
  std::vector<const transport::faults::Rule*> Tick(transport::Time now,
                                                   transport::Time* next);
  // A context was opened, or is being closed: after Remove it is not called any
  // more. Rules whose time ended while no context was open do not fire. The
  // caller holds no lane's lock.
  void Add(FaultedContext* context, transport::Time now);
  void Remove(FaultedContext* context) { targets_.Remove(context); }
  // The queue pairs and contexts that rules act on.
  FaultTargets& targets() { return targets_; }

  // --- Queue pairs.
  void OnCreated(uint32_t qpn, bool has_cqs = true, bool has_srq = false);
  // As Injector. `unknown` more requests were posted after these.
  void OnPosted(uint32_t qpn,
                std::span<const transport::faults::PostedRequest> requests,
                size_t unknown);
  void OnPostRefused(uint32_t qpn, size_t count);
  void OnSent(uint32_t qpn, std::span<const uint8_t> packet);
  void OnRareEvent(const transport::RareEvent& event, transport::QpType type,
                   const transport::QpAttributes& attributes);

  // The rules in their order, including removed ones.
  std::vector<FaultRuleStatus> Status() const;
  // The same at the end of the program. Empty if the lock is not free within
  // `patience`: a signal handler that has interrupted the holder may have ended
  // the program.
  std::vector<FaultRuleStatus> StatusAtExit(
      std::chrono::milliseconds patience) const;
  // Prints a line on stderr for each rule without `maybe` that has never fired,
  // and for each rule that lacked room.
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
  // In addition to the bits of Concern.
  static constexpr uint32_t kLinkDown = transport::faults::kNextConcern;
  bool Has(uint32_t bit) const {
    return (concerns_.load(std::memory_order_relaxed) & bit) != 0;
  }
  // What a rule has caused.
  struct Effect {
    uint64_t no_room = 0;  // packets that were dropped
    transport::Time stall_until = 0;
    transport::Time down_since = 0;
    transport::Time down_until = 0;  // 0: no outage
  };

  // --- With the lock.
  void UpdateConcerns();
  void SetLink(const transport::faults::Rule& rule, transport::Time now);
  void Stall(const transport::faults::Rule& rule, transport::Time until);
  // Set link_ and stall_ to the longest ones of effects_.
  void ChooseOutage();
  void ChooseStall();
  std::vector<FaultRuleStatus> StatusLocked(size_t first = 0) const;

  std::atomic<uint32_t> concerns_ = 0;  // changed under mutex_
  std::mutex tick_mutex_;               // taken before all others
  bool reported_down_ = false;          // to contexts; guarded by tick_mutex_
  FaultTargets targets_;                // its lock is taken before mutex_
  mutable std::mutex mutex_;  // no lock is taken under it; guards what follows
  transport::faults::Injector injector_;
  FaultStall stall_;
  FaultLink link_;
  bool went_down_ = false;       // since the last Tick
  std::vector<Effect> effects_;  // by rule
};

}  // namespace rxe_user

#endif  // RXE_USER_FAULTS_PROCESS_FAULTS_H_
