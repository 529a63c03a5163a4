// Completion channels and queues: ibv_create_comp_channel(3),
// ibv_create_cq(3), ibv_poll_cq(3), ibv_req_notify_cq(3), ibv_get_cq_event(3).
#include <cstring>

#include "rxe_user/objects/limits.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/check.h"
#include "verbs_api/libibverbs/cq_ex.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {
namespace {

constexpr uint64_t kSupportedWcFlags =
    uint64_t{IBV_WC_STANDARD_FLAGS} | uint64_t{IBV_WC_EX_WITH_FLOW_TAG} |
    uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP} |
    uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};

// `parent`: a parent domain, or null.
Cq* Create(ibv_context* ibv, uint32_t cqe, void* cq_context,
           ibv_comp_channel* ibv_channel, uint32_t comp_vector, uint32_t flags,
           Pd* parent = nullptr) {
  Context* context = Find(ibv);
  Channel* channel = Find(ibv_channel);
  if (context == nullptr || (ibv_channel != nullptr && channel == nullptr) ||
      (channel != nullptr && channel->context != ibv) || cqe == 0 ||
      cqe > rxe_user::kMaxCqe || comp_vector >= rxe_user::kCompletionVectors) {
    return Fail(EINVAL);
  }
  auto cq = std::make_unique<Cq>();
  std::memset(static_cast<ibv_cq_ex*>(cq.get()), 0, sizeof(ibv_cq_ex));
  cq->context = ibv;
  cq->channel = ibv_channel;
  cq->cq_context = cq_context;
  cq->cqe = static_cast<int>(rxe_user::CqCapacity(cqe));
  CallArgument("cqe", cqe);
  cq->owner = context;
  cq->domain = nullptr;
  cq->single_threaded = (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
  rxe_user::CompletionQueue::Config config;
  config.capacity = rxe_user::CqCapacity(cqe);
  config.ignore_overrun = (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0;
  config.channel = channel != nullptr ? &channel->events : nullptr;
  config.allocator =
      parent != nullptr ? parent->domain->allocator.get() : nullptr;
  config.async = &context->async;
  config.element = cq->base();
  config.error_event = IBV_EVENT_CQ_ERR;
  cq->queue = std::make_unique<rxe_user::CompletionQueue>(
      context->device->engine(), config);
  if (!cq->queue->allocated()) return Fail(ENOMEM);
  cq->handle = Handles<Cq>().Add(cq.get());
  if (cq->handle == 0) return Fail(ENOMEM);
  pthread_mutex_init(&cq->mutex, nullptr);
  pthread_cond_init(&cq->cond, nullptr);
  InitCqEx(cq.get());
  CallArgument("cq", cq->queue->id());
  if (lint::Checker* const checker = lint::Checker::Current()) {
    checker->OnCqCreated(cq->queue->id(), cqe, config.ignore_overrun, channel);
  }
  if (channel != nullptr) {
    std::lock_guard<std::mutex> lock(channel->mutex);
    ++channel->refcnt;
  }
  Retain(context);
  return cq.release();
}

void ToWc(const transport::Completion& from, ibv_wc* to) {
  to->wr_id = from.wr_id;
  to->status = static_cast<ibv_wc_status>(from.status);
  to->opcode = static_cast<ibv_wc_opcode>(from.opcode);
  to->vendor_err = static_cast<uint32_t>(from.reason);
  to->byte_len = from.byte_len;
  to->imm_data = from.imm_be_or_rkey;
  to->qp_num = from.qpn;
  to->src_qp = from.src_qpn;
  to->wc_flags = from.flags;
  to->pkey_index = from.pkey_index;
  to->slid = 0;
  to->sl = from.service_level;
  to->dlid_path_bits = 0;
}

}  // namespace

VERBS_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* ibv) {
  return PointerCall([&]() -> ibv_comp_channel* {
    Context* context = Find(ibv);
    if (context == nullptr) return Fail(EINVAL);
    auto channel = std::make_unique<Channel>();
    if (const int error = channel->events.Open()) return Fail(error);
    channel->context = ibv;
    channel->fd = channel->events.fd();
    channel->refcnt = 0;
    channel->owner = context;
    SetLive(channel.get(), true);
    Retain(context);
    return channel.release();
  });
}

VERBS_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* ibv) {
  return DestroyCall(ibv, [](Channel* channel) -> int {
    {
      std::lock_guard<std::mutex> lock(channel->mutex);
      if (channel->refcnt != 0) return EBUSY;
    }
    SetLive(channel, false);
    channel->events.Close();
    Release(channel);
    return 0;
  });
}

VERBS_EXPORT ibv_cq* ibv_create_cq(ibv_context* context, int cqe,
                                   void* cq_context, ibv_comp_channel* channel,
                                   int comp_vector) {
  return PointerCall([&]() -> ibv_cq* {
    if (cqe < 0 || comp_vector < 0) return Fail(EINVAL);
    Cq* cq = Create(context, static_cast<uint32_t>(cqe), cq_context, channel,
                    static_cast<uint32_t>(comp_vector), 0);
    return cq == nullptr ? nullptr : cq->base();
  });
}

ibv_cq_ex* CreateCqEx(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  return PointerCall([&]() -> ibv_cq_ex* {
    if (attr == nullptr) return Fail(EINVAL);
    uint32_t flags =
        (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attr->flags : 0;
    constexpr uint32_t kFlags =
        IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    constexpr uint32_t kMask =
        IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    if ((attr->comp_mask & ~kMask) != 0 ||
        (attr->wc_flags & ~kSupportedWcFlags) != 0 || (flags & ~kFlags) != 0) {
      return Fail(EOPNOTSUPP);
    }
    Pd* parent = nullptr;
    if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0) {
      parent = Find(attr->parent_domain);
      if (parent == nullptr || parent->context != context ||
          !parent->is_parent()) {
        return Fail(EINVAL);
      }
      if (parent->td != nullptr) flags |= IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    }
    Cq* cq = Create(context, attr->cqe, attr->cq_context, attr->channel,
                    attr->comp_vector, flags, parent);
    if (cq != nullptr && parent != nullptr) {
      cq->domain = parent->domain.get();
      ++cq->domain->users;
    }
    return cq;
  });
}

int ModifyCq(ibv_cq* ibv, ibv_modify_cq_attr* attr) {
  return ErrnoCall([&]() -> int {
    Cq* cq = Find(ibv);
    if (cq == nullptr || attr == nullptr ||
        (attr->attr_mask & ~uint32_t{IBV_CQ_ATTR_MODERATE}) != 0) {
      return EINVAL;
    }
    if ((attr->attr_mask & IBV_CQ_ATTR_MODERATE) == 0) return 0;
    const ibv_moderate_cq wanted = attr->moderate;
    if (wanted.cq_period > rxe_user::kMaxCqPeriod) return EINVAL;
    return cq->queue->Moderate(wanted.cq_count, wanted.cq_period);
  });
}

VERBS_EXPORT int ibv_resize_cq(ibv_cq* ibv, int cqe) {
  return ErrnoCall([&]() -> int {
    Cq* cq = Find(ibv);
    if (cq == nullptr || cqe <= 0 ||
        static_cast<uint32_t>(cqe) > rxe_user::kMaxCqe) {
      return EINVAL;
    }
    const auto wanted = static_cast<uint32_t>(cqe);
    const uint32_t capacity = rxe_user::CqCapacity(wanted);
    const int error = cq->queue->Resize(capacity, wanted);
    if (error != 0) return error;
    cq->cqe = static_cast<int>(capacity);
    if (lint::Checker* const checker = lint::Checker::Current()) {
      checker->OnCqResized(cq->queue->id(), wanted);
    }
    return 0;
  });
}

VERBS_EXPORT int ibv_destroy_cq(ibv_cq* ibv) {
  return DestroyCall(ibv, [](Cq* cq) -> int {
    if (cq->queue->used()) return EBUSY;
    // From here on, no event is posted for the queue, and no lookup finds it.
    const uint32_t completion_events = cq->queue->WithdrawCompletionEvents();
    const uint32_t async_events = cq->queue->WithdrawAsyncEvents();
    if (lint::Checker* const checker = lint::Checker::Current()) {
      const uint32_t missing =
          MissingAcks(&cq->mutex, &cq->cond, &cq->comp_events_completed,
                      completion_events) +
          MissingAcks(&cq->mutex, &cq->cond, &cq->async_events_completed,
                      async_events);
      const uint64_t id = cq->queue->id();
      if (missing > 0) checker->OnUnacknowledged(id, missing);
      checker->OnCqDestroyed(id);
    }
    WaitForAcks(&cq->mutex, &cq->cond, &cq->comp_events_completed,
                completion_events);
    WaitForAcks(&cq->mutex, &cq->cond, &cq->async_events_completed,
                async_events);
    Handles<Cq>().Remove(cq->handle);
    Channel* const channel = Find(cq->channel);
    pthread_cond_destroy(&cq->cond);
    pthread_mutex_destroy(&cq->mutex);
    rxe_user::ProtectionDomain* const domain = cq->domain;
    Context* context = cq->owner;
    delete cq;
    if (channel != nullptr) {
      std::lock_guard<std::mutex> lock(channel->mutex);
      --channel->refcnt;
    }
    if (domain != nullptr) --domain->users;
    Release(context);
    return 0;
  });
}

int PollCq(ibv_cq* ibv, int count, ibv_wc* wc) {
  Cq* cq = Find(ibv);
  if (cq == nullptr || count < 0 || (count > 0 && wc == nullptr)) {
    return -EINVAL;
  }
  if (count == 0) return 0;
  return cq->queue->Poll(count,
                         [wc](int i, const transport::Completion& completion) {
                           ToWc(completion, &wc[i]);
                         });
}

int ReqNotifyCq(ibv_cq* ibv, int solicited_only) {
  Cq* cq = Find(ibv);
  if (cq == nullptr) return Refuse(EINVAL);
  cq->queue->Arm(solicited_only != 0);
  return 0;
}

VERBS_EXPORT int ibv_get_cq_event(ibv_comp_channel* ibv, ibv_cq** cq,
                                  void** cq_context) {
  Channel* channel = Find(ibv);
  if (channel == nullptr || cq == nullptr || cq_context == nullptr) {
    return FailMinusOne(EINVAL);
  }
  const Hold hold(channel);
  if (lint::Checker::Current() != nullptr) CheckWait(channel);
  rxe_user::Event event;
  if (const int error =
          channel->events.Take(channel->owner->device->engine(), &event)) {
    return FailMinusOne(error);
  }
  *cq = static_cast<ibv_cq*>(event.element);
  *cq_context = (*cq)->cq_context;
  return 0;
}

VERBS_EXPORT void ibv_ack_cq_events(ibv_cq* ibv, unsigned int count) {
  Cq* cq = Find(ibv);
  if (cq == nullptr) return;
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += count;
  pthread_cond_signal(&cq->cond);
  pthread_mutex_unlock(&cq->mutex);
}

}  // namespace verbs_api
