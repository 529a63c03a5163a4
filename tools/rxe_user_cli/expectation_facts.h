// Counts what the processes of a run did, and judges expectations by it.
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
  // Unless the verdict is kTrue: the values on which it depends ("repeated is
  // 3"), and why one is unknown. One line.
  std::string seen;
  // If something happened too often, the first time; or the slowest completion:
  // queue pair, PSN, wr_id, time and process. Empty if that is unknown.
  std::string first;
};

class Facts {
 public:
  // `runs`: the process may still be counting.
  void Add(const rxe_user::TallyPage& page, bool runs);
  // The counts of a process are unknown. `why` is one line.
  void AddUnreadable(const std::string& why) { unreadable_ = why; }

  Judgement Judge(const Expectation& expectation) const;
  // Whether fault rule `number` has fired.
  Judgement JudgeRule(uint32_t number) const;

 private:
  struct Process {
    rxe_user::TallyPage page;
    bool runs = false;
  };
  // The bounds of a value; `why` says why they differ.
  struct Range {
    uint64_t least = 0;
    uint64_t most = 0;
    std::string why;
  };
  struct Item {
    rxe_user::TallyItem item;
    const Process* process = nullptr;
    std::string what;  // text that precedes it; may be empty
  };
  struct Slowest {
    int64_t ns = 0;
    uint64_t completions = 0;
    uint64_t untimed = 0;
    std::optional<Item> item;
  };

  // Why nothing is known, and why values may be higher. Empty if that is not
  // so.
  std::string WhyUnknown() const;
  std::string WhyMayRise() const;
  Range Of(const Quantity& quantity) const;
  Range OfProcess(const Process& process, const Quantity& quantity) const;
  std::optional<Item> FirstOf(const Quantity& quantity) const;
  Slowest SlowestOf(WorkQueues queues) const;
  static std::string TextOf(const Item& item);

  Verdict JudgePart(const Condition& part) const;
  Verdict JudgeComparison(const Condition& part) const;
  // Whether the relation holds for all values within the bounds.
  static bool Always(const Range& left, Relation relation, const Range& right);
  Verdict JudgeEvery(const Condition& part) const;
  // Adds what made `part` false or unknown; if `negated`, true or unknown.
  void Explain(const Condition& part, bool negated, Judgement* out) const;
  void ExplainComparison(const Condition& part, bool negated,
                         Judgement* out) const;
  void ExplainEvery(const Condition& part, Judgement* out) const;

  std::vector<Process> processes_;
  std::string unreadable_;
};

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_EXPECTATION_FACTS_H_
