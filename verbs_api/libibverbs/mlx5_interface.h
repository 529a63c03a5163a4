// What our libmlx5 calls in our libibverbs, besides the verbs. Both libraries
// come from one build, so C++ types may cross. Exceptions must not: each
// library has a C++ runtime of its own.
#ifndef VERBS_API_LIBIBVERBS_MLX5_INTERFACE_H_
#define VERBS_API_LIBIBVERBS_MLX5_INTERFACE_H_

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbs_api {

enum class DcRole : uint8_t { kNone, kInitiator, kTarget };

// What mlx5dv_create_qp(3) adds to ibv_create_qp_ex(3).
struct Mlx5QpAttributes {
  DcRole dc = DcRole::kNone;
  uint64_t access_key = 0;  // of a target
  // It has ibv_wr_* even if the program names none of their operations.
  bool extended = false;
};

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

  // Queue pair numbers that no queue pair gets. They belong to the context and
  // end with it. EINVAL: it has no such number.
  virtual int ReserveQpn(ibv_context* context, uint32_t* qpn) noexcept = 0;
  virtual int ReleaseQpn(ibv_context* context, uint32_t qpn) noexcept = 0;

  // --- Between ibv_wr_start and ibv_wr_complete, which reports their errors.
  // `qp` has an extension.

  // ibv_wr_complete will fail with `error`.
  virtual void FailBatch(ibv_qp_ex* qp, int error) noexcept = 0;
  // Where the last request goes: DC target `dctn` behind `ah`, with its access
  // key.
  virtual void SetDcAddress(ibv_qp_ex* qp, ibv_ah* ah, uint32_t dctn,
                            uint64_t key) noexcept = 0;

 protected:
  ~Mlx5Interface() = default;
};

}  // namespace verbs_api

// Null in another libibverbs: a weak reference.
extern "C" __attribute__((weak)) verbs_api::Mlx5Interface*
rxe_user_mlx5_interface();

#endif  // VERBS_API_LIBIBVERBS_MLX5_INTERFACE_H_
