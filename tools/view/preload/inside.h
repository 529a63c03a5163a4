// Paths that are relative to a folder of a view, and names of the tree's own
// files as programs know them.
#ifndef TOOLS_VIEW_PRELOAD_INSIDE_H_
#define TOOLS_VIEW_PRELOAD_INSIDE_H_

#include <fcntl.h>
#include <stddef.h>

namespace view {

// Whether this program may have a descriptor of a folder in a view, and whether
// its working directory is one.
extern bool looked;
extern bool works_inside;

// Whether `path`, which may be null, may lead from a folder in a view.
inline bool MayBeInside(int fd, const char* path) {
  return path != nullptr && path[0] != '/' && path[0] != 0 &&
         (fd == AT_FDCWD ? works_inside : looked);
}

// How many bytes at the front of `path`, which may be null, are the root of a
// tree, so that what follows is how the program knows it.
size_t RootLength(const char* path);

// Writes what the program knows as the path that is `path` from folder `fd`;
// false if that is not viewed, or too long. Any context; errno may change.
bool KnownPath(int fd, const char* path, char* known, size_t size);

// The working directory has changed. errno stays.
void NoteWorkingDirectory();

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_INSIDE_H_
