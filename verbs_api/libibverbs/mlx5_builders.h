// Builders and setters of mlx5dv_wr_post(3). `qp` must have an extension.
// ibv_wr_complete reports their errors. Arguments: mlx5_interface.h.
#ifndef VERBS_API_LIBIBVERBS_MLX5_BUILDERS_H_
#define VERBS_API_LIBIBVERBS_MLX5_BUILDERS_H_

#include "verbs_api/libibverbs/abi.h"

namespace verbs_api {

class Mlx5Builders : public Mlx5Interface {
 public:
  void SetDcAddress(ibv_qp_ex* qp, ibv_ah* ah, uint32_t dctn, uint64_t key,
                    uint16_t stream) noexcept override;
  void Memcpy(ibv_qp_ex* qp, const MemcpyOperands& operands) noexcept override;
  void PostRawWqe(ibv_qp_ex* qp, const void* wqe) noexcept override;
  void ConfigureMkey(ibv_qp_ex* qp, MkeyNumbers* mkey, uint8_t setters,
                     bool resets) noexcept override;
  void SetMkeyAccess(ibv_qp_ex* qp, uint32_t access) noexcept override;
  void SetMkeyList(ibv_qp_ex* qp, size_t count,
                   const ibv_sge* list) noexcept override;
  void SetMkeyInterleaved(ibv_qp_ex* qp, uint32_t repeat_count, size_t count,
                          const MkeyPiece* pieces) noexcept override;
  void SetMkeySignature(
      ibv_qp_ex* qp, const rxe_user::SignatureConfig& config) noexcept override;

 protected:
  ~Mlx5Builders() = default;
};

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_MLX5_BUILDERS_H_
