// Creates the files of a view that a program is about to access, from the index
// of `rxe-user view`. Of a thousand devices, only the accessed one gets files.
//
// Context: any, including a signal handler, a cancelled thread, and a child of
// vfork. May change errno. Blocks signals while it writes files.
#ifndef TOOLS_VIEW_PRELOAD_FILL_H_
#define TOOLS_VIEW_PRELOAD_FILL_H_

namespace view {

// The kind of access.
enum class Look {
  kName,     // the path itself: stat(2), realpath(3)
  kOpen,     // its content: current values of a file, names in a folder
  kPattern,  // the matches of a pattern: glob(3)
  kBelow,    // the whole subtree, without following links
  kAll,      // everything that links may lead to
};

// Creates `path`, which the program knows as "/sys/class/...", in the tree
// `root` as the index describes it, including the targets of its links. On
// failure the tree keeps its old state. Holds the lock of the root (tree.h).
void Fill(const char* root, const char* path, Look look);

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_FILL_H_
