// Asynchronous events: ibv_get_async_event(3).
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {
namespace {

void Acknowledge(pthread_mutex_t* mutex, pthread_cond_t* cond,
                 uint32_t* completed) {
  pthread_mutex_lock(mutex);
  ++*completed;
  pthread_cond_signal(cond);
  pthread_mutex_unlock(mutex);
}

}  // namespace

VERBS_EXPORT int ibv_get_async_event(ibv_context* ibv, ibv_async_event* event) {
  Context* context = Find(ibv);
  if (context == nullptr || event == nullptr) return FailMinusOne(EINVAL);
  const Hold hold(context);
  rxe_user::Event taken;
  if (const int error =
          context->async.Take(context->device->engine(), &taken)) {
    return FailMinusOne(error);
  }
  event->event_type = static_cast<ibv_event_type>(taken.type);
  if (taken.element == nullptr) {
    event->element.cq = nullptr;  // all of the union
    event->element.port_num = taken.port;
    return 0;
  }
  event->element.cq = static_cast<ibv_cq*>(taken.element);
  if (event->event_type == IBV_EVENT_CQ_ERR) {
    if (Cq* cq = Find(event->element.cq)) cq->queue->FailQueuePairs();
  }
  return 0;
}

VERBS_EXPORT void ibv_ack_async_event(ibv_async_event* event) {
  if (event == nullptr) return;
  switch (Raw(event->event_type)) {
    case IBV_EVENT_CQ_ERR:
      if (Cq* cq = Find(event->element.cq)) {
        Acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed);
      }
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      // Another thread may be in ibv_destroy_qp, waiting for this
      // acknowledgement.
      if (Qp* qp = FindIncludingClosed(event->element.qp)) {
        ibv_qp* base = qp->base;
        Acknowledge(&base->mutex, &base->cond, &base->events_completed);
      }
      break;
    case IBV_EVENT_WQ_FATAL:
      if (Wq* wq = Find(event->element.wq)) {
        Acknowledge(&wq->mutex, &wq->cond, &wq->events_completed);
      }
      break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      if (Srq* srq = Find(event->element.srq)) {
        Acknowledge(&srq->mutex, &srq->cond, &srq->events_completed);
      }
      break;
    default:  // port and device events: nothing waits for these
      break;
  }
}

}  // namespace verbs_api
