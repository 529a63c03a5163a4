// Memory keys: mlx5dv_create_mkey(3).
#include "verbs_api/libmlx5/mkey.h"

#include "verbs_api/libmlx5/verbs.h"

namespace libmlx5 {
namespace {

// Keys with encryption are not supported.
constexpr uint32_t kFlags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
                            MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE |
                            MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG |
                            MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE;

}  // namespace

// A card needs a DevX context for this; here any context will do.
MLX5_EXPORT mlx5dv_mkey* mlx5dv_create_mkey(mlx5dv_mkey_init_attr* attr) {
  verbs_api::Mlx5Interface* const verbs = Verbs();
  if (verbs == nullptr) return Fail(EOPNOTSUPP);
  if (attr == nullptr) return Fail(EINVAL);
  if (attr->create_flags == 0 || (attr->create_flags & ~kFlags) != 0) {
    return Fail(EOPNOTSUPP);
  }
  const auto has = [&](uint32_t flag) {
    return (attr->create_flags & flag) != 0;
  };
  verbs_api::MkeyAttributes attributes;
  attributes.pd = attr->pd;
  attributes.max_entries = attr->max_entries;
  attributes.update_tag = has(MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG);
  attributes.remote_invalidate =
      has(MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE);
  attributes.signatures = has(MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE);
  MkeyNumbers* const mkey = verbs->CreateMkey(&attributes);
  if (mkey != nullptr) attr->max_entries = attributes.max_entries;
  return reinterpret_cast<mlx5dv_mkey*>(mkey);
}

MLX5_EXPORT int mlx5dv_destroy_mkey(mlx5dv_mkey* mkey) {
  verbs_api::Mlx5Interface* const verbs = Verbs();
  if (verbs == nullptr) return Refuse(EOPNOTSUPP);
  const int error = verbs->DestroyMkey(Numbers(mkey));
  return error == 0 ? 0 : Refuse(error);
}

}  // namespace libmlx5
