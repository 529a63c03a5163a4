#include "tools/view/preload/inside.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/view/preload/path.h"

namespace view {

bool looked = false;
bool works_inside = false;

namespace {

// Each tree's name starts with this (tree.cc).
constexpr char kTrees[] = "/rxe_user-view-";

// Writes the folder's path in the file system, with a terminating zero. Returns
// its length, or 0.
size_t NameOf(int fd, char* name, size_t size) {
  if (fd == AT_FDCWD) {
    const long got = syscall(SYS_getcwd, name, size);  // includes the zero
    return got > 1 && name[0] == '/' ? static_cast<size_t>(got) - 1 : 0;
  }
  if (fd < 0) return 0;
  char link[32] = "/proc/self/fd/";
  char digits[12];
  char* digit = digits + sizeof(digits);
  *--digit = 0;
  for (int rest = fd; rest > 0 || *digit == 0; rest /= 10) {
    *--digit = static_cast<char>('0' + rest % 10);
  }
  strcat(link, digit);
  const long got = syscall(SYS_readlinkat, AT_FDCWD, link, name, size - 1);
  if (got <= 0) return 0;
  name[got] = 0;
  return static_cast<size_t>(got);
}

// A program may be started with a working directory in a view.
__attribute__((constructor)) void FindWorkingDirectory() {
  NoteWorkingDirectory();
  looked = works_inside;
}

}  // namespace

size_t RootLength(const char* path) {
  const char* const tree =
      path != nullptr && path[0] == '/' ? strstr(path, kTrees) : nullptr;
  if (tree == nullptr) return 0;
  const char* const end = strchr(tree + 1, '/');
  return end != nullptr ? static_cast<size_t>(end - path) : 0;
}

bool KnownPath(int fd, const char* path, char* known, size_t size) {
  const size_t whole = NameOf(fd, known, size);
  const size_t root = RootLength(known);
  if (whole == 0 || root == 0) return false;
  const size_t length = whole - root;
  const size_t rest = strlen(path) + 1;
  if (length + 1 + rest > size) return false;
  memmove(known, known + root, length);
  known[length] = '/';
  memcpy(known + length + 1, path, rest);
  return IsViewed(known);
}

void NoteWorkingDirectory() {
  const int saved_errno = errno;
  char name[PATH_MAX];
  works_inside =
      NameOf(AT_FDCWD, name, sizeof(name)) != 0 && RootLength(name) != 0;
  errno = saved_errno;
}

}  // namespace view
