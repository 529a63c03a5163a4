// Shared receive queues: ibv_create_srq(3), ibv_modify_srq(3).
#include <algorithm>
#include <cstring>

#include "rxe_user/objects/limits.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {

namespace {

// `xrcd` and `cq` are those of an XRC SRQ, otherwise null.
ibv_srq* Create(ibv_pd* ibv, void* srq_context, ibv_srq_attr* attr, Xrcd* xrcd,
                Cq* cq) {
  Pd* pd = Find(ibv);
  // mlx5 accepts 0, and rdma-core's test suite passes it.
  if (pd != nullptr && pd->owner->mlx5 && attr->max_wr == 0) attr->max_wr = 1;
  if (pd == nullptr || attr->max_wr == 0 ||
      attr->max_wr > rxe_user::kMaxSrqWr || attr->max_sge > rxe_user::kMaxSge) {
    return Fail(EINVAL);
  }
  Context* context = pd->owner;
  if (xrcd != nullptr && (xrcd->owner != context || cq->owner != context)) {
    return Fail(EINVAL);
  }
  auto srq = std::make_unique<Srq>();
  std::memset(static_cast<ibv_srq*>(srq.get()), 0, sizeof(ibv_srq));
  srq->context = &context->context;
  srq->srq_context = srq_context;
  srq->pd = pd;
  srq->owner = context;
  srq->xrcd = xrcd;
  rxe_user::SharedReceiveQueue::Config config;
  config.pd = pd->domain.get();
  config.max_wr = attr->max_wr;
  config.max_sge = std::max(attr->max_sge, 1u);
  config.async = &context->async;
  config.element = static_cast<ibv_srq*>(srq.get());
  config.limit_event = IBV_EVENT_SRQ_LIMIT_REACHED;
  srq->handle = Handles<Srq>().Add(srq.get());
  if (srq->handle == 0) return Fail(ENOMEM);
  try {
    if (xrcd != nullptr) {
      config.xrc = xrcd->domain.get();
      config.cq = cq->queue.get();
    }
    srq->queue = std::make_unique<rxe_user::SharedReceiveQueue>(config);
  } catch (...) {
    Handles<Srq>().Remove(srq->handle);
    throw;
  }
  if (xrcd != nullptr) ++xrcd->users;
  pthread_mutex_init(&srq->mutex, nullptr);
  pthread_cond_init(&srq->cond, nullptr);
  attr->max_sge = config.max_sge;
  Retain(context);
  return srq.release();
}

}  // namespace

VERBS_EXPORT ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  return PointerCall([&]() -> ibv_srq* {
    if (attr == nullptr) return Fail(EINVAL);
    return Create(pd, attr->srq_context, &attr->attr, nullptr, nullptr);
  });
}

// The header passes basic queues that have only a PD to ibv_create_srq.
ibv_srq* CreateSrqEx(ibv_context* ibv, ibv_srq_init_attr_ex* attr) {
  return PointerCall([&]() -> ibv_srq* {
    if (attr == nullptr) return Fail(EINVAL);
    const auto has = [attr](uint32_t bit) {
      return (attr->comp_mask & bit) != 0;
    };
    const int type =
        has(IBV_SRQ_INIT_ATTR_TYPE) ? Raw(attr->srq_type) : IBV_SRQT_BASIC;
    if (attr->comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED ||
        type < IBV_SRQT_BASIC || type > IBV_SRQT_TM ||
        !has(IBV_SRQ_INIT_ATTR_PD)) {
      return Fail(EINVAL);
    }
    if (type == IBV_SRQT_TM) return Fail(EOPNOTSUPP);
    Xrcd* xrcd = nullptr;
    Cq* cq = nullptr;
    if (type == IBV_SRQT_XRC) {
      if (!has(IBV_SRQ_INIT_ATTR_XRCD) || !has(IBV_SRQ_INIT_ATTR_CQ)) {
        return Fail(EINVAL);
      }
      xrcd = Find(attr->xrcd);
      cq = Find(attr->cq);
      if (xrcd == nullptr || cq == nullptr || xrcd->context != ibv) {
        return Fail(EINVAL);
      }
    }
    return Create(attr->pd, attr->srq_context, &attr->attr, xrcd, cq);
  });
}

int GetSrqNum(ibv_srq* ibv, uint32_t* number) {
  const NoCancellation no_cancellation;
  Srq* srq = Find(ibv);
  // DC programs also ask for the number of a basic queue, and pass it on.
  if (srq == nullptr || number == nullptr ||
      (srq->xrcd == nullptr && !srq->owner->mlx5)) {
    return Refuse(EINVAL);
  }
  *number = srq->queue->number();
  return 0;
}

VERBS_EXPORT int ibv_modify_srq(ibv_srq* ibv, ibv_srq_attr* attr, int mask) {
  return ErrnoCall([&]() -> int {
    Srq* srq = Find(ibv);
    if (srq == nullptr || attr == nullptr ||
        (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) {
      return EINVAL;
    }
    const bool resize = (mask & IBV_SRQ_MAX_WR) != 0;
    const bool limit = (mask & IBV_SRQ_LIMIT) != 0;
    // All or nothing: both changes are checked before either is made.
    if (resize && (attr->max_wr == 0 || attr->max_wr > rxe_user::kMaxSrqWr)) {
      return EINVAL;
    }
    if (limit &&
        attr->srq_limit > (resize ? attr->max_wr : srq->queue->max_wr())) {
      return EINVAL;
    }
    if (resize) {
      if (const int error = srq->queue->Resize(attr->max_wr)) return error;
    }
    return limit ? srq->queue->SetLimit(attr->srq_limit) : 0;
  });
}

VERBS_EXPORT int ibv_query_srq(ibv_srq* ibv, ibv_srq_attr* attr) {
  const NoCancellation no_cancellation;
  Srq* srq = Find(ibv);
  if (srq == nullptr || attr == nullptr) return Refuse(EINVAL);
  attr->max_wr = srq->queue->max_wr();
  attr->max_sge = srq->queue->max_sge();
  attr->srq_limit = srq->queue->limit();
  return 0;
}

VERBS_EXPORT int ibv_destroy_srq(ibv_srq* ibv) {
  return DestroyCall(ibv, [](Srq* srq) -> int {
    if (srq->queue->users > 0) return EBUSY;
    srq->queue->Retire();
    const uint32_t events = srq->queue->WithdrawAsyncEvents();
    WaitForAcks(&srq->mutex, &srq->cond, &srq->events_completed, events);
    Handles<Srq>().Remove(srq->handle);
    pthread_cond_destroy(&srq->cond);
    pthread_mutex_destroy(&srq->mutex);
    Context* context = srq->owner;
    Xrcd* xrcd = srq->xrcd;
    delete srq;
    if (xrcd != nullptr) --xrcd->users;
    Release(context);
    return 0;
  });
}

}  // namespace verbs_api
