// Starts `rxe-user view` without the program noticing it.
#ifndef TOOLS_VIEW_PRELOAD_HELPER_H_
#define TOOLS_VIEW_PRELOAD_HELPER_H_

#include <sys/types.h>

#include "tools/view/preload/tree_client.h"

namespace view {

// The work of the helper.
enum class Task {
  kIndex,             // find the devices and write the index
  kIndexAndCounters,  // the same, and read the counters
  kCounters,          // read the counters of the devices found before
  kLeave,             // the process no longer uses the tree
};

// Runs `helper` for process `pid` and waits until it has ended. `answer` gets
// its output without the newline. Returns false if it printed nothing, as for
// kLeave, or cannot be run. Reports a missing /dev/null on stderr once.
// Context: as in tree_client.h, except that errno may change.
bool RunHelper(const char* helper, pid_t pid, Task task,
               char (&answer)[kRootSize]);

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_HELPER_H_
