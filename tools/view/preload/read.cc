// read(2) and pread(2) of attributes.
#include <sys/types.h>

#include "tools/view/preload/viewed_call.h"
#include "tools/view/preload/watched.h"

using view::BeforeRead;

VIEW_DEFINE(ssize_t, read, (int fd, void* buffer, size_t size)) {
  BeforeRead(fd, -1);
  return REAL(ssize_t, read, int, void*, size_t)(fd, buffer, size);
}

VIEW_DEFINE(ssize_t, __read_chk,
            (int fd, void* buffer, size_t size, size_t room)) {
  BeforeRead(fd, -1);
  return REAL(ssize_t, __read_chk, int, void*, size_t, size_t)(fd, buffer, size,
                                                               room);
}

#define VIEW_PREAD(name)                                                    \
  VIEW_DEFINE(ssize_t, name,                                                \
              (int fd, void* buffer, size_t size, off_t offset)) {          \
    BeforeRead(fd, offset);                                                 \
    return REAL(ssize_t, name, int, void*, size_t, off_t)(fd, buffer, size, \
                                                          offset);          \
  }
VIEW_PREAD(pread)
VIEW_PREAD(pread64)

#define VIEW_PREAD_CHK(name)                                            \
  VIEW_DEFINE(                                                          \
      ssize_t, name,                                                    \
      (int fd, void* buffer, size_t size, off_t offset, size_t room)) { \
    BeforeRead(fd, offset);                                             \
    return REAL(ssize_t, name, int, void*, size_t, off_t, size_t)(      \
        fd, buffer, size, offset, room);                                \
  }
VIEW_PREAD_CHK(__pread_chk)
VIEW_PREAD_CHK(__pread64_chk)
