// The functions that ours replace.
#ifndef VERBS_API_RSOCKETS_PRELOAD_REAL_H_
#define VERBS_API_RSOCKETS_PRELOAD_REAL_H_

#include <dlfcn.h>

#include <atomic>
#include <cerrno>

// The function of libc, or of another preloaded library: REAL(poll)(fds, count,
// timeout).
#define REAL(name)                              \
  reinterpret_cast<decltype(&::name)>([] {      \
    static std::atomic<void*> address{nullptr}; \
    return ::rspreload::Real(#name, address);   \
  }())

namespace rspreload {

inline void* Real(const char* name, std::atomic<void*>& address) {
  void* found = address.load(std::memory_order_relaxed);
  if (__builtin_expect(found == nullptr, 0)) {
    found = dlsym(RTLD_NEXT, name);
    address.store(found, std::memory_order_relaxed);
  }
  return found;
}

// Restores errno after calls that must not change it for the program.
class KeptErrno {
 public:
  KeptErrno() = default;
  ~KeptErrno() { errno = before_; }
  KeptErrno(const KeptErrno&) = delete;
  KeptErrno& operator=(const KeptErrno&) = delete;

 private:
  const int before_ = errno;
};

}  // namespace rspreload

#define PRELOADED extern "C" __attribute__((visibility("default")))

#endif  // VERBS_API_RSOCKETS_PRELOAD_REAL_H_
