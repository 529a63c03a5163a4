// Shared receive queues: ibv_create_srq(3), ibv_modify_srq(3).
#include <algorithm>
#include <cstring>

#include "rxe_user/objects/limits.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {

VERBS_EXPORT ibv_srq* ibv_create_srq(ibv_pd* ibv, ibv_srq_init_attr* attr) {
  return PointerCall([&]() -> ibv_srq* {
    Pd* pd = Find(ibv);
    if (pd == nullptr || attr == nullptr || attr->attr.max_wr == 0 ||
        attr->attr.max_wr > rxe_user::kMaxSrqWr ||
        attr->attr.max_sge > rxe_user::kMaxSge) {
      return Fail(EINVAL);
    }
    Context* context = pd->owner;
    auto srq = std::make_unique<Srq>();
    std::memset(static_cast<ibv_srq*>(srq.get()), 0, sizeof(ibv_srq));
    srq->context = &context->context;
    srq->srq_context = attr->srq_context;
    srq->pd = pd;
    srq->owner = context;
    rxe_user::SharedReceiveQueue::Config config;
    config.pd = pd->domain.get();
    config.max_wr = attr->attr.max_wr;
    config.max_sge = std::max(attr->attr.max_sge, 1u);
    config.async = &context->async;
    config.element = static_cast<ibv_srq*>(srq.get());
    config.limit_event = IBV_EVENT_SRQ_LIMIT_REACHED;
    srq->queue = std::make_unique<rxe_user::SharedReceiveQueue>(config);
    srq->handle = Handles<Srq>().Add(srq.get());
    if (srq->handle == 0) return Fail(ENOMEM);
    pthread_mutex_init(&srq->mutex, nullptr);
    pthread_cond_init(&srq->cond, nullptr);
    attr->attr.max_sge = config.max_sge;
    Retain(context);
    return srq.release();
  });
}

// Basic queues with a PD go to ibv_create_srq in the header already.
ibv_srq* CreateSrqEx(ibv_context* /*context*/, ibv_srq_init_attr_ex* attr) {
  if (attr == nullptr) return Fail(EINVAL);
  const bool typed = (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0;
  if ((attr->comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED) ||
      (typed && (Raw(attr->srq_type) < IBV_SRQT_BASIC ||
                 Raw(attr->srq_type) > IBV_SRQT_TM)) ||
      (attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0) {
    return Fail(EINVAL);
  }
  if (!typed || attr->srq_type == IBV_SRQT_BASIC) {
    return ibv_create_srq(attr->pd, reinterpret_cast<ibv_srq_init_attr*>(attr));
  }
  return Fail(EOPNOTSUPP);
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
    // All or nothing: both are looked at before either is done.
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
  const NoCancellation no_cancellation;
  if (IsInherited(ibv)) return 0;
  Srq* srq = Find(ibv);
  if (srq == nullptr) return Refuse(EINVAL);
  if (srq->queue->users > 0) return Refuse(EBUSY);
  const uint32_t events = srq->queue->WithdrawAsyncEvents();
  WaitForAcks(&srq->mutex, &srq->cond, &srq->events_completed, events);
  Handles<Srq>().Remove(srq->handle);
  pthread_cond_destroy(&srq->cond);
  pthread_mutex_destroy(&srq->mutex);
  Context* context = srq->owner;
  delete srq;
  Release(context);
  return 0;
}

}  // namespace verbs_api
