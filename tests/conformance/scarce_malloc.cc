#include "tests/conformance/scarce_malloc.h"

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstring>

namespace conformance {
namespace {

char refused_name[16];
std::atomic<bool> refuses = false;
std::atomic<bool> refuses_for_long;
std::atomic<int> granted_to_threads;
std::atomic<int> refused_of_threads;

}  // namespace

thread_local int mallocs_left = kUnlimited;

void RefuseThreads(const char* name, int granted, bool for_long) {
  refuses = false;
  std::strncpy(refused_name, name, sizeof(refused_name) - 1);
  granted_to_threads = granted;
  refused_of_threads = 0;
  refuses_for_long = for_long;
  refuses = true;
}
void StopRefusing() { refuses = false; }
int RefusedOfThreads() { return refused_of_threads; }

// Whether an allocation of the calling thread fails, by its name.
bool IsRefusedByName() {
  if (!refuses) return false;
  char name[16] = {};
  if (pthread_getname_np(pthread_self(), name, sizeof(name)) != 0 ||
      std::strcmp(name, refused_name) != 0 || granted_to_threads-- > 0) {
    return false;
  }
  if (!refuses_for_long) refuses = false;
  ++refused_of_threads;
  return true;
}

}  // namespace conformance

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

bool conformance::MallocCanBeRefused() { return false; }

#else

bool conformance::MallocCanBeRefused() { return true; }

namespace {

bool Refused() {
  int& left = conformance::mallocs_left;
  if (left == 0 || conformance::IsRefusedByName()) {
    errno = ENOMEM;
    return true;
  }
  if (left > 0) --left;
  return false;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// glibc's own functions.
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
