// The functions of our libibverbs that our libmlx5 calls, besides the verbs.
// Both libraries come from one build, so C++ types may cross. Exceptions must
// not: each library has its own C++ runtime.
#ifndef VERBS_API_LIBIBVERBS_MLX5_INTERFACE_H_
#define VERBS_API_LIBIBVERBS_MLX5_INTERFACE_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "rxe_user/memory/signature/signature_config.h"

namespace verbs_api {

enum class DcRole : uint8_t { kNone, kInitiator, kTarget };

// The attributes that mlx5dv_create_qp(3) adds to ibv_create_qp_ex(3).
struct Mlx5QpAttributes {
  DcRole dc = DcRole::kNone;
  // As on a card, ibv_wr_* has every operation of the type, whether named or
  // not.
  bool all_operations = false;
  uint64_t access_key = 0;  // of a target
  // For an initiator: the number of failed streams at which it goes to ERR. 0:
  // it has no streams.
  uint16_t errored_streams = 0;
  // It has ibv_wr_* even if the program names none of these operations.
  bool extended = false;
  // It has space for inline data with the layout of a memory key.
  bool configures_mkeys = false;
  // RC: it goes to SQD after a wrong signature
  // (MLX5DV_QP_CREATE_SIG_PIPELINING).
  bool stops_at_data_errors = false;
};

// As struct mlx5dv_mkey.
struct MkeyNumbers {
  uint32_t lkey;
  uint32_t rkey;
};

// As struct mlx5dv_mkey_init_attr, without the flags that are refused.
struct MkeyAttributes {
  ibv_pd* pd = nullptr;
  uint16_t max_entries = 0;
  bool update_tag = false;
  bool remote_invalidate = false;
  bool signatures = false;
};

// A wrong signature of a memory key's data; as struct mlx5dv_sig_err.
struct MkeyError {
  enum class Kind : uint8_t { kNone, kGuard, kAppTag, kRefTag };
  Kind kind = Kind::kNone;
  uint64_t actual = 0;
  uint64_t expected = 0;
  uint64_t offset = 0;
};

// As struct mlx5dv_mr_interleaved.
struct MkeyPiece {
  uint64_t addr;
  uint32_t bytes_count;
  uint32_t bytes_skip;
  uint32_t lkey;
};

// The operands of mlx5dv_wr_memcpy.
struct MemcpyOperands {
  uint32_t to_lkey;
  uint64_t to;
  uint32_t from_lkey;
  uint64_t from;
  size_t length;
};

// The largest base-2 logarithm of the number of a DC initiator's streams, and
// of the number of failed streams at which it fails.
inline constexpr uint8_t kMaxLogDcStreams = 6;

// Data that libmlx5 attaches to a queue pair. Destroyed with it.
class Mlx5Extension {
 public:
  virtual ~Mlx5Extension() = default;
};

// Thread: any. Errors are errno values, or null with errno set. EOPNOTSUPP: the
// device does not look like mlx5 (Device::mlx5).
class Mlx5Interface {
 public:
  virtual bool LooksLikeMlx5(ibv_device* device) noexcept = 0;
  // The same for an open context.
  virtual bool LooksLikeMlx5(ibv_context* context) noexcept = 0;
  // ibv_open_device(3).
  virtual ibv_context* Open(ibv_device* device) noexcept = 0;
  // READs and atomics that a queue pair may have outstanding in each direction.
  virtual uint64_t MaxRdAtomic() const noexcept = 0;
  // The number of receives that a queue pair or shared receive queue may have.
  virtual uint32_t MaxReceives() const noexcept = 0;
  // The maximum of MemcpyOperands::length.
  virtual size_t MaxMemcpy() const noexcept = 0;
  // The clock of completions, and the wall clock (since 1970) at the same time;
  // ns.
  virtual int ReadClocks(ibv_context* context, uint64_t* device,
                         uint64_t* wall) noexcept = 0;

  // ibv_create_cq_ex(3).
  virtual ibv_cq_ex* CreateCq(ibv_context* context,
                              ibv_cq_init_attr_ex* attr) noexcept = 0;

  // --- Queue pairs.

  virtual ibv_qp* CreateQp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                           const Mlx5QpAttributes& mlx5) noexcept = 0;
  // ibv_destroy_qp(3).
  virtual void Destroy(ibv_qp* qp) noexcept = 0;
  // The extension of a queue pair that has ibv_wr_*. The first call creates it
  // with `make`, which may return null (no memory). EINVAL: the queue pair has
  // no ibv_wr_*.
  using MakeExtension = Mlx5Extension* (*)(ibv_qp_ex* qp);
  virtual Mlx5Extension* Extension(ibv_qp_ex* qp,
                                   MakeExtension make) noexcept = 0;
  // 0 if `ah` is a valid address handle.
  virtual int CheckAddress(ibv_ah* ah) noexcept = 0;
  virtual int SetSourcePort(ibv_qp* qp, uint16_t port) noexcept = 0;
  // mlx5dv_dci_stream_id_reset(3). EINVAL: the stream has not failed.
  virtual int ResetStream(ibv_qp* qp, uint16_t stream) noexcept = 0;
  // mlx5dv_qp_cancel_posted_send_wrs(3). EINVAL: it is not in SQD, or not RC.
  virtual int CancelSends(ibv_qp_ex* qp, uint64_t wr_id,
                          int* count) noexcept = 0;

  // Reserve numbers that no queue pair gets. They belong to the context and end
  // with it. EINVAL: the context has not reserved the number.
  virtual int ReserveQpn(ibv_context* context, uint32_t* qpn) noexcept = 0;
  virtual int ReleaseQpn(ibv_context* context, uint32_t qpn) noexcept = 0;

  // --- Memory keys.

  // Rounds up `attributes->max_entries`.
  virtual MkeyNumbers* CreateMkey(MkeyAttributes* attributes) noexcept = 0;
  virtual int DestroyMkey(MkeyNumbers* mkey) noexcept = 0;
  // mlx5dv_mkey_check(3): the first error since the last call. EINVAL: there is
  // no such key, or it has no signatures.
  virtual int CheckMkey(MkeyNumbers* mkey, MkeyError* error) noexcept = 0;

  // --- Between ibv_wr_start and ibv_wr_complete, which reports their errors.
  // `qp` must have an extension.

  // ibv_wr_complete will fail with `error`.
  virtual void FailBatch(ibv_qp_ex* qp, int error) noexcept = 0;
  // Sets the destination of the last request: DC target `dctn` at address `ah`,
  // with its access key. `stream` is ignored without streams.
  virtual void SetDcAddress(ibv_qp_ex* qp, ibv_ah* ah, uint32_t dctn,
                            uint64_t key, uint16_t stream) noexcept = 0;
  virtual void Memcpy(ibv_qp_ex* qp,
                      const MemcpyOperands& operands) noexcept = 0;
  // Reads `wqe` during the call (raw_wqe.h).
  virtual void PostRawWqe(ibv_qp_ex* qp, const void* wqe) noexcept = 0;
  // Begins the configuration of `mkey`; `setters` calls of the functions below
  // must follow. `resets`: it has no signatures from then on.
  virtual void ConfigureMkey(ibv_qp_ex* qp, MkeyNumbers* mkey, uint8_t setters,
                             bool resets) noexcept = 0;
  virtual void SetMkeyAccess(ibv_qp_ex* qp, uint32_t access) noexcept = 0;
  virtual void SetMkeyList(ibv_qp_ex* qp, size_t count,
                           const ibv_sge* list) noexcept = 0;
  virtual void SetMkeyInterleaved(ibv_qp_ex* qp, uint32_t repeat_count,
                                  size_t count,
                                  const MkeyPiece* pieces) noexcept = 0;
  virtual void SetMkeySignature(
      ibv_qp_ex* qp, const rxe_user::SignatureConfig& config) noexcept = 0;

 protected:
  ~Mlx5Interface() = default;
};

}  // namespace verbs_api

// A weak reference, null if another libibverbs is loaded.
extern "C" __attribute__((weak)) verbs_api::Mlx5Interface*
rxe_user_mlx5_interface();

#endif  // VERBS_API_LIBIBVERBS_MLX5_INTERFACE_H_
