// Starts `rxe-user view` behind the back of a program.
#ifndef TOOLS_VIEW_PRELOAD_HELPER_H_
#define TOOLS_VIEW_PRELOAD_HELPER_H_

#include <sys/types.h>

#include "tools/view/preload/tree_client.h"

namespace view {

// Runs `helper` for process `pid` and waits until it has ended. What it prints,
// without the newline, is the answer; false if it printed nothing. With `leave`
// there is no answer. As tree_client.h, but that errno changes.
bool RunHelper(const char* helper, pid_t pid, bool leave,
               char (&answer)[kRootSize]);

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_HELPER_H_
