// How a function that takes a path is stood before.
#ifndef TOOLS_VIEW_PRELOAD_VIEWED_CALL_H_
#define TOOLS_VIEW_PRELOAD_VIEWED_CALL_H_

#include <errno.h>
#include <limits.h>
#include <string.h>

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

// `path` in the tree, or `path` itself if there is no tree.
inline const char* InTree(const char* path, Wanted wanted,
                          char (&buffer)[PATH_MAX]) {
  char root[kRootSize];
  if (!FindRoot(wanted, root)) return path;
  const size_t length = strlen(root);
  const size_t rest = strlen(path) + 1;
  if (length + rest > sizeof(buffer)) return path;
  memcpy(buffer, root, length);
  memcpy(buffer + length, path, rest);
  return buffer;
}

// Not inlined: others do not pay for its buffer, on stacks that may be small.
template <typename Call>
__attribute__((noinline)) auto CallInTree(const char* path, Wanted wanted,
                                          Call call) {
  char buffer[PATH_MAX];
  return call(InTree(path, wanted, buffer));
}

// `call(path)`, with the path in the tree in place of one that is viewed.
template <typename Call>
inline auto Viewed(const char* path, Wanted wanted, Call call) {
  if (__builtin_expect(!IsViewed(path), 1)) return call(path);
  return CallInTree(path, wanted, call);
}

// How many bytes at the front of `path`, which may be null, are the root of the
// tree, so that what follows is how the program knows it.
inline size_t RootLength(const char* path) {
  char root[kRootSize];
  if (path == nullptr || path[0] != '/' || !KnownRoot(root)) return 0;
  const size_t length = strlen(root);
  return strncmp(path, root, length) == 0 && path[length] == '/' ? length : 0;
}

inline char* WithoutRoot(char* path) {
  const size_t root = RootLength(path);
  if (root != 0) memmove(path, path + root, strlen(path + root) + 1);
  return path;
}

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_VIEWED_CALL_H_
