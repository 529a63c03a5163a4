// The work requests of mlx5dv of one queue pair (manual page
// mlx5dv_wr_post(3)): what mlx5dv_qp_ex_from_ibv_qp_ex(3) returns.
#ifndef VERBS_API_LIBMLX5_WORK_REQUESTS_H_
#define VERBS_API_LIBMLX5_WORK_REQUESTS_H_

#include <infiniband/mlx5dv.h>

#include <atomic>
#include <cstdint>

#include "verbs_api/libmlx5/verbs.h"

namespace libmlx5 {

// Functions of the table do not check the queue pair: as with ibv_wr_*, the
// caller must own it. All of them report errors through ibv_wr_complete.
class WorkRequests final : public verbs_api::Mlx5Extension {
 public:
  // The work requests of a queue pair that has ibv_wr_*. Null, with errno set,
  // on failure.
  static WorkRequests* Of(ibv_qp_ex* qp);

  mlx5dv_qp_ex* table() { return &table_; }
  // The queue pair of a table that Of has returned.
  static ibv_qp_ex* QpOf(mlx5dv_qp_ex* table) { return Self(table).qp_; }
  // Sets the operations that the program named at creation
  // (mlx5dv_qp_create_send_ops_flags). There are none before.
  void set_operations(uint64_t operations) { operations_ = operations; }

 private:
  struct Table : mlx5dv_qp_ex {
    WorkRequests* self;
  };

  explicit WorkRequests(ibv_qp_ex* qp);
  static verbs_api::Mlx5Extension* Make(ibv_qp_ex* qp);
  static WorkRequests& Self(mlx5dv_qp_ex* table) {
    return *static_cast<Table*>(table)->self;
  }
  // ibv_wr_complete will fail with `error`.
  static void FailBatch(mlx5dv_qp_ex* table, int error);
  // False, and fails the batch, if the program did not name `operation`.
  static bool MayUse(mlx5dv_qp_ex* table, uint64_t operation);

  // --- Entries of the table.

  static void SetDcAddress(mlx5dv_qp_ex* table, ibv_ah* ah, uint32_t dctn,
                           uint64_t key);
  static void SetDcAddressStream(mlx5dv_qp_ex* table, ibv_ah* ah, uint32_t dctn,
                                 uint64_t key, uint16_t stream);
  static void MrInterleaved(mlx5dv_qp_ex* table, mlx5dv_mkey* mkey,
                            uint32_t access, uint32_t repeat, uint16_t count,
                            mlx5dv_mr_interleaved* pieces);
  static void MrList(mlx5dv_qp_ex* table, mlx5dv_mkey* mkey, uint32_t access,
                     uint16_t count, ibv_sge* sges);
  static void Configure(mlx5dv_qp_ex* table, mlx5dv_mkey* mkey, uint8_t setters,
                        mlx5dv_mkey_conf_attr* attr);
  static void SetAccess(mlx5dv_qp_ex* table, uint32_t access);
  static void SetList(mlx5dv_qp_ex* table, uint16_t count, const ibv_sge* sges);
  static void SetInterleaved(mlx5dv_qp_ex* table, uint32_t repeat,
                             uint16_t count,
                             const mlx5dv_mr_interleaved* pieces);
  static void RawWqe(mlx5dv_qp_ex* table, const void* wqe);
  static void Memcpy(mlx5dv_qp_ex* table, uint32_t to_lkey, uint64_t to,
                     uint32_t from_lkey, uint64_t from, size_t length);
  static void SetSignature(mlx5dv_qp_ex* table,
                           const mlx5dv_sig_block_attr* attr);
  // Not supported: fails the batch with EOPNOTSUPP.
  static void SetCrypto(mlx5dv_qp_ex* table, const mlx5dv_crypto_attr*);

  ibv_qp_ex* const qp_;
  std::atomic<uint64_t> operations_{0};
  Table table_{};
};

}  // namespace libmlx5

#endif  // VERBS_API_LIBMLX5_WORK_REQUESTS_H_
