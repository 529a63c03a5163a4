// Wrappers for the functions of librdmacm's C ABI. The functions return 0, or
// -1 with errno.
#ifndef VERBS_API_LIBRDMACM_ABI_H_
#define VERBS_API_LIBRDMACM_ABI_H_

#include <cerrno>
#include <cstddef>

#include "rxe_user/base/no_cancellation.h"
#include "verbs_api/libibverbs/interface.h"

// Exports a function under its plain name. librdmacm.map gives its version
// node.
#define CM_EXPORT extern "C" __attribute__((visibility("default")))

namespace librdmacm {

// Turns 0 or an errno value into the return value of the C ABI, and sets errno.
inline int Return(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

// Runs `body`, which returns 0 or an errno value. No exception comes out, and
// the call is not a cancellation point, so it is not for functions that wait
// for events. errno is unchanged on success. `function` is the name of the
// caller; do not pass it. A fault rule may name it, and then `body` does not
// run.
template <typename Body>
int Call(Body&& body, const char* function = __builtin_FUNCTION()) noexcept {
  const int before = errno;
  int error;
  {
    const rxe_user::NoCancellation no_cancellation;
    try {
      error = rxe_user_fail_on_command(function);
      if (error == 0) error = body();
    } catch (...) {
      error = ENOMEM;
    }
  }
  errno = before;
  return Return(error);
}

// The same for functions that return a pointer. Null with errno if `body`
// returns null, or on ENOMEM.
template <typename Body>
auto PointerCall(Body&& body,
                 const char* function = __builtin_FUNCTION()) noexcept
    -> decltype(body()) {
  const int before = errno;
  const rxe_user::NoCancellation no_cancellation;
  try {
    if (const int failed = rxe_user_fail_on_command(function)) {
      errno = failed;
      return nullptr;
    }
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
