// Receive work queues, their indirection tables, and the hash that selects one
// of them: ibv_create_wq(3), ibv_create_rwq_ind_table(3), ibv_create_qp_ex(3).
#include <bit>
#include <cstring>

#include "rxe_user/objects/limits.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {
namespace {

int PostWqRecv(ibv_wq* ibv, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return PostCall([&]() -> int {
    Wq* wq = Find(ibv);
    if (wq == nullptr) {
      if (bad != nullptr) *bad = wr;
      return EINVAL;
    }
    rxe_user::RecvWorkQueue::Posting posting(*wq->queue);
    return PostReceives(&posting, wr, bad);
  });
}

}  // namespace

ibv_wq* CreateWq(ibv_context* ibv, ibv_wq_init_attr* attr) {
  return PointerCall([&]() -> ibv_wq* {
    if (attr == nullptr) return Fail(EINVAL);
    Pd* pd = Find(attr->pd);
    Cq* cq = Find(attr->cq);
    if (pd == nullptr || cq == nullptr || pd->context != ibv ||
        cq->context != ibv || Raw(attr->wq_type) != IBV_WQT_RQ ||
        (attr->comp_mask & ~uint32_t{IBV_WQ_INIT_ATTR_FLAGS}) != 0) {
      return Fail(EINVAL);
    }
    if ((attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS) != 0 &&
        attr->create_flags != 0) {
      return Fail(EOPNOTSUPP);
    }
    auto wq = std::make_unique<Wq>();
    std::memset(static_cast<ibv_wq*>(wq.get()), 0, sizeof(ibv_wq));
    Context* context = pd->owner;
    rxe_user::RecvWorkQueue::Config config;
    config.pd = pd->domain.get();
    config.cq = cq->queue.get();
    config.max_wr = attr->max_wr;
    config.max_sge = std::max(attr->max_sge, 1u);
    config.async = &context->async;
    config.element = static_cast<ibv_wq*>(wq.get());
    config.fatal_event = IBV_EVENT_WQ_FATAL;
    if (const int error = rxe_user::RecvWorkQueue::Create(config, &wq->queue)) {
      return Fail(error);
    }
    wq->handle = Handles<Wq>().Add(wq.get());
    if (wq->handle == 0) return Fail(ENOMEM);
    attr->max_sge = config.max_sge;
    wq->owner = context;
    wq->context = ibv;
    wq->wq_context = attr->wq_context;
    wq->pd = attr->pd;
    wq->cq = attr->cq;
    wq->wq_num = wq->queue->number();
    wq->state = IBV_WQS_RESET;
    wq->wq_type = IBV_WQT_RQ;
    wq->post_recv = PostWqRecv;
    pthread_mutex_init(&wq->mutex, nullptr);
    pthread_cond_init(&wq->cond, nullptr);
    Retain(context);
    return wq.release();
  });
}

int ModifyWq(ibv_wq* ibv, ibv_wq_attr* attr) {
  return ErrnoCall([&]() -> int {
    constexpr uint32_t kKnown =
        IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE | IBV_WQ_ATTR_FLAGS;
    Wq* wq = Find(ibv);
    if (wq == nullptr || attr == nullptr || (attr->attr_mask & ~kKnown) != 0) {
      return EINVAL;
    }
    if ((attr->attr_mask & IBV_WQ_ATTR_FLAGS) != 0 && attr->flags_mask != 0) {
      return EOPNOTSUPP;
    }
    if ((attr->attr_mask & IBV_WQ_ATTR_CURR_STATE) != 0 &&
        Raw(attr->curr_wq_state) != static_cast<int>(wq->queue->state())) {
      return EINVAL;
    }
    if ((attr->attr_mask & IBV_WQ_ATTR_STATE) == 0) return 0;
    if (Raw(attr->wq_state) < IBV_WQS_RESET ||
        Raw(attr->wq_state) > IBV_WQS_ERR) {
      return EINVAL;
    }
    const int error =
        wq->queue->Modify(static_cast<transport::WqState>(attr->wq_state));
    if (error == 0) wq->state = attr->wq_state;
    return error;
  });
}

int DestroyWq(ibv_wq* ibv) {
  return DestroyCall(ibv, [](Wq* wq) -> int {
    if (wq->queue->users > 0) return EBUSY;
    // No lane fills the queue any more, so no event follows.
    const uint32_t events = wq->queue->WithdrawAsyncEvents();
    WaitForAcks(&wq->mutex, &wq->cond, &wq->events_completed, events);
    Handles<Wq>().Remove(wq->handle);
    pthread_cond_destroy(&wq->cond);
    pthread_mutex_destroy(&wq->mutex);
    Delete(wq);
    return 0;
  });
}

ibv_rwq_ind_table* CreateRwqTable(ibv_context* ibv,
                                  ibv_rwq_ind_table_init_attr* attr) {
  return PointerCall([&]() -> ibv_rwq_ind_table* {
    Context* context = Find(ibv);
    if (context == nullptr || attr == nullptr || attr->comp_mask != 0 ||
        attr->ind_tbl == nullptr ||
        attr->log_ind_tbl_size >= std::bit_width(rxe_user::kMaxRwqTable)) {
      return Fail(EINVAL);
    }
    auto table = std::make_unique<RwqTable>();
    for (uint32_t i = 0; i < 1u << attr->log_ind_tbl_size; ++i) {
      Wq* wq = Find(attr->ind_tbl[i]);
      if (wq == nullptr || wq->owner != context) return Fail(EINVAL);
      table->queues.push_back(wq);
    }
    static std::atomic<int> next{1};
    table->context = ibv;
    table->ind_tbl_handle = table->ind_tbl_num = next++;
    table->comp_mask = 0;
    table->owner = context;
    SetLive(table.get(), true);
    for (Wq* wq : table->queues) ++wq->queue->users;
    Retain(context);
    return table.release();
  });
}

int DestroyRwqTable(ibv_rwq_ind_table* ibv) {
  return DestroyCall(ibv, [](RwqTable* table) -> int {
    if (table->users > 0) return EBUSY;
    SetLive(table, false);
    for (Wq* wq : table->queues) --wq->queue->users;
    Delete(table);
    return 0;
  });
}

int ToRxHash(const RwqTable& table, const ibv_rx_hash_conf& conf,
             std::shared_ptr<const transport::RxHash>* out) {
  auto hash = std::make_shared<transport::RxHash>();
  if (conf.rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ ||
      (conf.rx_hash_fields_mask & ~transport::kRxHashFields) != 0) {
    return EOPNOTSUPP;
  }
  if (conf.rx_hash_key_len != hash->key.size() || conf.rx_hash_key == nullptr) {
    return EINVAL;
  }
  // Only one header of each kind may be hashed (as in the kernel's mlx5).
  constexpr uint64_t kIpv4 =
      transport::kRxHashSourceIpv4 | transport::kRxHashDestinationIpv4;
  constexpr uint64_t kIpv6 =
      transport::kRxHashSourceIpv6 | transport::kRxHashDestinationIpv6;
  constexpr uint64_t kTcp =
      transport::kRxHashSourcePortTcp | transport::kRxHashDestinationPortTcp;
  constexpr uint64_t kUdp =
      transport::kRxHashSourcePortUdp | transport::kRxHashDestinationPortUdp;
  const auto has = [&conf](uint64_t fields) {
    return (conf.rx_hash_fields_mask & fields) != 0;
  };
  if ((has(kIpv4) && has(kIpv6)) || (has(kTcp) && has(kUdp))) return EINVAL;
  std::memcpy(hash->key.data(), conf.rx_hash_key, hash->key.size());
  hash->fields = conf.rx_hash_fields_mask;
  for (const Wq* wq : table.queues) {
    hash->table.push_back(wq->queue->transport());
  }
  *out = std::move(hash);
  return 0;
}

}  // namespace verbs_api
