// What our libmlx5 calls in our libibverbs, besides the verbs. Both libraries
// come from one build, so C++ types may cross. Exceptions must not: each
// library has a C++ runtime of its own.
#ifndef VERBS_API_LIBIBVERBS_MLX5_INTERFACE_H_
#define VERBS_API_LIBIBVERBS_MLX5_INTERFACE_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "rxe_user/memory/signature/signature_config.h"

namespace verbs_api {

enum class DcRole : uint8_t { kNone, kInitiator, kTarget };

// What mlx5dv_create_qp(3) adds to ibv_create_qp_ex(3).
struct Mlx5QpAttributes {
  DcRole dc = DcRole::kNone;
  // As on a card, ibv_wr_* has every operation of the type, named or not.
  bool all_operations = false;
  uint64_t access_key = 0;  // of a target
  // Of an initiator: the number of failed streams at which it goes to ERR. 0:
  // no streams.
  uint16_t errored_streams = 0;
  // It has ibv_wr_* even if the program names none of their operations.
  bool extended = false;
  // It has inline data for the layout of a memory key.
  bool configures_mkeys = false;
  // RC: SQD after a wrong signature (MLX5DV_QP_CREATE_SIG_PIPELINING).
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

// What was found wrong in the data of a memory key: as struct mlx5dv_sig_err.
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

// The largest logarithm of the number of streams of a DC initiator, and of
// those that fail before it does.
inline constexpr uint8_t kMaxLogDcStreams = 6;

// What libmlx5 keeps with a queue pair. Destroyed with it.
class Mlx5Extension {
 public:
  virtual ~Mlx5Extension() = default;
};

// Thread: any. Errors are errno values, or null with errno set. EOPNOTSUPP: the
// device does not look like mlx5 (Device::mlx5).
class Mlx5Interface {
 public:
  virtual bool LooksLikeMlx5(ibv_device* device) noexcept = 0;
  // Of an open context.
  virtual bool LooksLikeMlx5(ibv_context* context) noexcept = 0;
  // ibv_open_device(3).
  virtual ibv_context* Open(ibv_device* device) noexcept = 0;
  // READs and atomics that a queue pair may have outstanding, each way.
  virtual uint64_t MaxRdAtomic() const noexcept = 0;
  // Receives that a queue pair, or a shared receive queue, may have.
  virtual uint32_t MaxReceives() const noexcept = 0;
  // Bytes of MemcpyOperands::length.
  virtual size_t MaxMemcpy() const noexcept = 0;
  // The clock of completions, and the wall clock (since 1970) at that time; ns.
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
  // The extension of a queue pair that has ibv_wr_*; `make` makes it at the
  // first call, and may return null (no memory). EINVAL: not such a queue pair.
  using MakeExtension = Mlx5Extension* (*)(ibv_qp_ex* qp);
  virtual Mlx5Extension* Extension(ibv_qp_ex* qp,
                                   MakeExtension make) noexcept = 0;
  // 0 if `ah` is an address handle.
  virtual int CheckAddress(ibv_ah* ah) noexcept = 0;
  virtual int SetSourcePort(ibv_qp* qp, uint16_t port) noexcept = 0;
  // mlx5dv_dci_stream_id_reset(3). EINVAL: that stream has no error.
  virtual int ResetStream(ibv_qp* qp, uint16_t stream) noexcept = 0;
  // mlx5dv_qp_cancel_posted_send_wrs(3). EINVAL: it is not in SQD, or not RC.
  virtual int CancelSends(ibv_qp_ex* qp, uint64_t wr_id,
                          int* count) noexcept = 0;

  // Queue pair numbers that no queue pair gets. They belong to the context and
  // end with it. EINVAL: it has no such number.
  virtual int ReserveQpn(ibv_context* context, uint32_t* qpn) noexcept = 0;
  virtual int ReleaseQpn(ibv_context* context, uint32_t qpn) noexcept = 0;

  // --- Memory keys.

  // Rounds up `attributes->max_entries`.
  virtual MkeyNumbers* CreateMkey(MkeyAttributes* attributes) noexcept = 0;
  virtual int DestroyMkey(MkeyNumbers* mkey) noexcept = 0;
  // mlx5dv_mkey_check(3): the first error since the last call. EINVAL: no such
  // key, or none with signatures.
  virtual int CheckMkey(MkeyNumbers* mkey, MkeyError* error) noexcept = 0;

  // --- Between ibv_wr_start and ibv_wr_complete, which reports their errors.
  // `qp` has an extension.

  // ibv_wr_complete will fail with `error`.
  virtual void FailBatch(ibv_qp_ex* qp, int error) noexcept = 0;
  // Where the last request goes: DC target `dctn` behind `ah`, with its access
  // key. `stream` is ignored without streams.
  virtual void SetDcAddress(ibv_qp_ex* qp, ibv_ah* ah, uint32_t dctn,
                            uint64_t key, uint16_t stream) noexcept = 0;
  virtual void Memcpy(ibv_qp_ex* qp,
                      const MemcpyOperands& operands) noexcept = 0;
  // `wqe` is read now (raw_wqe.h).
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

// Null in another libibverbs: a weak reference.
extern "C" __attribute__((weak)) verbs_api::Mlx5Interface*
rxe_user_mlx5_interface();

#endif  // VERBS_API_LIBIBVERBS_MLX5_INTERFACE_H_
