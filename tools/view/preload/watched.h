// Tracks open descriptors of attributes. The kernel computes a value when it is
// read from the start, so programs read one descriptor repeatedly.
#ifndef TOOLS_VIEW_PRELOAD_WATCHED_H_
#define TOOLS_VIEW_PRELOAD_WATCHED_H_

#include <sys/types.h>

namespace view {

extern bool any_watched;

// `fd` was opened below /sys. Ignores files that are not regular, and files
// beyond a few dozen.
void Watch(int fd);

// Call this before `fd` is read at `offset`; -1: its current position.
// Preserves errno.
void FreshenWatched(int fd, off_t offset);

inline void BeforeRead(int fd, off_t offset) {
  if (__builtin_expect(any_watched, 0)) FreshenWatched(fd, offset);
}

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_WATCHED_H_
