// Macros for stubs of vendors' libraries. Programs are linked to these
// libraries, but our devices lack their functions: each one reports an error.
//
// Each .cc file here is a list of macros, one for each exported function. Its
// .exports.txt has their versions.
#ifndef VERBS_API_VENDOR_STUBS_STUB_H_
#define VERBS_API_VENDOR_STUBS_STUB_H_

#include <sys/types.h>

#include <cerrno>

#include "verbs_api/symbols.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))
// Functions that return an errno value.
#define ERRNO(name) \
  EXPORTED int name() { return EOPNOTSUPP; }
// Functions that return an errno value, and ENODEV where a device lacks a part.
#define NO_DEVICE(name) \
  EXPORTED int name() { return ENODEV; }
// Functions that make something: null, with errno EOPNOTSUPP.
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
// mlx5dv_is_supported and the like.
#define FALSE(name) \
  EXPORTED bool name() { return false; }
#define VOID(name) \
  EXPORTED void name() {}
// A version for old programs, of a function that has a newer one.
#define OLD_ERRNO(name, node)                \
  SYMBOL_VERSION(old_##name, #name "@" node) \
  int old_##name() { return EOPNOTSUPP; }

#endif  // VERBS_API_VENDOR_STUBS_STUB_H_
