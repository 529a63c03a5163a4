// Where the tree is that stands for /sys and /dev, made and kept fresh by
// `rxe-user view`, which this library starts.
//
// Any context: a signal handler, a thread that is cancelled, a child of vfork.
// errno stays as it is. The program sees nothing of the process that is
// started: no SIGCHLD, nothing for its waitpid, no descriptor.
#ifndef TOOLS_VIEW_PRELOAD_TREE_CLIENT_H_
#define TOOLS_VIEW_PRELOAD_TREE_CLIENT_H_

#include <stddef.h>

namespace view {

inline constexpr size_t kRootSize = 256;

enum class Wanted {
  kValues,  // as of now: something is opened
  kNames,   // what is there: values may be 0.2 s old
};

// Writes the tree's root, which ends with a zero, into `root`; false if there
// is none (the helper failed).
bool FindRoot(Wanted wanted, char (&root)[kRootSize]);

// The root that was found last by this program; false if none was. Cheap.
bool KnownRoot(char (&root)[kRootSize]);

// This process uses the tree no longer; who is the last removes it. Nothing in
// a child that was forked and has not looked itself.
void Leave();

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_TREE_CLIENT_H_
