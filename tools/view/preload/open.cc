// open(2), openat(2), fopen(3), freopen(3), opendir(3), scandir(3), chdir(2),
// fchdir(2).
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>

#include "tools/view/preload/viewed_call.h"
#include "tools/view/preload/watched.h"

namespace view {
namespace {

// Whether the open must fail: files in sysfs cannot be created, and ours cannot
// be written to, not even by root.
bool Refused(const char* path, bool write) {
  if (!write || !IsViewed(path) || !IsInSys(path)) return false;
  errno = EACCES;
  return true;
}

bool Writes(int flags) {
  return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0;
}

bool Writes(const char* mode) {
  return mode != nullptr && (mode[0] != 'r' || strchr(mode, '+') != nullptr);
}

bool TakesMode(int flags) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

// Processes the result of opening `path` relative to `folder`.
int Opened(int folder, const char* path, int fd) {
  if (__builtin_expect(IsViewed(path) || MayBeInside(folder, path), 0) &&
      fd >= 0) {
    Watch(fd);
  }
  return fd;
}

}  // namespace
}  // namespace view

using view::Look;
using view::Viewed;

#define VIEW_OPEN(name)                                                  \
  VIEW_DEFINE(int, name, (const char* path, int flags, ...)) {           \
    unsigned mode = 0;                                                   \
    if (view::TakesMode(flags)) {                                        \
      va_list arguments;                                                 \
      va_start(arguments, flags);                                        \
      mode = va_arg(arguments, unsigned);                                \
      va_end(arguments);                                                 \
    }                                                                    \
    if (view::Refused(path, view::Writes(flags))) return -1;             \
    return view::Opened(                                                 \
        AT_FDCWD, path, Viewed(path, Look::kOpen, [=](const char* p) {   \
          return REAL(int, name, const char*, int, ...)(p, flags, mode); \
        }));                                                             \
  }
VIEW_OPEN(open)
VIEW_OPEN(open64)

#define VIEW_OPENAT(name)                                                     \
  VIEW_DEFINE(int, name, (int fd, const char* path, int flags, ...)) {        \
    unsigned mode = 0;                                                        \
    if (view::TakesMode(flags)) {                                             \
      va_list arguments;                                                      \
      va_start(arguments, flags);                                             \
      mode = va_arg(arguments, unsigned);                                     \
      va_end(arguments);                                                      \
    }                                                                         \
    if (view::Refused(path, view::Writes(flags))) return -1;                  \
    return view::Opened(fd, path,                                             \
                        Viewed(fd, path, Look::kOpen, [=](const char* p) {    \
                          return REAL(int, name, int, const char*, int, ...)( \
                              fd, p, flags, mode);                            \
                        }));                                                  \
  }
VIEW_OPENAT(openat)
VIEW_OPENAT(openat64)

// Called by programs that were built with _FORTIFY_SOURCE.
#define VIEW_OPEN_2(name)                                                     \
  VIEW_DEFINE(int, name, (const char* path, int flags)) {                     \
    if (view::Refused(path, view::Writes(flags))) return -1;                  \
    return view::Opened(AT_FDCWD, path,                                       \
                        Viewed(path, Look::kOpen, [=](const char* p) {        \
                          return REAL(int, name, const char*, int)(p, flags); \
                        }));                                                  \
  }
VIEW_OPEN_2(__open_2)
VIEW_OPEN_2(__open64_2)

#define VIEW_OPENAT_2(name)                                            \
  VIEW_DEFINE(int, name, (int fd, const char* path, int flags)) {      \
    if (view::Refused(path, view::Writes(flags))) return -1;           \
    return view::Opened(                                               \
        fd, path, Viewed(fd, path, Look::kOpen, [=](const char* p) {   \
          return REAL(int, name, int, const char*, int)(fd, p, flags); \
        }));                                                           \
  }
VIEW_OPENAT_2(__openat_2)
VIEW_OPENAT_2(__openat64_2)

#define VIEW_FOPEN(name)                                           \
  VIEW_DEFINE(void*, name, (const char* path, const char* mode)) { \
    if (view::Refused(path, view::Writes(mode))) return nullptr;   \
    return Viewed(path, Look::kOpen, [=](const char* p) {          \
      return REAL(void*, name, const char*, const char*)(p, mode); \
    });                                                            \
  }
VIEW_FOPEN(fopen)
VIEW_FOPEN(fopen64)

#define VIEW_FREOPEN(name)                                               \
  VIEW_DEFINE(void*, name,                                               \
              (const char* path, const char* mode, void* stream)) {      \
    if (view::Refused(path, view::Writes(mode))) {                       \
      fclose(static_cast<FILE*>(stream)); /* as it does when it fails */ \
      errno = EACCES;                                                    \
      return nullptr;                                                    \
    }                                                                    \
    return Viewed(path, Look::kOpen, [=](const char* p) {                \
      return REAL(void*, name, const char*, const char*, void*)(p, mode, \
                                                                stream); \
    });                                                                  \
  }
VIEW_FREOPEN(freopen)
VIEW_FREOPEN(freopen64)

VIEW_DEFINE(void*, opendir, (const char* path)) {
  return Viewed(path, Look::kOpen, [=](const char* p) {
    return REAL(void*, opendir, const char*)(p);
  });
}

#define VIEW_SCANDIR(name)                                                   \
  VIEW_DEFINE(int, name,                                                     \
              (const char* path, void* list, void* filter, void* compare)) { \
    return Viewed(path, Look::kOpen, [=](const char* p) {                    \
      return REAL(int, name, const char*, void*, void*, void*)(              \
          p, list, filter, compare);                                         \
    });                                                                      \
  }
VIEW_SCANDIR(scandir)
VIEW_SCANDIR(scandir64)

#define VIEW_SCANDIRAT(name)                                                 \
  VIEW_DEFINE(                                                               \
      int, name,                                                             \
      (int fd, const char* path, void* list, void* filter, void* compare)) { \
    return Viewed(fd, path, Look::kOpen, [=](const char* p) {                \
      return REAL(int, name, int, const char*, void*, void*, void*)(         \
          fd, p, list, filter, compare);                                     \
    });                                                                      \
  }
VIEW_SCANDIRAT(scandirat)
VIEW_SCANDIRAT(scandirat64)

VIEW_DEFINE(int, chdir, (const char* path)) {
  const int result = Viewed(path, Look::kOpen, [=](const char* p) {
    return REAL(int, chdir, const char*)(p);
  });
  if (result == 0 && view::looked) view::NoteWorkingDirectory();
  return result;
}

VIEW_DEFINE(int, fchdir, (int fd)) {
  const int result = REAL(int, fchdir, int)(fd);
  if (result == 0 && view::looked) view::NoteWorkingDirectory();
  return result;
}
