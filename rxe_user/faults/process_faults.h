// The faults of this process: its rules, and what they have hit, over all lanes
// and devices.
#ifndef RXE_USER_FAULTS_PROCESS_FAULTS_H_
#define RXE_USER_FAULTS_PROCESS_FAULTS_H_

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rxe_user/faults/fault_settings.h"
#include "transport/base/rare_event.h"
#include "transport/base/types.h"
#include "transport/faults/injector.h"
#include "transport/qp/attributes.h"

namespace rxe_user {

// What is known of a rule.
struct FaultRuleStatus {
  uint32_t number = 0;
  std::string text;
  uint64_t matched = 0;  // packets, calls or completions
  uint64_t fired = 0;
  bool maybe = false;
  const char* target = "packet";  // transport::faults::TargetOf
};

// The device receives and sends nothing until then.
struct FaultStall {
  transport::Time until = 0;
  const transport::faults::Rule* rule = nullptr;  // the last that began it
};

// Thread: any; a lane's lock may be held.
class ProcessFaults {
 public:
  // The faults of RXE_USER_FAULTS, started by the first call, without a lock
  // later on. Null without the
  // variable, in a secure program, and if the rules are wrong. Stays the same;
  // a child of fork counts anew.
  static ProcessFaults* Find();
  // The same, if Find has been called; else null. Takes no lock.
  static ProcessFaults* Current();

  explicit ProcessFaults(FaultSettings settings, transport::Time start);

  bool concerns_received() const { return injector_.concerns_received(); }
  bool concerns_transmitted() const { return injector_.concerns_transmitted(); }
  // Whether a rule refuses requests.
  bool refuses() const { return injector_.refuses(); }
  // Whether a rule holds packets back.
  bool holds_packets() const { return holds_packets_; }

  transport::faults::Fate Decide(const transport::faults::PacketFacts& facts,
                                 transport::Time now);
  // Of all lanes. A stall rule that fires begins it, or makes it longer.
  FaultStall stall() const;
  // As transport::EventSink::Refuse, of queue pair `qpn`.
  std::optional<uint8_t> Refuse(uint32_t qpn, uint32_t psn,
                                uint8_t min_rnr_timer);
  bool changes_completions() const { return injector_.changes_completions(); }
  const transport::faults::Rule* DecideCompletion(
      const transport::faults::CompletionFacts& facts);
  // Whether rules let calls fail. Does not change.
  bool fails_calls() const { return injector_.fails_calls(); }
  // The rule by which a call of the program is to fail; null: none. Lives as
  // long as this.
  const transport::faults::Rule* DecideCall(std::string_view call);
  // A packet for which there was no room was dropped in place of being held.
  void CountNoRoom(const transport::faults::Rule& rule);

  // --- Queue pairs.
  void OnCreated(uint32_t qpn);
  void OnRareEvent(const transport::RareEvent& event, transport::QpType type,
                   const transport::QpAttributes& attributes);

  std::vector<FaultRuleStatus> Status() const;
  // A line on stderr for each rule that has never fired and does not say
  // `maybe`, and for each that lacked room.
  void WarnAtExit() const;

  // --- fork.
  void LockForFork() { mutex_.lock(); }
  void UnlockAfterFork() { mutex_.unlock(); }

 private:
  bool holds_packets_ = false;
  mutable std::mutex mutex_;  // no lock is taken under it; guards what follows
  transport::faults::Injector injector_;
  FaultStall stall_;
  std::vector<uint64_t> no_room_;  // packets, by rule
};

}  // namespace rxe_user

#endif  // RXE_USER_FAULTS_PROCESS_FAULTS_H_
