// What every function of librdmacm's C ABI is made of. They return 0, or -1
// with errno.
#ifndef VERBS_API_LIBRDMACM_ABI_H_
#define VERBS_API_LIBRDMACM_ABI_H_

#include <cerrno>
#include <cstddef>

#include "rxe_user/base/no_cancellation.h"

// A function under its plain name. Its version node says librdmacm.map.
#define CM_EXPORT extern "C" __attribute__((visibility("default")))

namespace librdmacm {

// 0, or an errno value, as functions of the C ABI return it.
inline int Return(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

// Runs `body`, which returns 0 or an errno value: no exception comes out, and
// it is no cancellation point. Not for what waits for events. errno stays where
// nothing fails.
template <typename Body>
int Call(Body&& body) noexcept {
  const int before = errno;
  int error;
  {
    const rxe_user::NoCancellation no_cancellation;
    try {
      error = body();
    } catch (...) {
      error = ENOMEM;
    }
  }
  errno = before;
  return Return(error);
}

// The same for functions that return a pointer: null, with errno, where `body`
// says so, or ENOMEM.
template <typename Body>
auto PointerCall(Body&& body) noexcept -> decltype(body()) {
  const int before = errno;
  const rxe_user::NoCancellation no_cancellation;
  try {
    const auto result = body();
    if (result != nullptr) errno = before;
    return result;
  } catch (...) {
    errno = ENOMEM;
    return nullptr;
  }
}

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_ABI_H_
