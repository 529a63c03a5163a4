// stat(2), statx(2), access(2), readlink(2), getxattr(2), under all names that
// libc has or had for them.
#include <stddef.h>
#include <sys/types.h>

#include "tools/view/preload/viewed_call.h"

using view::Look;
using view::Viewed;

#define VIEW_STAT(name)                                      \
  VIEW_DEFINE(int, name, (const char* path, void* buffer)) { \
    return Viewed(path, Look::kName, [=](const char* p) {    \
      return REAL(int, name, const char*, void*)(p, buffer); \
    });                                                      \
  }
VIEW_STAT(stat)
VIEW_STAT(stat64)
VIEW_STAT(lstat)
VIEW_STAT(lstat64)

#define VIEW_FSTATAT(name)                                                \
  VIEW_DEFINE(int, name,                                                  \
              (int fd, const char* path, void* buffer, int flags)) {      \
    return Viewed(fd, path, Look::kName, [=](const char* p) {             \
      return REAL(int, name, int, const char*, void*, int)(fd, p, buffer, \
                                                           flags);        \
    });                                                                   \
  }
VIEW_FSTATAT(fstatat)
VIEW_FSTATAT(fstatat64)

VIEW_DEFINE(int, statx,
            (int fd, const char* path, int flags, unsigned mask,
             void* buffer)) {
  return Viewed(fd, path, Look::kName, [=](const char* p) {
    return REAL(int, statx, int, const char*, int, unsigned, void*)(
        fd, p, flags, mask, buffer);
  });
}

// Called by programs that were linked with a glibc before 2.33.
#define VIEW_XSTAT(name)                                                   \
  VIEW_DEFINE(int, name, (int version, const char* path, void* buffer)) {  \
    return Viewed(path, Look::kName, [=](const char* p) {                  \
      return REAL(int, name, int, const char*, void*)(version, p, buffer); \
    });                                                                    \
  }
VIEW_XSTAT(__xstat)
VIEW_XSTAT(__xstat64)
VIEW_XSTAT(__lxstat)
VIEW_XSTAT(__lxstat64)

#define VIEW_FXSTATAT(name)                                               \
  VIEW_DEFINE(                                                            \
      int, name,                                                          \
      (int version, int fd, const char* path, void* buffer, int flags)) { \
    return Viewed(fd, path, Look::kName, [=](const char* p) {             \
      return REAL(int, name, int, int, const char*, void*, int)(          \
          version, fd, p, buffer, flags);                                 \
    });                                                                   \
  }
VIEW_FXSTATAT(__fxstatat)
VIEW_FXSTATAT(__fxstatat64)

#define VIEW_ACCESS(name)                                 \
  VIEW_DEFINE(int, name, (const char* path, int mode)) {  \
    return Viewed(path, Look::kName, [=](const char* p) { \
      return REAL(int, name, const char*, int)(p, mode);  \
    });                                                   \
  }
VIEW_ACCESS(access)
VIEW_ACCESS(euidaccess)
VIEW_ACCESS(eaccess)

VIEW_DEFINE(int, faccessat, (int fd, const char* path, int mode, int flags)) {
  return Viewed(fd, path, Look::kName, [=](const char* p) {
    return REAL(int, faccessat, int, const char*, int, int)(fd, p, mode, flags);
  });
}

VIEW_DEFINE(ssize_t, readlink, (const char* path, char* text, size_t size)) {
  return Viewed(path, Look::kName, [=](const char* p) {
    return REAL(ssize_t, readlink, const char*, char*, size_t)(p, text, size);
  });
}

VIEW_DEFINE(ssize_t, __readlink_chk,
            (const char* path, char* text, size_t size, size_t room)) {
  return Viewed(path, Look::kName, [=](const char* p) {
    return REAL(ssize_t, __readlink_chk, const char*, char*, size_t, size_t)(
        p, text, size, room);
  });
}

VIEW_DEFINE(ssize_t, readlinkat,
            (int fd, const char* path, char* text, size_t size)) {
  return Viewed(fd, path, Look::kName, [=](const char* p) {
    return REAL(ssize_t, readlinkat, int, const char*, char*, size_t)(
        fd, p, text, size);
  });
}

VIEW_DEFINE(ssize_t, __readlinkat_chk,
            (int fd, const char* path, char* text, size_t size, size_t room)) {
  return Viewed(fd, path, Look::kName, [=](const char* p) {
    return REAL(ssize_t, __readlinkat_chk, int, const char*, char*, size_t,
                size_t)(fd, p, text, size, room);
  });
}

// For ls -l, which reads access control lists.
#define VIEW_GETXATTR(name)                                                    \
  VIEW_DEFINE(ssize_t, name,                                                   \
              (const char* path, const char* key, void* value, size_t size)) { \
    return Viewed(path, Look::kName, [=](const char* p) {                      \
      return REAL(ssize_t, name, const char*, const char*, void*, size_t)(     \
          p, key, value, size);                                                \
    });                                                                        \
  }
VIEW_GETXATTR(getxattr)
VIEW_GETXATTR(lgetxattr)

#define VIEW_LISTXATTR(name)                                                 \
  VIEW_DEFINE(ssize_t, name, (const char* path, char* list, size_t size)) {  \
    return Viewed(path, Look::kName, [=](const char* p) {                    \
      return REAL(ssize_t, name, const char*, char*, size_t)(p, list, size); \
    });                                                                      \
  }
VIEW_LISTXATTR(listxattr)
VIEW_LISTXATTR(llistxattr)
