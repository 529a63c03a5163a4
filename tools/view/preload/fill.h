// Makes the files of a view that a program is about to look at, from the index
// that `rxe-user view` has written: of a thousand devices, those of one.
//
// Any context: a signal handler, a thread that is cancelled, a child of vfork.
// errno may change. Signals wait while files are written.
#ifndef TOOLS_VIEW_PRELOAD_FILL_H_
#define TOOLS_VIEW_PRELOAD_FILL_H_

namespace view {

// How a program looks.
enum class Look {
  kName,     // at what a path names: stat(2), realpath(3)
  kOpen,     // into it: a file's values as of now, a folder's names
  kPattern,  // at what a pattern matches: glob(3)
  kBelow,    // at everything below, without following links
  kAll,      // at everything that links may lead to
};

// `path`, as the program knows it ("/sys/class/..."), is then in the tree
// `root` as the index has it, with what its links lead to, or as it was before
// if that cannot be done. Holds the root's lock meanwhile (tree.h).
void Fill(const char* root, const char* path, Look look);

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_FILL_H_
