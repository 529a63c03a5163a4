#include "verbs_api/libmlx5/work_requests.h"

#include <new>

#include "verbs_api/libmlx5/mkey.h"
#include "verbs_api/libmlx5/signatures.h"

namespace libmlx5 {

WorkRequests::WorkRequests(ibv_qp_ex* qp) : qp_(qp) {
  table_.self = this;
  table_.wr_set_dc_addr = SetDcAddress;
  table_.wr_mr_interleaved = MrInterleaved;
  table_.wr_mr_list = MrList;
  table_.wr_mkey_configure = Configure;
  table_.wr_set_mkey_access_flags = SetAccess;
  table_.wr_set_mkey_layout_list = SetList;
  table_.wr_set_mkey_layout_interleaved = SetInterleaved;
  table_.wr_set_mkey_sig_block = SetSignature;
  table_.wr_raw_wqe = RawWqe;
  table_.wr_set_dc_addr_stream = SetDcAddressStream;
  table_.wr_memcpy = Memcpy;
  table_.wr_set_mkey_crypto = SetCrypto;
}

verbs_api::Mlx5Extension* WorkRequests::Make(ibv_qp_ex* qp) {
  return new (std::nothrow) WorkRequests(qp);
}

WorkRequests* WorkRequests::Of(ibv_qp_ex* qp) {
  verbs_api::Mlx5Interface* const verbs = Verbs();
  if (verbs == nullptr) return Fail(EOPNOTSUPP);
  return static_cast<WorkRequests*>(verbs->Extension(qp, Make));
}

void WorkRequests::FailBatch(mlx5dv_qp_ex* table, int error) {
  Verbs()->FailBatch(Self(table).qp_, error);
}

bool WorkRequests::MayUse(mlx5dv_qp_ex* table, uint64_t operation) {
  if ((Self(table).operations_ & operation) != 0) return true;
  FailBatch(table, EINVAL);
  return false;
}

void WorkRequests::SetDcAddress(mlx5dv_qp_ex* table, ibv_ah* ah, uint32_t dctn,
                                uint64_t key) {
  SetDcAddressStream(table, ah, dctn, key, 0);
}
void WorkRequests::SetDcAddressStream(mlx5dv_qp_ex* table, ibv_ah* ah,
                                      uint32_t dctn, uint64_t key,
                                      uint16_t stream) {
  Verbs()->SetDcAddress(Self(table).qp_, ah, dctn, key, stream);
}

void WorkRequests::Memcpy(mlx5dv_qp_ex* table, uint32_t to_lkey, uint64_t to,
                          uint32_t from_lkey, uint64_t from, size_t length) {
  if (!MayUse(table, MLX5DV_QP_EX_WITH_MEMCPY)) return;
  Verbs()->Memcpy(Self(table).qp_, {to_lkey, to, from_lkey, from, length});
}

void WorkRequests::RawWqe(mlx5dv_qp_ex* table, const void* wqe) {
  if (!MayUse(table, MLX5DV_QP_EX_WITH_RAW_WQE)) return;
  Verbs()->PostRawWqe(Self(table).qp_, wqe);
}

// MrInterleaved and MrList configure a memory key with two setters: the access
// and the layout.
void WorkRequests::MrInterleaved(mlx5dv_qp_ex* table, mlx5dv_mkey* mkey,
                                 uint32_t access, uint32_t repeat,
                                 uint16_t count,
                                 mlx5dv_mr_interleaved* pieces) {
  if (!MayUse(table, MLX5DV_QP_EX_WITH_MR_INTERLEAVED)) return;
  Verbs()->ConfigureMkey(Self(table).qp_, Numbers(mkey), 2, false);
  Verbs()->SetMkeyAccess(Self(table).qp_, access);
  Verbs()->SetMkeyInterleaved(Self(table).qp_, repeat, count, Pieces(pieces));
}
void WorkRequests::MrList(mlx5dv_qp_ex* table, mlx5dv_mkey* mkey,
                          uint32_t access, uint16_t count, ibv_sge* sges) {
  if (!MayUse(table, MLX5DV_QP_EX_WITH_MR_LIST)) return;
  Verbs()->ConfigureMkey(Self(table).qp_, Numbers(mkey), 2, false);
  Verbs()->SetMkeyAccess(Self(table).qp_, access);
  Verbs()->SetMkeyList(Self(table).qp_, count, sges);
}

void WorkRequests::Configure(mlx5dv_qp_ex* table, mlx5dv_mkey* mkey,
                             uint8_t setters, mlx5dv_mkey_conf_attr* attr) {
  if (!MayUse(table, MLX5DV_QP_EX_WITH_MKEY_CONFIGURE)) return;
  if (attr == nullptr) return FailBatch(table, EINVAL);
  if (attr->comp_mask != 0 ||
      (attr->conf_flags & ~uint32_t{MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR}) !=
          0) {
    return FailBatch(table, EOPNOTSUPP);
  }
  const bool resets =
      (attr->conf_flags & MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR) != 0;
  Verbs()->ConfigureMkey(Self(table).qp_, Numbers(mkey), setters, resets);
}

void WorkRequests::SetAccess(mlx5dv_qp_ex* table, uint32_t access) {
  Verbs()->SetMkeyAccess(Self(table).qp_, access);
}
void WorkRequests::SetList(mlx5dv_qp_ex* table, uint16_t count,
                           const ibv_sge* sges) {
  Verbs()->SetMkeyList(Self(table).qp_, count, sges);
}
void WorkRequests::SetInterleaved(mlx5dv_qp_ex* table, uint32_t repeat,
                                  uint16_t count,
                                  const mlx5dv_mr_interleaved* pieces) {
  Verbs()->SetMkeyInterleaved(Self(table).qp_, repeat, count, Pieces(pieces));
}

void WorkRequests::SetSignature(mlx5dv_qp_ex* table,
                                const mlx5dv_sig_block_attr* attr) {
  rxe_user::SignatureConfig config;
  if (!ReadSignature(attr, &config)) return FailBatch(table, EINVAL);
  Verbs()->SetMkeySignature(Self(table).qp_, config);
}
void WorkRequests::SetCrypto(mlx5dv_qp_ex* table, const mlx5dv_crypto_attr*) {
  FailBatch(table, EOPNOTSUPP);
}

}  // namespace libmlx5
