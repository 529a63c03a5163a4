// Queue pairs: ibv_create_qp(3), ibv_modify_qp(3), ibv_query_qp(3).
#include <algorithm>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "rxe_user/objects/limits.h"
#include "transport/qp/qp_type.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/check.h"
#include "verbs_api/libibverbs/lookup.h"
#include "verbs_api/libibverbs/work_builder.h"

namespace verbs_api {
namespace {

// The ibv_wr_* operations of a queue pair.

uint64_t SendOps(const transport::QpTypeTraits& traits) {
  return (traits.offered & (IBV_QP_EX_WITH_TSO * 2 - 1)) |
         (traits.offered >> kPlacementShift & kPlacementOps);
}

// A UD queue pair never receives its own multicast datagrams.
uint32_t CreateFlags(const transport::QpTypeTraits& traits) {
  return traits.joins_groups ? uint32_t{IBV_QP_CREATE_BLOCK_SELF_MCAST_LB} : 0u;
}

// Returns 0 for a supported type, or an errno value.
int CheckType(const ibv_qp_type& type) {
  if (transport::FindVerbsTraits(static_cast<uint32_t>(Raw(type))) != nullptr) {
    return 0;
  }
  return Raw(type) == IBV_QPT_DRIVER ? EOPNOTSUPP : EINVAL;
}

std::unique_ptr<Qp> NewQp(bool extended, uint64_t send_ops) {
  if (extended) return std::make_unique<ExtendedQp>(send_ops);
  return std::make_unique<PlainQp>();
}

// Publishes `qp`, which is complete except for the members that the application
// sees (other than its number and type). On failure the caller keeps it.
Qp* Show(std::unique_ptr<Qp>& qp, Context* context, void* qp_context,
         ibv_qp_type type) {
  ibv_qp* const base = qp->base;
  base->context = &context->context;
  base->qp_context = qp_context;
  base->qp_num = qp->pair->qpn();
  CallArgument("qp_type", static_cast<uint32_t>(Raw(type)));
  CallArgument("qp_num", base->qp_num);
  base->state = static_cast<ibv_qp_state>(qp->pair->Query().state);
  base->qp_type = type;
  qp->owner = context;
  {
    std::lock_guard<std::mutex> lock(context->mutex);
    AddQp(context, qp.get());
    absl::Cleanup remove = [&] { RemoveQp(context, qp.get()); };
    base->handle = Handles<Qp>().Add(qp.get());
    if (base->handle == 0) return Fail(ENOMEM);
    std::move(remove).Cancel();
    ++context->objects;
  }
  pthread_mutex_init(&base->mutex, nullptr);
  pthread_cond_init(&base->cond, nullptr);
  return qp.release();
}

// Finds the type of a queue pair with these attributes. Returns 0 or an errno
// value.
int FindType(const ibv_qp_type& type, DcRole dc, transport::QpType* found) {
  if (dc != DcRole::kNone) {
    if (Raw(type) != IBV_QPT_DRIVER) return EINVAL;
    *found = dc == DcRole::kInitiator ? transport::QpType::kDci
                                      : transport::QpType::kDct;
    return 0;
  }
  if (const int error = CheckType(type)) return error;
  *found = static_cast<transport::QpType>(type);
  return 0;
}

// Properties that a queue pair cannot get from ibv_create_qp.
struct Extras {
  bool extended = false;  // it has ibv_wr_*
  uint64_t send_ops = 0;
  uint32_t max_tso_header = 0;
  Mlx5QpAttributes mlx5;
};

// The capacity to ask for. `receives`: the queue pair has its own receive
// queue.
transport::QpCapacity CapacityFor(const ibv_qp_cap& cap, const Extras& extras,
                                  bool requests, bool receives) {
  transport::QpCapacity out;
  if (requests) {
    out.max_send_wr = cap.max_send_wr;
    out.max_send_sge = std::max(cap.max_send_sge, 1u);
    out.max_inline_data = cap.max_inline_data;
  }
  // The layout of a memory key is inline data. A card has space for this many
  // entries in every work request, and for one more where 4 bytes are missing
  // (mlx5dv_wr_post(3)).
  if (extras.mlx5.configures_mkeys) {
    constexpr uint32_t kEntry = transport::kMkeyEntrySize;
    const uint32_t entries = (out.max_inline_data + 4) / kEntry;
    out.max_inline_data = std::max(
        {out.max_inline_data, kMinMkeyEntries * kEntry, entries * kEntry});
  }
  // The data of ibv_wr_atomic_write(3) is always inline.
  if ((extras.send_ops & IBV_QP_EX_WITH_ATOMIC_WRITE) != 0) {
    out.max_inline_data = std::max(out.max_inline_data, transport::kAtomicSize);
  }
  if (receives) {
    out.max_recv_wr = cap.max_recv_wr;
    out.max_recv_sge = std::max(cap.max_recv_sge, 1u);
  }
  return out;
}

ibv_qp_cap ToCap(const transport::QpCapacity& capacity) {
  return {.max_send_wr = capacity.max_send_wr,
          .max_recv_wr = capacity.max_recv_wr,
          .max_send_sge = capacity.max_send_sge,
          .max_recv_sge = capacity.max_recv_sge,
          .max_inline_data = capacity.max_inline_data};
}

Qp* Create(ibv_pd* ibv_pd, const ibv_qp_init_attr& attr, ibv_qp_cap* cap,
           const Extras& extras) {
  Pd* pd = Find(ibv_pd);
  if (pd == nullptr) return Fail(EINVAL);
  transport::QpType type;
  if (const int error = FindType(attr.qp_type, extras.mlx5.dc, &type)) {
    return Fail(error);
  }
  // An XRC target has an XRC domain instead of a PD; a DC initiator receives
  // nothing.
  if (type == transport::QpType::kXrcTarget) return Fail(EINVAL);
  if (type == transport::QpType::kDci &&
      (attr.cap.max_recv_wr != 0 || attr.cap.max_recv_sge != 0)) {
    return Fail(EINVAL);
  }
  const transport::QpTypeTraits& traits = transport::TraitsOf(type);
  const bool receives =
      traits.receives_from != transport::ReceivesFrom::kNothing;
  // A DC target sends nothing.
  Cq* send_cq = Find(traits.requests ? attr.send_cq : attr.recv_cq);
  Cq* recv_cq = receives ? Find(attr.recv_cq) : send_cq;
  ibv_srq* const ibv_srq = receives ? attr.srq : nullptr;
  Srq* srq = Find(ibv_srq);
  Context* context = pd->owner;
  // The application may have overwritten the pointers in the objects.
  if (pd->context != &context->context || send_cq == nullptr ||
      recv_cq == nullptr || (ibv_srq != nullptr && srq == nullptr) ||
      send_cq->owner != context || recv_cq->owner != context ||
      (srq != nullptr && (srq->owner != context || srq->xrcd != nullptr))) {
    return Fail(EINVAL);
  }
  std::unique_ptr<Qp> qp = NewQp(extras.extended, extras.send_ops);
  ibv_qp* const base = qp->base;
  rxe_user::QueuePair::Config config;
  config.type = type;
  config.dct_access_key = extras.mlx5.access_key;
  config.dci_errored_streams = extras.mlx5.errored_streams;
  config.stops_at_data_errors = extras.mlx5.stops_at_data_errors;
  config.pd = pd->domain.get();
  config.send_cq = send_cq->queue.get();
  config.recv_cq = recv_cq->queue.get();
  config.srq = srq != nullptr ? srq->queue.get() : nullptr;
  config.max_tso_header = extras.max_tso_header;
  const transport::QpCapacity wanted = CapacityFor(
      attr.cap, extras, traits.requests, receives && srq == nullptr);
  config.capacity = wanted;
  config.signal_all = attr.sq_sig_all != 0;
  config.async = &context->async;
  config.element = base;
  config.account = &qp->account;
  if (const int error = rxe_user::QueuePair::Create(config, &qp->pair)) {
    return Fail(error);
  }
  base->pd = pd;
  base->send_cq = traits.requests ? attr.send_cq : nullptr;
  base->recv_cq = receives ? attr.recv_cq : nullptr;
  base->srq = ibv_srq;
  *cap = ToCap(config.capacity);
  Qp* const shown = Show(qp, context, attr.qp_context, attr.qp_type);
  lint::Checker* const checker = lint::Checker::Current();
  if (shown != nullptr && checker != nullptr) {
    checker->OnQpCreated(CheckedKey(*shown),
                         {.send_cq = traits.requests ? send_cq->queue->id() : 0,
                          .recv_cq = receives ? recv_cq->queue->id() : 0,
                          .srq = srq != nullptr ? srq->queue->id() : 0u,
                          .wanted_send = wanted.max_send_wr,
                          .wanted_recv = srq != nullptr ? srq->queue->max_wr()
                                                        : wanted.max_recv_wr,
                          .max_send = cap->max_send_wr,
                          .max_recv = cap->max_recv_wr});
  }
  return shown;
}

// Creates a queue pair that only receives, into the work queues of a table.
ibv_qp* CreateHashing(ibv_context* ibv, ibv_qp_init_attr_ex* attr) {
  RwqTable* table = Find(attr->rwq_ind_tbl);
  Pd* pd = Find(attr->pd);
  if (attr->qp_type != IBV_QPT_RAW_PACKET || table == nullptr ||
      pd == nullptr || pd->context != ibv || table->context != ibv ||
      attr->srq != nullptr || attr->cap.max_send_wr != 0) {
    return Fail(EINVAL);
  }
  rxe_user::QueuePair::Config config;
  config.type = transport::QpType::kRawPacket;
  config.pd = pd->domain.get();
  if (const int error = ToRxHash(*table, attr->rx_hash_conf, &config.rx_hash)) {
    return Fail(error);
  }
  std::unique_ptr<Qp> qp = NewQp(false, 0);
  ibv_qp* const base = qp->base;
  config.async = &pd->owner->async;
  config.element = base;
  config.account = &qp->account;
  if (const int error = rxe_user::QueuePair::Create(config, &qp->pair)) {
    return Fail(error);
  }
  base->pd = attr->pd;
  qp->table = table;
  attr->cap = {};
  if (Show(qp, pd->owner, attr->qp_context, attr->qp_type) == nullptr) {
    return nullptr;
  }
  ++table->users;
  return base;
}

// Creates a handle of the XRC target that `find` returns. `find` may fail.
template <typename Find>
ibv_qp* ShowTarget(Xrcd* xrcd, void* qp_context, Find&& find) {
  std::unique_ptr<Qp> qp = NewQp(false, 0);
  ibv_qp* const base = qp->base;
  if (const int error = find(&qp->pair)) return Fail(error);
  qp->pair->Listen({&xrcd->owner->async, base, &qp->account});
  absl::Cleanup stop = [&] { qp->pair->StopListening(&qp->account); };
  qp->xrcd = xrcd;
  if (Show(qp, xrcd->owner, qp_context, IBV_QPT_XRC_RECV) == nullptr) {
    return nullptr;
  }
  std::move(stop).Cancel();
  ++xrcd->users;
  return base;
}

ibv_qp* CreateTarget(ibv_context* ibv, ibv_qp_init_attr_ex* attr) {
  Xrcd* xrcd = Find(attr->xrcd);
  if (xrcd == nullptr || xrcd->context != ibv) return Fail(EINVAL);
  rxe_user::QueuePair::Config config;
  config.type = transport::QpType::kXrcTarget;
  config.xrc = xrcd->domain.get();
  attr->cap = {};
  return ShowTarget(xrcd, attr->qp_context, [&](auto* pair) {
    return rxe_user::QueuePair::Create(config, pair);
  });
}

void FromAddressVector(const transport::AddressVector& av, uint8_t port,
                       ibv_ah_attr* attr) {
  if (av.destination.is_unspecified()) return;  // never set
  std::memcpy(attr->grh.dgid.raw, av.destination.bytes.data(), 16);
  attr->grh.flow_label = av.flow_label;
  attr->grh.sgid_index = av.gid_index;
  attr->grh.hop_limit = av.hop_limit;
  attr->grh.traffic_class = av.traffic_class;
  attr->dlid = av.dlid;
  attr->sl = av.service_level;
  attr->is_global = 1;
  attr->port_num = port;
}

constexpr int kKnownMask = (IBV_QP_DEST_QPN << 1) - 1;

// Ignores attributes that only the other half of an RC queue pair has, as the
// kernel does: programs set up both ends of an XRC connection as if they were
// RC.
int WithoutOtherHalf(const transport::QpTypeTraits& traits, int mask) {
  if (!traits.responds) {
    mask &= ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  }
  if (!traits.requests) {
    mask &= ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
  }
  return mask;
}

// Checks the attributes in `mask`, and converts all. Returns 0, or an errno
// value after noting its reason (Because).
int ToAttributes(const Qp& qp, const ibv_qp_attr& attr, int mask,
                 transport::QpAttributes* out) {
  const auto has = [mask](int bit) { return (mask & bit) != 0; };
  if (has(IBV_QP_STATE)) {
    if (Raw(attr.qp_state) < IBV_QPS_RESET ||
        Raw(attr.qp_state) > IBV_QPS_ERR) {
      return Because(EINVAL, "IBV_QP_STATE: no such state");
    }
    out->state = static_cast<transport::QpState>(attr.qp_state);
  }
  if (has(IBV_QP_CUR_STATE)) {
    if (Raw(attr.cur_qp_state) < IBV_QPS_RESET ||
        Raw(attr.cur_qp_state) > IBV_QPS_ERR) {
      return Because(EINVAL, "IBV_QP_CUR_STATE: no such state");
    }
    out->current_state = static_cast<transport::QpState>(attr.cur_qp_state);
  }
  if (has(IBV_QP_PATH_MTU)) {
    out->path_mtu = MtuBytes(Raw(attr.path_mtu));
    if (out->path_mtu == 0) {
      return Because(EINVAL, "IBV_QP_PATH_MTU: not an enum ibv_mtu");
    }
  }
  if (has(IBV_QP_PORT) && attr.port_num != 1) {
    return Because(EINVAL, "IBV_QP_PORT: port_num is not 1");
  }
  if (has(IBV_QP_PKEY_INDEX) && attr.pkey_index != 0) {
    return Because(EINVAL, "IBV_QP_PKEY_INDEX: pkey_index is not 0");
  }
  if (has(IBV_QP_AV)) {
    // DC queue pairs have no peer of their own (mlx5dv_create_qp(3)).
    if (const int error =
            ToAddressVector(*qp.owner, attr.ah_attr, &out->av,
                            transport::TraitsOf(qp.pair->type()).av_is_peer)) {
      return Because(error,
                     "IBV_QP_AV: ah_attr needs is_global 1, a GID, port_num "
                     "1 and a sgid_index of the table");
    }
  }
  if (has(IBV_QP_ALT_PATH)) {
    if (attr.alt_port_num != 1 || attr.alt_pkey_index != 0) {
      return Because(EINVAL,
                     "IBV_QP_ALT_PATH: alt_port_num is not 1, or "
                     "alt_pkey_index not 0");
    }
    transport::AddressVector av;
    if (const int error = ToAddressVector(*qp.owner, attr.alt_ah_attr, &av)) {
      return Because(error, "IBV_QP_ALT_PATH: alt_ah_attr is not valid");
    }
    out->alt_av = std::make_shared<transport::AddressVector>(av);
  }
  if (has(IBV_QP_PATH_MIG_STATE) &&
      (Raw(attr.path_mig_state) < IBV_MIG_MIGRATED ||
       Raw(attr.path_mig_state) > IBV_MIG_ARMED)) {
    return Because(EINVAL, "IBV_QP_PATH_MIG_STATE: no such state");
  }
  if (has(IBV_QP_MAX_QP_RD_ATOMIC) &&
      attr.max_rd_atomic > rxe_user::kMaxRdAtomic) {
    return Because(EINVAL,
                   "IBV_QP_MAX_QP_RD_ATOMIC: more than max_qp_init_rd_atom");
  }
  if (has(IBV_QP_MAX_DEST_RD_ATOMIC) &&
      attr.max_dest_rd_atomic > rxe_user::kMaxRdAtomic) {
    return Because(EINVAL,
                   "IBV_QP_MAX_DEST_RD_ATOMIC: more than max_qp_rd_atom");
  }
  CopyQpAttributes(attr, out);
  // PSNs are truncated to 24 bits, as in the kernel.
  out->rq_psn = attr.rq_psn & 0xffffff;
  out->sq_psn = attr.sq_psn & 0xffffff;
  out->dest_qpn = attr.dest_qp_num & 0xffffff;
  out->access_flags = attr.qp_access_flags;
  out->path_mig_state = static_cast<uint8_t>(Raw(attr.path_mig_state));
  return 0;
}

}  // namespace

VERBS_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  return PointerCall([&]() -> ibv_qp* {
    if (attr == nullptr) return Fail(EINVAL);
    Qp* qp = Create(pd, *attr, &attr->cap, {});
    return qp == nullptr ? nullptr : qp->base;
  });
}

ibv_qp* CreateQpEx(ibv_context* ibv, ibv_qp_init_attr_ex* attr) {
  return CreateMlx5Qp(ibv, attr, {});
}

ibv_qp* CreateMlx5Qp(ibv_context* ibv, ibv_qp_init_attr_ex* attr,
                     const Mlx5QpAttributes& mlx5) {
  return PointerCall(
      [&]() -> ibv_qp* {
        if (attr == nullptr || Find(ibv) == nullptr) return Fail(EINVAL);
        constexpr uint32_t kSupported =
            IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
            IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_MAX_TSO_HEADER |
            IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
        constexpr uint32_t kKnown = (IBV_QP_INIT_ATTR_SEND_OPS_FLAGS << 1) - 1;
        if ((attr->comp_mask & ~kKnown) != 0) return Fail(EINVAL);
        transport::QpType type;
        if (const int error = FindType(attr->qp_type, mlx5.dc, &type)) {
          return Fail(error);
        }
        if (type == transport::QpType::kXrcTarget) {
          // A PD may be given and is ignored.
          return attr->comp_mask == IBV_QP_INIT_ATTR_XRCD ||
                         attr->comp_mask ==
                             (IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_PD)
                     ? CreateTarget(ibv, attr)
                     : Fail(EINVAL);
        }
        if ((attr->comp_mask & ~kSupported) != 0) return Fail(EOPNOTSUPP);
        const transport::QpTypeTraits& traits = transport::TraitsOf(type);
        if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 &&
            (attr->create_flags & ~CreateFlags(traits)) != 0) {
          return Fail(EOPNOTSUPP);
        }
        if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 ||
            Find(attr->pd) == nullptr || attr->pd->context != ibv) {
          return Fail(EINVAL);
        }
        constexpr uint32_t kHashing =
            IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
        if ((attr->comp_mask & kHashing) != 0) {
          // Both must be given, and no attributes of sending.
          return (attr->comp_mask & ~uint32_t{IBV_QP_INIT_ATTR_CREATE_FLAGS}) ==
                         (kHashing | IBV_QP_INIT_ATTR_PD)
                     ? CreateHashing(ibv, attr)
                     : Fail(EINVAL);
        }
        Extras extras = {.mlx5 = mlx5};
        if ((attr->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER) != 0) {
          extras.max_tso_header = attr->max_tso_header;
          if (extras.max_tso_header != 0 &&
              !traits.Offers(transport::SendOpcode::kTso)) {
            return Fail(EOPNOTSUPP);
          }
        }
        const bool has_ops =
            (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
        extras.extended = has_ops || mlx5.extended;
        if (has_ops) extras.send_ops = attr->send_ops_flags;
        if ((extras.send_ops & ~SendOps(traits)) != 0) return Fail(EOPNOTSUPP);
        if (mlx5.all_operations && extras.extended) {
          extras.send_ops |= SendOps(traits) & ~kPlacementOps;
        }
        // The extended structure begins with the members of the plain one.
        ibv_qp_init_attr plain;
        static_assert(offsetof(ibv_qp_init_attr_ex, sq_sig_all) ==
                      offsetof(ibv_qp_init_attr, sq_sig_all));
        std::memcpy(&plain, attr, sizeof(plain));
        Qp* qp = Create(attr->pd, plain, &attr->cap, extras);
        return qp == nullptr ? nullptr : qp->base;
      },
      "ibv_create_qp_ex");
}

ibv_qp* OpenQp(ibv_context* ibv, ibv_qp_open_attr* attr) {
  return PointerCall([&]() -> ibv_qp* {
    constexpr uint32_t kRequired =
        IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    if (attr == nullptr || attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED ||
        (attr->comp_mask & kRequired) != kRequired ||
        Raw(attr->qp_type) != IBV_QPT_XRC_RECV) {
      return Fail(EINVAL);
    }
    Xrcd* xrcd = Find(attr->xrcd);
    if (xrcd == nullptr || xrcd->context != ibv) return Fail(EINVAL);
    void* const qp_context = (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0
                                 ? attr->qp_context
                                 : nullptr;
    return ShowTarget(xrcd, qp_context, [&](auto* pair) {
      *pair = xrcd->domain->FindTarget(attr->qp_num);
      return *pair != nullptr ? 0 : EINVAL;
    });
  });
}

VERBS_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* ibv) {
  Qp* qp = Find(ibv);
  return qp != nullptr ? qp->extended() : nullptr;
}

VERBS_EXPORT int ibv_destroy_qp(ibv_qp* ibv) {
  return DestroyCall(ibv, [ibv](Qp* qp) -> int {
    // As in the kernel, it must first be detached from all groups.
    if (qp->pair != nullptr &&
        (qp->pair->AttachedToAny() || qp->pair->flows() > 0)) {
      return EBUSY;
    }
    Context* context = qp->owner;
    if (lint::Checker* const checker = lint::Checker::Current()) {
      checker->OnQpDestroyed(CheckedKey(*qp));
    }
    {
      std::lock_guard<std::mutex> lock(context->mutex);
      RemoveQp(context, qp);
    }
    if (qp->xrcd != nullptr && qp->pair != nullptr) {
      qp->pair->StopListening(&qp->account);
    }
    qp->pair.reset();
    const uint32_t events = context->async.Withdraw(&qp->account);
    WaitForAcks(&ibv->mutex, &ibv->cond, &ibv->events_completed, events);
    Handles<Qp>().Remove(ibv->handle);
    pthread_cond_destroy(&ibv->cond);
    pthread_mutex_destroy(&ibv->mutex);
    if (qp->xrcd != nullptr) --qp->xrcd->users;
    if (qp->table != nullptr) --qp->table->users;
    delete qp;
    Release(context);
    return 0;
  });
}

VERBS_EXPORT int ibv_modify_qp(ibv_qp* ibv, ibv_qp_attr* attr, int mask) {
  return ErrnoCall([&]() -> int {
    Qp* qp = Find(ibv);
    if (qp == nullptr || attr == nullptr) {
      return Because(EINVAL, "qp or attr: not a live object");
    }
    CallArgument("qp_num", qp->pair->qpn());
    CallArgument("attr_mask", static_cast<uint32_t>(mask));
    if ((mask & IBV_QP_STATE) != 0) {
      CallArgument("qp_state", static_cast<uint32_t>(Raw(attr->qp_state)));
    }
    mask = WithoutOtherHalf(transport::TraitsOf(qp->pair->type()), mask);
    if ((mask & IBV_QP_RATE_LIMIT) != 0) {
      return Because(EOPNOTSUPP, "IBV_QP_RATE_LIMIT: not offered");
    }
    if ((mask & ~kKnownMask) != 0 || (mask & IBV_QP_CAP) != 0) {
      return Because(EINVAL, "attr_mask: IBV_QP_CAP or unknown bits");
    }
    transport::QpAttributes out;
    if (const int error = ToAttributes(*qp, *attr, mask, &out)) return error;
    const auto has = [mask](int bit) { return (mask & bit) != 0; };
    const int error = qp->pair->Modify(out, static_cast<uint32_t>(mask));
    if (error != 0) {
      Because(error,
              qp->pair->WhyModifyRefused(out, static_cast<uint32_t>(mask)));
    }
    if (error == 0 && has(IBV_QP_STATE)) ibv->state = attr->qp_state;
    lint::Checker* const checker = lint::Checker::Current();
    if (error == 0 && checker != nullptr) {
      checker->OnQpModified(
          CheckedKey(*qp), {.to_reset = has(IBV_QP_STATE) &&
                                        out.state == transport::QpState::kReset,
                            .has_min_rnr_timer = has(IBV_QP_MIN_RNR_TIMER),
                            .has_timeout = has(IBV_QP_TIMEOUT),
                            .has_rnr_retry = has(IBV_QP_RNR_RETRY),
                            .min_rnr_timer = out.min_rnr_timer,
                            .timeout = out.timeout,
                            .rnr_retry = out.rnr_retry});
    }
    return error;
  });
}

VERBS_EXPORT int ibv_query_qp(ibv_qp* ibv, ibv_qp_attr* attr, int mask,
                              ibv_qp_init_attr* init) {
  return ErrnoCall([&]() -> int {
    Qp* qp = Find(ibv);
    if (qp == nullptr || attr == nullptr || init == nullptr) return EINVAL;
    const transport::QpAttributes in = qp->pair->Query();
    std::memset(attr, 0, sizeof(*attr));
    attr->qp_state = static_cast<ibv_qp_state>(in.state);
    attr->cur_qp_state = attr->qp_state;
    attr->path_mtu = MtuCode(in.path_mtu);
    attr->path_mig_state = static_cast<ibv_mig_state>(in.path_mig_state);
    attr->rq_psn = in.rq_psn;
    attr->sq_psn = in.sq_psn;
    attr->dest_qp_num = in.dest_qpn;
    attr->qp_access_flags = in.access_flags;
    attr->cap = ToCap(qp->pair->capacity());
    FromAddressVector(in.av, in.port_num, &attr->ah_attr);
    if (in.alt_av != nullptr) {
      FromAddressVector(*in.alt_av, in.alt_port_num, &attr->alt_ah_attr);
    }
    CopyQpAttributes(in, attr);
    attr->sq_draining = in.sq_draining ? 1 : 0;
    init->qp_context = ibv->qp_context;
    init->send_cq = ibv->send_cq;
    init->recv_cq = ibv->recv_cq;
    init->srq = ibv->srq;
    init->cap = attr->cap;
    init->qp_type = ibv->qp_type;
    init->sq_sig_all = qp->pair->signal_all() ? 1 : 0;
    if (mask & IBV_QP_STATE) ibv->state = attr->qp_state;
    return 0;
  });
}

VERBS_EXPORT int ibv_query_qp_data_in_order(ibv_qp* /*qp*/,
                                            ibv_wr_opcode /*op*/,
                                            uint32_t /*flags*/) {
  return 0;  // the only guarantee is that a message's last bytes are written
             // last
}

// The table's entry must not be null: the header would return an error without
// setting errno.
int ModifyQpRateLimit(ibv_qp* /*qp*/, ibv_qp_rate_limit_attr* /*attr*/) {
  return Refuse(EOPNOTSUPP);
}

// Enhanced connection establishment is negotiated between cards of one vendor,
// identified by its OUI. We have no OUI.
VERBS_EXPORT int ibv_query_ece(ibv_qp* /*qp*/, ibv_ece* /*ece*/) {
  return Refuse(EOPNOTSUPP);
}
VERBS_EXPORT int ibv_set_ece(ibv_qp* /*qp*/, ibv_ece* /*ece*/) {
  return Refuse(EOPNOTSUPP);
}

// RoCE has no LIDs (annex A16). `lid` is ignored, as by the kernel.
VERBS_EXPORT int ibv_attach_mcast(ibv_qp* ibv, const ibv_gid* gid,
                                  uint16_t /*lid*/) {
  return ErrnoCall([&]() -> int {
    Qp* qp = Find(ibv);
    if (qp == nullptr || gid == nullptr) return EINVAL;
    return qp->pair->AttachMulticast(wire::IpAddress::FromGid(gid->raw));
  });
}
VERBS_EXPORT int ibv_detach_mcast(ibv_qp* ibv, const ibv_gid* gid,
                                  uint16_t /*lid*/) {
  return ErrnoCall([&]() -> int {
    Qp* qp = Find(ibv);
    if (qp == nullptr || gid == nullptr) return EINVAL;
    return qp->pair->DetachMulticast(wire::IpAddress::FromGid(gid->raw));
  });
}

}  // namespace verbs_api
