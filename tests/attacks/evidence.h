// The state of a victim as seen from outside, for the report of a failed test:
// counters of its queue pair and device, and how long its threads have waited
// for a core.
#ifndef TESTS_ATTACKS_EVIDENCE_H_
#define TESTS_ATTACKS_EVIDENCE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tools/rxe_user_cli/stat_model.h"

namespace attacks {

struct ThreadTimes {
  pid_t id = 0;
  std::string name;
  char state = '?';  // state in proc(5), stat
  uint64_t ran_ns = 0;
  uint64_t waited_ns = 0;  // runnable without a free core
};

struct Evidence {
  int64_t at_ns = 0;  // CLOCK_MONOTONIC
  std::vector<rxe_user_cli::StatDevice> devices;
  std::string missing;  // the reason if there are no reports
  std::vector<ThreadTimes> threads;
};

// Collects the evidence of one process. Waits some seconds for its answer.
Evidence Collect(pid_t pid);

// The changes since `before`, as several lines of text.
std::string Explain(const Evidence& before, const Evidence& now);

}  // namespace attacks

#endif  // TESTS_ATTACKS_EVIDENCE_H_
