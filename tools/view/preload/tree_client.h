// Finds the tree that replaces /sys and /dev. Starts `rxe-user view`, which
// writes the index, and creates files when the program accesses them (fill.h).
//
// Context: any, including a signal handler, a cancelled thread, and a child of
// vfork. Preserves errno. The program does not notice the helper process: no
// SIGCHLD, no child for waitpid, no descriptor.
#ifndef TOOLS_VIEW_PRELOAD_TREE_CLIENT_H_
#define TOOLS_VIEW_PRELOAD_TREE_CLIENT_H_

#include <limits.h>
#include <stddef.h>

#include "tools/view/preload/fill.h"

namespace view {

inline constexpr size_t kRootSize = 256;

// Returns the path in the tree for `path` relative to folder `fd`, ready to be
// accessed. Returns `path` itself if it is not in the view or there is no tree
// (the helper failed). A counter that is opened has its current value. The
// first access of a process finds current state. Later ones find state that is
// at most 0.2 s old, or twice the time that it takes to find it.
const char* InTree(int fd, const char* path, Look look,
                   char (&buffer)[PATH_MAX]);

// This process no longer uses the tree. The last process removes it. Does
// nothing in a forked child that has not used the view itself.
void Leave();

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_TREE_CLIENT_H_
