// Paths relative to a folder of a view, and translation of paths in the tree to
// the ones that programs know.
#ifndef TOOLS_VIEW_PRELOAD_INSIDE_H_
#define TOOLS_VIEW_PRELOAD_INSIDE_H_

#include <fcntl.h>
#include <stddef.h>

namespace view {

// Whether this program may hold a descriptor of a folder in a view, and whether
// its working directory is in a view.
extern bool looked;
extern bool works_inside;

// Whether `path`, which may be null, may be relative to a folder in a view.
inline bool MayBeInside(int fd, const char* path) {
  return path != nullptr && path[0] != '/' && path[0] != 0 &&
         (fd == AT_FDCWD ? works_inside : looked);
}

// The length of the tree's root at the start of `path`, which may be null. What
// follows is the path that the program knows.
size_t RootLength(const char* path);

// Writes the path that the program knows for `path` relative to folder `fd`.
// Returns false if the path is not in a view or too long. Context: any. May
// change errno.
bool KnownPath(int fd, const char* path, char* known, size_t size);

// Call this when the working directory has changed. Preserves errno.
void NoteWorkingDirectory();

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_INSIDE_H_
