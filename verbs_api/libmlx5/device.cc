// Devices and contexts: mlx5dv_is_supported(3), mlx5dv_open_device(3),
// mlx5dv_query_device(3), mlx5dv_query_port(3), mlx5dv_set_context_attr.
#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "verbs_api/libmlx5/capabilities.h"
#include "verbs_api/libmlx5/verbs.h"

namespace libmlx5 {
namespace {

constexpr uint32_t kPort = 1;

// Values from rdma-core 56 and newer.
constexpr uint64_t kMaskMaxDcRdAtom = 1 << 14;
constexpr uint64_t kMaskOooRecvWrs = 1 << 16;

// The members that rdma-core 56 and newer append to struct mlx5dv_context of
// rdma-core 44. A program that asks for them has a structure that contains
// them.
struct NewerContext {
  uint64_t max_dc_rd_atom;
  uint64_t max_dc_init_rd_atom;
  uint32_t reg_c0[2];
  struct {
    uint32_t max_rc, max_xrc, max_dct, max_ud, max_uc;
  } ooo_recv_wrs_caps;
};
constexpr size_t kNewerOffset = 152;
static_assert(kNewerOffset - (offsetof(mlx5dv_context, crypto_caps) +
                              sizeof(mlx5dv_crypto_caps)) <
              alignof(NewerContext));

NewerContext* Newer(mlx5dv_context* context) {
  return reinterpret_cast<NewerContext*>(reinterpret_cast<char*>(context) +
                                         kNewerOffset);
}

}  // namespace

MLX5_EXPORT bool mlx5dv_is_supported(ibv_device* device) {
  verbs_api::Mlx5Interface* const verbs = Verbs();
  return verbs != nullptr && verbs->LooksLikeMlx5(device);
}

// Does not support DevX or a descriptor of another process.
MLX5_EXPORT ibv_context* mlx5dv_open_device(ibv_device* device,
                                            mlx5dv_context_attr* attr) {
  if (!mlx5dv_is_supported(device)) return Fail(EOPNOTSUPP);
  if (attr == nullptr) return Fail(EINVAL);
  if (attr->flags != 0 || attr->comp_mask != 0) return Fail(EOPNOTSUPP);
  return Verbs()->Open(device);
}

// Fills in only the members that `out->comp_mask` asks for and the device has,
// and sets those bits.
MLX5_EXPORT int mlx5dv_query_device(ibv_context* context, mlx5dv_context* out) {
  verbs_api::Mlx5Interface* const verbs = VerbsOf(context);
  if (verbs == nullptr) return Refuse(EOPNOTSUPP);
  if (out == nullptr) return Refuse(EINVAL);
  const uint64_t wanted = out->comp_mask;
  uint64_t filled = 0;
  const auto fills = [&](uint64_t bit) {
    filled |= wanted & bit;
    return (wanted & bit) != 0;
  };
  out->version = 0;
  out->flags =
      MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP | MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD;
  if (fills(MLX5DV_CONTEXT_MASK_CQE_COMPRESION)) {
    out->cqe_comp_caps = {kMaxCompressed, kCompressionFormats};
  }
  // The conversion stays valid as long as differences fit in the clock's mask.
  if (fills(MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE)) {
    out->max_clock_info_update_nsec = UINT64_MAX / 2;
  }
  if (fills(MLX5DV_CONTEXT_MASK_DC_ODP_CAPS)) {
    out->dc_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_SRQ_RECV |
                       IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
                       IBV_ODP_SUPPORT_ATOMIC;
  }
  if (fills(MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD)) {
    out->sig_caps = {};
    out->sig_caps.block_size =
        MLX5DV_BLOCK_SIZE_CAP_512 | MLX5DV_BLOCK_SIZE_CAP_520 |
        MLX5DV_BLOCK_SIZE_CAP_4048 | MLX5DV_BLOCK_SIZE_CAP_4096 |
        MLX5DV_BLOCK_SIZE_CAP_4160;
    out->sig_caps.block_prot =
        MLX5DV_SIG_PROT_CAP_T10DIF | MLX5DV_SIG_PROT_CAP_CRC;
    out->sig_caps.t10dif_bg =
        MLX5DV_SIG_T10DIF_BG_CAP_CRC | MLX5DV_SIG_T10DIF_BG_CAP_CSUM;
    out->sig_caps.crc_type = MLX5DV_SIG_CRC_TYPE_CAP_CRC32 |
                             MLX5DV_SIG_CRC_TYPE_CAP_CRC32C |
                             MLX5DV_SIG_CRC_TYPE_CAP_CRC64_XP10;
  }
  if (fills(MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS)) out->num_lag_ports = 1;
  if (fills(MLX5DV_CONTEXT_MASK_DCI_STREAMS)) {
    out->dci_streams_caps = {verbs_api::kMaxLogDcStreams,
                             verbs_api::kMaxLogDcStreams};
  }
  if (fills(MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH)) {
    out->max_wr_memcpy_length = verbs->MaxMemcpy();
  }
  if (fills(kMaskMaxDcRdAtom)) {
    Newer(out)->max_dc_rd_atom = Newer(out)->max_dc_init_rd_atom =
        verbs->MaxRdAtomic();
  }
  if (fills(kMaskOooRecvWrs)) {
    const uint32_t max = verbs->MaxReceives();
    Newer(out)->ooo_recv_wrs_caps = {max, max, max, max, max};
  }
  out->comp_mask = filled;
  return 0;
}

// No flags, since there are no virtual ports and no steering tables.
MLX5_EXPORT int _mlx5dv_query_port(ibv_context* context, uint32_t port,
                                   mlx5dv_port* info, size_t size) {
  if (VerbsOf(context) == nullptr) return Refuse(EOPNOTSUPP);
  if (port != kPort || info == nullptr) return Refuse(EINVAL);
  std::memset(info, 0, size);
  return 0;
}

// A program cannot provide memory for queues.
MLX5_EXPORT int mlx5dv_set_context_attr(ibv_context* /*context*/,
                                        mlx5dv_set_ctx_attr_type /*type*/,
                                        void* /*attr*/) {
  return Refuse(EOPNOTSUPP);
}

}  // namespace libmlx5
