// libefa.so.1 for programs that are linked to it: our devices have no efadv
// face, and every function says so. mlx5dv_is_supported answers false;
// functions that make something answer null, with errno EOPNOTSUPP.
#include <sys/types.h>

#include <cerrno>

#define EXPORTED extern "C" __attribute__((visibility("default")))
#define ERRNO(name) \
  EXPORTED int name() { return EOPNOTSUPP; }
#define POINTER(name)     \
  EXPORTED void* name() { \
    errno = EOPNOTSUPP;   \
    return nullptr;       \
  }
#define MINUS_ONE(name)     \
  EXPORTED ssize_t name() { \
    errno = EOPNOTSUPP;     \
    return -1;              \
  }
#define FALSE(name) \
  EXPORTED bool name() { return false; }
#define VOID(name) \
  EXPORTED void name() {}
// A version for old programs, of a function that has a newer one.
#define OLD_ERRNO(name, node)                                           \
  extern "C" __attribute__((visibility("default"),                      \
                            symver(#name "@" node))) int old_##name() { \
    return EOPNOTSUPP;                                                  \
  }

#include "verbs_api/libefa/symbols.inc"
