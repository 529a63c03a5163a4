// Starts `rxe-user view` behind the back of a program.
#ifndef TOOLS_VIEW_PRELOAD_HELPER_H_
#define TOOLS_VIEW_PRELOAD_HELPER_H_

#include <sys/types.h>

#include "tools/view/preload/tree_client.h"

namespace view {

// What it is to do.
enum class Task {
  kIndex,             // find the devices and write the index of the tree
  kIndexAndCounters,  // and read the counters
  kCounters,          // read the counters of the devices that were found
  kLeave,             // the process uses the tree no longer
};

// Runs `helper` for process `pid` and waits until it has ended. What it prints,
// without the newline, is the answer; false if it printed nothing, as it does
// when it leaves. As tree_client.h, but that errno changes.
bool RunHelper(const char* helper, pid_t pid, Task task,
               char (&answer)[kRootSize]);

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_HELPER_H_
