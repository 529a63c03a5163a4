// How this library replaces a function that takes a path.
#ifndef TOOLS_VIEW_PRELOAD_VIEWED_CALL_H_
#define TOOLS_VIEW_PRELOAD_VIEWED_CALL_H_

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "tools/view/preload/inside.h"
#include "tools/view/preload/path.h"
#include "tools/view/preload/real.h"
#include "tools/view/preload/tree_client.h"

// Defines libc's function `name` with types of our own, so that it cannot
// conflict with libc's headers. The body follows.
#define VIEW_DEFINE(type, name, parameters)         \
  extern "C" __attribute__((visibility("default"))) \
  type view_##name parameters __asm__(#name);       \
  extern "C" type view_##name parameters

// Calls libc's own function: REAL(int, stat, const char*, void*)(path, buffer).
#define REAL(type, name, ...) \
  (reinterpret_cast<type (*)(__VA_ARGS__)>(::view::Real(::view::kReal_##name)))

namespace view {

// Not inlined, so that other calls do not pay for its buffer on stacks that may
// be small.
template <typename Call>
__attribute__((noinline)) auto CallInTree(int fd, const char* path, Look look,
                                          Call call) {
  char buffer[PATH_MAX];
  return call(InTree(fd, path, look, buffer));
}

// Calls `call(path)`, with the path in the tree if `path` is in the view. `fd`:
// the folder to which a relative path is relative.
template <typename Call>
inline auto Viewed(int fd, const char* path, Look look, Call call) {
  if (__builtin_expect(!IsViewed(path) && !MayBeInside(fd, path), 1)) {
    return call(path);
  }
  return CallInTree(fd, path, look, call);
}

template <typename Call>
inline auto Viewed(const char* path, Look look, Call call) {
  return Viewed(AT_FDCWD, path, look, call);
}

inline char* WithoutRoot(char* path) {
  const size_t root = RootLength(path);
  if (root != 0) memmove(path, path + root, strlen(path + root) + 1);
  return path;
}

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_VIEWED_CALL_H_
