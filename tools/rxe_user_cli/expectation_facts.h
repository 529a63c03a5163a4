// What the processes of a run did, and whether it is as expected.
#ifndef TOOLS_RXE_USER_CLI_EXPECTATION_FACTS_H_
#define TOOLS_RXE_USER_CLI_EXPECTATION_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rxe_user/observe/tally_page.h"
#include "tools/rxe_user_cli/expectation.h"

namespace rxe_user_cli {

enum class Verdict : uint8_t { kFalse, kNotKnown, kTrue };

struct Judgement {
  Verdict verdict = Verdict::kNotKnown;
  // Unless it is true: the values on which it depends ("repeated is 3"), and
  // why one is not known. One line.
  std::string seen;
  // The first thing of those that are too many, or the slowest completion: its
  // queue pair, PSN, wr_id, time and process. Empty if it is not known.
  std::string first;
};

class Facts {
 public:
  // `runs`: the process may go on counting.
  void Add(const rxe_user::TallyPage& page, bool runs);
  // What a process did is not known at all: one line.
  void AddUnreadable(const std::string& why) { unreadable_ = why; }

  Judgement Judge(const Expectation& expectation) const;
  // Whether the rule for faults, by its number, has hit a packet.
  Judgement JudgeRule(uint32_t number) const;

 private:
  struct Process {
    rxe_user::TallyPage page;
    bool runs = false;
  };
  // A value is within these; `why` says why they differ.
  struct Range {
    uint64_t least = 0;
    uint64_t most = 0;
    std::string why;
  };
  struct Item {
    rxe_user::TallyItem item;
    const Process* process = nullptr;
    std::string what;  // in front of it; may be empty
  };
  struct Slowest {
    int64_t ns = 0;
    uint64_t completions = 0;
    uint64_t untimed = 0;
    std::optional<Item> item;
  };

  // Why nothing is known, or values may be higher; empty if neither is so.
  std::string Nothing() const;
  std::string Running() const;
  Range Of(const Quantity& quantity) const;
  Range OfProcess(const Process& process, const Quantity& quantity) const;
  std::optional<Item> FirstOf(const Quantity& quantity) const;
  Slowest SlowestOf(WorkQueues queues) const;
  static std::string TextOf(const Item& item);

  Verdict JudgePart(const Condition& part) const;
  Verdict JudgeComparison(const Condition& part) const;
  Verdict JudgeEvery(const Condition& part) const;
  // Adds what made `part` false, or not known; true, if `negated`.
  void Explain(const Condition& part, bool negated, Judgement* out) const;
  void ExplainComparison(const Condition& part, bool negated,
                         Judgement* out) const;
  void ExplainEvery(const Condition& part, Judgement* out) const;

  std::vector<Process> processes_;
  std::string unreadable_;
};

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_EXPECTATION_FACTS_H_
