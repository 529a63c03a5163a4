// Paths relative to a folder of a view, and translation of the tree's paths to
// those that programs know.
#ifndef TOOLS_VIEW_PRELOAD_INSIDE_H_
#define TOOLS_VIEW_PRELOAD_INSIDE_H_

#include <fcntl.h>
#include <stddef.h>

namespace view {

// Whether this program may hold a descriptor of a folder in a view, and whether
// its working directory is in one.
extern bool looked;
extern bool works_inside;

// Whether `path`, which may be null, may be relative to a folder in a view.
inline bool MayBeInside(int fd, const char* path) {
  return path != nullptr && path[0] != '/' && path[0] != 0 &&
         (fd == AT_FDCWD ? works_inside : looked);
}

// The length of the tree's root at the start of `path`, which may be null. The
// rest is the path that the program knows.
size_t RootLength(const char* path);

// Writes the path that the program knows for `path` relative to folder `fd`.
// Returns false if it is not in a view or too long. Context: any. May change
// errno.
bool KnownPath(int fd, const char* path, char* known, size_t size);

// The working directory has changed. Keeps errno.
void NoteWorkingDirectory();

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_INSIDE_H_
