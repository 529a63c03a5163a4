// What there is to see of a victim from outside, for the report of a test that
// has failed: what its queue pair and its device have counted, and how long its
// threads have waited for a core of the machine.
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
  char state = '?';  // proc(5), stat
  uint64_t ran_ns = 0;
  uint64_t waited_ns = 0;  // runnable, and no core was free
};

struct Evidence {
  int64_t at_ns = 0;  // CLOCK_MONOTONIC
  std::vector<rxe_user_cli::StatDevice> devices;
  std::string missing;  // why there are none
  std::vector<ThreadTimes> threads;
};

// Of one process. Waits for its answer for some seconds.
Evidence Collect(pid_t pid);

// What has changed since `before`, for people to read; several lines.
std::string Explain(const Evidence& before, const Evidence& now);

}  // namespace attacks

#endif  // TESTS_ATTACKS_EVIDENCE_H_
