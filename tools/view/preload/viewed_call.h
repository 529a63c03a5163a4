// How a function that takes a path is stood before.
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

// Defines libc's function `name` by a function of ours with types of our own:
// the headers of libc do not see it. What follows is its body.
#define VIEW_DEFINE(type, name, parameters)         \
  extern "C" __attribute__((visibility("default"))) \
  type view_##name parameters __asm__(#name);       \
  extern "C" type view_##name parameters

// libc's own function: REAL(int, stat, const char*, void*)(path, buffer).
#define REAL(type, name, ...) \
  (reinterpret_cast<type (*)(__VA_ARGS__)>(::view::Real(::view::kReal_##name)))

namespace view {

// Not inlined: others do not pay for its buffer, on stacks that may be small.
template <typename Call>
__attribute__((noinline)) auto CallInTree(int fd, const char* path, Look look,
                                          Call call) {
  char buffer[PATH_MAX];
  return call(InTree(fd, path, look, buffer));
}

// `call(path)`, with the path in the tree in place of one that is viewed. `fd`:
// the folder that a relative path begins at.
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
