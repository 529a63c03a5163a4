#include "verbs_api/libmlx5/work_requests.h"

#include <new>

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
  Verbs()->SetDcAddress(Self(table).qp_, ah, dctn, key);
}

void WorkRequests::SetSignature(mlx5dv_qp_ex* table,
                                const mlx5dv_sig_block_attr*) {
  FailBatch(table, EOPNOTSUPP);
}
void WorkRequests::SetCrypto(mlx5dv_qp_ex* table, const mlx5dv_crypto_attr*) {
  FailBatch(table, EOPNOTSUPP);
}
void WorkRequests::RawWqe(mlx5dv_qp_ex* table, const void*) {
  FailBatch(table, EOPNOTSUPP);
}
void WorkRequests::SetDcAddressStream(mlx5dv_qp_ex* table, ibv_ah*, uint32_t,
                                      uint64_t, uint16_t) {
  FailBatch(table, EOPNOTSUPP);
}
void WorkRequests::Memcpy(mlx5dv_qp_ex* table, uint32_t, uint64_t, uint32_t,
                          uint64_t, size_t) {
  FailBatch(table, EOPNOTSUPP);
}

}  // namespace libmlx5
