// Where the tree is that stands for /sys and /dev: `rxe-user view`, which this
// library starts, tells what is there, and files are made when they are looked
// at (fill.h).
//
// Any context: a signal handler, a thread that is cancelled, a child of vfork.
// errno stays as it is. The program sees nothing of the process that is
// started: no SIGCHLD, nothing for its waitpid, no descriptor.
#ifndef TOOLS_VIEW_PRELOAD_TREE_CLIENT_H_
#define TOOLS_VIEW_PRELOAD_TREE_CLIENT_H_

#include <limits.h>
#include <stddef.h>

#include "tools/view/preload/fill.h"

namespace view {

inline constexpr size_t kRootSize = 256;

// The path in the tree, ready to be looked at, of what is viewed at `path` from
// folder `fd`; `path` itself if that is not viewed or there is no tree (the
// helper failed). A counter that is opened is as of now. The first look of a
// process finds everything else as of now, later ones as it was at most 0.2 s
// ago, or twice the time that it takes to find out.
const char* InTree(int fd, const char* path, Look look,
                   char (&buffer)[PATH_MAX]);

// This process uses the tree no longer; who is the last removes it. Nothing in
// a child that was forked and has not looked itself.
void Leave();

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_TREE_CLIENT_H_
