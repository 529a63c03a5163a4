// Memory windows: ibv_alloc_mw(3), ibv_bind_mw(3).
#include "rxe_user/objects/memory_window.h"

#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {
namespace {

using WindowType = rxe_user::MemoryWindow::Type;

// Fills in a bind request for a window of either type. `mr` may be null. Other
// errors are reported by the completion (IBV_WC_MW_BIND_ERR).
int FillBinding(const Qp& qp, const Mw& mw, uint32_t rkey,
                const ibv_mw_bind_info& info, transport::SendRequest* request) {
  Mr* mr = nullptr;
  if (info.mr != nullptr) {
    mr = Find(info.mr);
    if (mr == nullptr || mr->region->is_null() ||
        &mr->region->context() != &mw.window->domain().context) {
      return EINVAL;
    }
  }
  const rxe_user::ProtectionDomain* const pd = qp.pair->pd();
  if (pd == nullptr || &pd->context != &mw.window->domain().context) {
    return EINVAL;
  }
  request->opcode = transport::SendOpcode::kBindMw;
  request->rkey = rkey;
  request->invalidate_rkey = mr != nullptr ? mr->region->key() : 0;
  request->remote_addr = info.addr;
  request->compare_add = info.length;
  request->swap = info.mw_access_flags &
                  ~static_cast<unsigned int>(IBV_ACCESS_OPTIONAL_RANGE);
  return 0;
}

}  // namespace

ibv_mw* AllocMw(ibv_pd* ibv, ibv_mw_type type) {
  return PointerCall([&]() -> ibv_mw* {
    Pd* pd = Find(ibv);
    const int wanted = Raw(type);
    if (pd == nullptr || (wanted != IBV_MW_TYPE_1 && wanted != IBV_MW_TYPE_2)) {
      return Fail(EINVAL);
    }
    auto mw = std::make_unique<Mw>();
    mw->context = &pd->owner->context;
    mw->pd = pd;
    mw->type = type;
    mw->owner = pd->owner;
    mw->window = std::make_unique<rxe_user::MemoryWindow>(
        *pd->domain, wanted == IBV_MW_TYPE_1 ? WindowType::k1 : WindowType::k2);
    mw->rkey = mw->window->key();
    mw->handle = Handles<Mw>().Add(mw.get());
    if (mw->handle == 0) return Fail(ENOMEM);
    Retain(mw->owner);
    return mw.release();
  });
}

int DeallocMw(ibv_mw* ibv) {
  return DestroyCall(ibv, [](Mw* mw) -> int {
    Handles<Mw>().Remove(mw->handle);
    Delete(mw);
    return 0;
  });
}

int BindMw(ibv_qp* ibv_qp, ibv_mw* ibv_mw, ibv_mw_bind* bind) {
  return PostCall([&]() -> int {
    Qp* qp = Find(ibv_qp);
    Mw* mw = Find(ibv_mw);
    if (qp == nullptr) return NotFoundErrno(ibv_qp);
    if (mw == nullptr || bind == nullptr ||
        mw->window->type() != WindowType::k1) {
      return EINVAL;
    }
    const uint32_t rkey = ibv_inc_rkey(mw->rkey);
    transport::SendRequest request;
    request.wr_id = bind->wr_id;
    request.flags = bind->send_flags;
    if (mw->window->KeyLike(rkey) != rkey) return EINVAL;
    if (const int error =
            FillBinding(*qp, *mw, rkey, bind->bind_info, &request)) {
      return error;
    }
    rxe_user::QueuePair::Posting posting(*qp->pair);
    if (const int error = posting.Send(request)) return error;
    mw->rkey = rkey;
    return 0;
  });
}

int ToBindRequest(const Qp& qp, ibv_mw* ibv, uint32_t rkey,
                  const ibv_mw_bind_info& info,
                  transport::SendRequest* request) {
  Mw* mw = Find(ibv);
  if (mw == nullptr || mw->window->type() != WindowType::k2) return EINVAL;
  return FillBinding(qp, *mw, mw->window->KeyLike(rkey), info, request);
}

// rdma-core's test suite expects this since version 65.
void ShowBoundKey(ibv_mw* ibv, uint32_t rkey) {
  if (Mw* mw = Find(ibv); mw != nullptr) mw->rkey = rkey;
}

}  // namespace verbs_api
