// The functions that libmlx5 calls (mlx5_interface.h).
#include <algorithm>
#include <memory>
#include <mutex>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "rxe_user/objects/limits.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"
#include "verbs_api/libibverbs/mlx5_builders.h"
#include "verbs_api/libibverbs/mlx5_interface.h"
#include "verbs_api/libibverbs/wall_clock.h"
#include "verbs_api/libibverbs/work_builder.h"

namespace verbs_api {
namespace {

// An open context of a device that looks like mlx5, or null.
Context* FindMlx5(ibv_context* ibv) {
  Context* const context = Find(ibv);
  return context != nullptr && context->mlx5 ? context : nullptr;
}

// Rounds up to a multiple of 4, as on a card. A layout has at most
// kMaxMkeyEntries.
uint16_t RoundUp(uint16_t entries) {
  constexpr unsigned kUnit = 4;
  return static_cast<uint16_t>(
      std::min((std::max(unsigned{entries}, 1u) + kUnit - 1) / kUnit * kUnit,
               65535u / kUnit * kUnit));
}

class Interface final : public Mlx5Builders {
 public:
  bool LooksLikeMlx5(ibv_device* device) noexcept override {
    return NoThrow(
        [&] {
          const auto found = FindDevice(device);
          return found != nullptr && found->mlx5;
        },
        [](int) { return false; });
  }
  bool LooksLikeMlx5(ibv_context* context) noexcept override {
    return FindMlx5(context) != nullptr;
  }
  ibv_context* Open(ibv_device* device) noexcept override {
    return ibv_open_device(device);
  }
  uint64_t MaxRdAtomic() const noexcept override {
    return rxe_user::kMaxRdAtomic;
  }

  uint32_t MaxReceives() const noexcept override {
    return std::min(rxe_user::kMaxQpWr, rxe_user::kMaxSrqWr);
  }
  size_t MaxMemcpy() const noexcept override { return transport::kMaxMemcpy; }
  int ReadClocks(ibv_context* context, uint64_t* device,
                 uint64_t* wall) noexcept override {
    if (FindMlx5(context) == nullptr) return EOPNOTSUPP;
    const transport::Time now = rxe_user::Lane::Now();
    *device = static_cast<uint64_t>(now);
    *wall = static_cast<uint64_t>(ToWallClock(now));
    return 0;
  }

  ibv_cq_ex* CreateCq(ibv_context* context,
                      ibv_cq_init_attr_ex* attr) noexcept override {
    return CreateCqEx(context, attr);
  }

  ibv_qp* CreateQp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                   const Mlx5QpAttributes& mlx5) noexcept override {
    return CreateMlx5Qp(context, attr, mlx5);
  }
  void Destroy(ibv_qp* qp) noexcept override { ibv_destroy_qp(qp); }

  Mlx5Extension* Extension(ibv_qp_ex* ibv,
                           MakeExtension make) noexcept override {
    Qp* const qp = ibv != nullptr ? Find(&ibv->qp_base) : nullptr;
    if (qp == nullptr || qp->extended() != ibv) return Fail(EINVAL);
    if (!qp->owner->mlx5) return Fail(EOPNOTSUPP);
    auto& extension = Self(ibv)->extension;
    std::lock_guard<std::mutex> lock(qp->owner->mutex);
    if (extension == nullptr) extension.reset(make(ibv));
    return extension != nullptr ? extension.get() : Fail(ENOMEM);
  }

  int CheckAddress(ibv_ah* ibv) noexcept override {
    const Ah* const ah = Find(ibv);
    if (ah == nullptr) return EINVAL;
    return ah->owner->mlx5 ? 0 : EOPNOTSUPP;
  }

  int SetSourcePort(ibv_qp* ibv, uint16_t port) noexcept override {
    return ErrnoCall([&]() -> int {
      Qp* const qp = Find(ibv);
      if (qp == nullptr) return EINVAL;
      if (!qp->owner->mlx5) return EOPNOTSUPP;
      return qp->pair->SetSourcePort(port);
    });
  }

  int ResetStream(ibv_qp* ibv, uint16_t stream) noexcept override {
    return ErrnoCall([&]() -> int {
      Qp* const qp = Find(ibv);
      if (qp == nullptr) return EINVAL;
      if (!qp->owner->mlx5) return EOPNOTSUPP;
      return qp->pair->ResetStream(stream);
    });
  }

  int CancelSends(ibv_qp_ex* ibv, uint64_t wr_id,
                  int* count) noexcept override {
    return ErrnoCall([&]() -> int {
      Qp* const qp = Find(&ibv->qp_base);
      if (qp == nullptr) return EINVAL;
      return qp->pair->CancelSends(wr_id, count);
    });
  }

  int ReserveQpn(ibv_context* ibv, uint32_t* qpn) noexcept override {
    return ErrnoCall([&]() -> int {
      Context* const context = FindMlx5(ibv);
      if (context == nullptr) return EOPNOTSUPP;
      rxe_user::Engine& engine = context->device->engine();
      const absl::StatusOr<uint32_t> number = engine.AllocateQpn();
      if (!number.ok()) return rxe_user::ReportedErrno(number.status());
      absl::Cleanup release = [&] { engine.ReleaseQpn(*number); };
      std::lock_guard<std::mutex> lock(context->mutex);
      context->reserved_qpns.insert(*number);
      std::move(release).Cancel();
      *qpn = *number;
      return 0;
    });
  }
  int ReleaseQpn(ibv_context* ibv, uint32_t qpn) noexcept override {
    return ErrnoCall([&]() -> int {
      Context* const context = FindMlx5(ibv);
      if (context == nullptr) return EOPNOTSUPP;
      {
        std::lock_guard<std::mutex> lock(context->mutex);
        if (context->reserved_qpns.erase(qpn) == 0) return EINVAL;
      }
      context->device->engine().ReleaseQpn(qpn);
      return 0;
    });
  }

  MkeyNumbers* CreateMkey(MkeyAttributes* attributes) noexcept override {
    return PointerCall([&]() -> MkeyNumbers* {
      Pd* const pd = Find(attributes->pd);
      if (pd == nullptr) return Fail(EINVAL);
      if (!pd->owner->mlx5) return Fail(EOPNOTSUPP);
      attributes->max_entries = RoundUp(attributes->max_entries);
      auto mkey = std::make_unique<Mkey>();
      mkey->owner = pd->owner;
      mkey->key = std::make_unique<rxe_user::MemoryKey>(
          *pd->domain, attributes->max_entries,
          rxe_user::MemoryKey::Options{
              .update_tag = attributes->update_tag,
              .remote_invalidate = attributes->remote_invalidate,
              .signatures = attributes->signatures});
      mkey->lkey = mkey->rkey = mkey->key->key();
      SetLive(mkey.get(), true);
      Retain(mkey->owner);
      return mkey.release();
    });
  }
  int DestroyMkey(MkeyNumbers* numbers) noexcept override {
    return DestroyCall(numbers, [](Mkey* mkey) -> int {
      SetLive(mkey, false);
      Delete(mkey);
      return 0;
    });
  }

  int CheckMkey(MkeyNumbers* numbers, MkeyError* error) noexcept override {
    return ErrnoCall([&]() -> int {
      const Mkey* const mkey = Find(numbers);
      if (mkey == nullptr) return EINVAL;
      rxe_user::SignatureError found;
      if (const int failure = mkey->key->TakeError(&found)) return failure;
      *error = {static_cast<MkeyError::Kind>(found.kind), found.actual,
                found.expected, found.offset};
      return 0;
    });
  }

  void FailBatch(ibv_qp_ex* qp, int error) noexcept override {
    Wrong(Self(qp)->builder, error);
  }
};

}  // namespace

// Never destroyed: threads may outlive main().
extern "C" __attribute__((visibility("default"))) Mlx5Interface*
rxe_user_mlx5_interface() {
  static auto* const interface = new Interface;
  return interface;
}

}  // namespace verbs_api
