// Descriptors of attributes that programs have open: the kernel makes a value
// when it is read from its beginning, and so programs read one descriptor again
// and again.
#ifndef TOOLS_VIEW_PRELOAD_WATCHED_H_
#define TOOLS_VIEW_PRELOAD_WATCHED_H_

#include <sys/types.h>

namespace view {

extern bool any_watched;

// `fd` has just been opened below /sys. Others than regular files are let be,
// and so are those beyond some dozens.
void Watch(int fd);

// Before `fd` is read at `offset`; -1: where it stands. errno stays.
void FreshenWatched(int fd, off_t offset);

inline void BeforeRead(int fd, off_t offset) {
  if (__builtin_expect(any_watched, 0)) FreshenWatched(fd, offset);
}

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_WATCHED_H_
