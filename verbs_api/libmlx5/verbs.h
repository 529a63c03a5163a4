// Our libibverbs as this library sees it, and helpers for failing functions.
#ifndef VERBS_API_LIBMLX5_VERBS_H_
#define VERBS_API_LIBMLX5_VERBS_H_

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>

#include "verbs_api/libibverbs/mlx5_interface.h"

// Exports a function of the C ABI. libmlx5.exports.txt gives its version node.
#define MLX5_EXPORT extern "C" __attribute__((visibility("default")))

namespace libmlx5 {

// Null if another libibverbs is loaded.
inline verbs_api::Mlx5Interface* Verbs() {
  return rxe_user_mlx5_interface != nullptr ? rxe_user_mlx5_interface()
                                            : nullptr;
}

// Null unless `context` is an open context of a device that looks like mlx5.
inline verbs_api::Mlx5Interface* VerbsOf(ibv_context* context) {
  verbs_api::Mlx5Interface* const verbs = Verbs();
  return verbs != nullptr && verbs->LooksLikeMlx5(context) ? verbs : nullptr;
}

// For functions that return an errno value. Sets errno, too.
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
