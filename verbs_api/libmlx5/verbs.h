// Our libibverbs, as this library sees it, and how its functions fail.
#ifndef VERBS_API_LIBMLX5_VERBS_H_
#define VERBS_API_LIBMLX5_VERBS_H_

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>

#include "verbs_api/libibverbs/mlx5_interface.h"

// Exports a function of the C ABI. libmlx5.exports.txt gives its version node.
#define MLX5_EXPORT extern "C" __attribute__((visibility("default")))

namespace libmlx5 {

// Null with another libibverbs.
inline verbs_api::Mlx5Interface* Verbs() {
  return rxe_user_mlx5_interface != nullptr ? rxe_user_mlx5_interface()
                                            : nullptr;
}

// Null unless `context` is an open one of a device that looks like mlx5.
inline verbs_api::Mlx5Interface* VerbsOf(ibv_context* context) {
  verbs_api::Mlx5Interface* const verbs = Verbs();
  return verbs != nullptr && verbs->LooksLikeMlx5(context) ? verbs : nullptr;
}

// For functions that return an errno value. errno is set too.
inline int Refuse(int error) {
  errno = error;
  return error;
}
// For functions that return a pointer.
inline std::nullptr_t Fail(int error) {
  errno = error;
  return nullptr;
}

}  // namespace libmlx5

#endif  // VERBS_API_LIBMLX5_VERBS_H_
