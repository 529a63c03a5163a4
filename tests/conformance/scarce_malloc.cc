#include "tests/conformance/scarce_malloc.h"

#include <cstddef>

namespace conformance {

thread_local int mallocs_left = kUnlimited;

}  // namespace conformance

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

bool conformance::MallocCanBeRefused() { return false; }

#else

bool conformance::MallocCanBeRefused() { return true; }

namespace {

bool Refused() {
  int& left = conformance::mallocs_left;
  if (left == 0) {
    errno = ENOMEM;
    return true;
  }
  if (left > 0) --left;
  return false;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// glibc's own.
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  return Refused() ? nullptr : __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  return Refused() ? nullptr : __libc_calloc(count, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return Refused() ? nullptr : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (Refused()) return ENOMEM;
  *out = __libc_memalign(alignment, bytes);
  return *out == nullptr ? ENOMEM : 0;
}

}  // extern "C"
#pragma GCC visibility pop

#endif
