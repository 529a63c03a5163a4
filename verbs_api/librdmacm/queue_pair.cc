// rdma_create_qp(3), rdma_create_srq(3) and the destroy functions, with the
// protection domain and the completion queues that the application does not
// supply.
#include "verbs_api/librdmacm/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "verbs_api/librdmacm/devices.h"

namespace librdmacm {
namespace {

// Creates a completion queue with a channel. The context is the id, which
// rdma_get_send_comp expects.
int CreateCq(Id& id, uint32_t entries, ibv_comp_channel** channel,
             ibv_cq** cq) {
  *channel = ibv_create_comp_channel(id.part.verbs);
  if (*channel == nullptr) return errno;
  *cq = ibv_create_cq(id.part.verbs, static_cast<int>(std::max(entries, 1u)),
                      &id.part, *channel, 0);
  if (*cq != nullptr) return 0;
  const int error = errno;
  ibv_destroy_comp_channel(*channel);
  *channel = nullptr;
  return error;
}

void DestroyCq(ibv_comp_channel** channel, ibv_cq** cq) {
  if (*cq != nullptr) ibv_destroy_cq(*cq);
  if (*channel != nullptr) ibv_destroy_comp_channel(*channel);
  *cq = nullptr;
  *channel = nullptr;
}

void DestroySendCq(Id& id) {
  if (id.owns_send_cq) DestroyCq(&id.part.send_cq_channel, &id.part.send_cq);
  id.owns_send_cq = false;
}

void DestroyRecvCq(Id& id) {
  if (id.owns_recv_cq) DestroyCq(&id.part.recv_cq_channel, &id.part.recv_cq);
  id.owns_recv_cq = false;
}

// Destroys the completion queues of the queue pair.
void DestroyCqs(Id& id) {
  DestroySendCq(id);
  if (!id.srq_has_recv_cq) DestroyRecvCq(id);
}

int CreateRecvCq(Id& id, uint32_t entries) {
  const int error =
      CreateCq(id, entries, &id.part.recv_cq_channel, &id.part.recv_cq);
  if (error == 0) id.owns_recv_cq = true;
  return error;
}

// Creates the completion queues that neither `*attr` nor the id has. An XRC
// initiator only needs one for sends; an XRC target needs none, because its
// SRQs have them.
int CreateCqs(Id& id, ibv_qp_init_attr_ex* attr) {
  const bool sends = attr->qp_type != IBV_QPT_XRC_RECV;
  const bool receives = sends && attr->qp_type != IBV_QPT_XRC_SEND;
  if (sends && attr->send_cq == nullptr && id.part.send_cq == nullptr) {
    if (const int error =
            CreateCq(id, attr->cap.max_send_wr, &id.part.send_cq_channel,
                     &id.part.send_cq)) {
      return error;
    }
    id.owns_send_cq = true;
  }
  if (receives && attr->recv_cq == nullptr && id.part.recv_cq == nullptr) {
    if (const int error = CreateRecvCq(id, attr->cap.max_recv_wr)) return error;
  }
  if (attr->send_cq == nullptr) attr->send_cq = id.part.send_cq;
  if (attr->recv_cq == nullptr) attr->recv_cq = id.part.recv_cq;
  return 0;
}

// Moves a queue pair for connections to INIT, so that receives can be posted,
// and one for datagrams to RTS.
int Prepare(Id& id, ibv_qp* qp) {
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    if (const int error = MoveTo(id, qp, state)) return error;
    if (!id.is_datagram()) break;
  }
  return 0;
}

// Chooses the protection domain; `wanted` may be null.
int ChoosePd(Id& id, ibv_pd* wanted, ibv_pd** pd) {
  if (id.part.verbs == nullptr) return EINVAL;  // not bound to a device
  if (wanted != nullptr) {
    *pd = wanted;
    return wanted->context == id.part.verbs ? 0 : EINVAL;
  }
  *pd = id.part.pd != nullptr ? id.part.pd : DefaultPd(id.part.verbs);
  return *pd != nullptr ? 0 : errno;
}

int ChooseXrcd(Id& id, ibv_qp_init_attr_ex* attr) {
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0) attr->xrcd = nullptr;
  attr->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
  if (attr->xrcd == nullptr) attr->xrcd = DefaultXrcd(id.part.verbs);
  return attr->xrcd != nullptr ? 0 : errno;
}

// Fills in XRC domain and completion queue of an XRC SRQ if the application
// gave none.
int CompleteXrcSrq(Id& id, ibv_srq_init_attr_ex* attr) {
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) == 0) attr->xrcd = nullptr;
  if (attr->xrcd == nullptr) attr->xrcd = DefaultXrcd(id.part.verbs);
  if (attr->xrcd == nullptr) return errno;
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0) attr->cq = nullptr;
  if (attr->cq == nullptr && id.part.recv_cq == nullptr) {
    if (const int error = CreateRecvCq(id, attr->attr.max_wr)) return error;
  }
  if (attr->cq == nullptr) attr->cq = id.part.recv_cq;
  attr->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  return 0;
}

int CreateQpEx(Id& id, ibv_qp_init_attr_ex* attr) {
  if (attr == nullptr || id.part.qp != nullptr) return EINVAL;
  const bool has_pd = (attr->comp_mask & IBV_QP_INIT_ATTR_PD) != 0;
  ibv_pd* pd = nullptr;
  if (const int error = ChoosePd(id, has_pd ? attr->pd : nullptr, &pd)) {
    return error;
  }
  attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
  attr->pd = pd;
  // Restores the caller's attributes, so that it may retry.
  absl::Cleanup undo = [&id, attr, send_cq = attr->send_cq,
                        recv_cq = attr->recv_cq] {
    attr->send_cq = send_cq;
    attr->recv_cq = recv_cq;
    DestroyCqs(id);
  };
  if (const int error = CreateCqs(id, attr)) return error;
  if (attr->qp_type == IBV_QPT_XRC_RECV) {
    if (const int error = ChooseXrcd(id, attr)) return error;
  } else if (attr->srq == nullptr) {
    attr->srq = id.part.srq;
  }
  // A larger limit than requested is allowed. Other devices place inline data
  // where the SGEs of a request would be, and programs that request none
  // (rdma_xclient) send some.
  attr->cap.max_inline_data = std::max<uint32_t>(
      attr->cap.max_inline_data,
      std::max(attr->cap.max_send_sge, 1u) * sizeof(ibv_sge));
  ibv_qp* const qp = ibv_create_qp_ex(id.part.verbs, attr);
  if (qp == nullptr) return errno;
  if (const int error = Prepare(id, qp)) {
    ibv_destroy_qp(qp);
    return error;
  }
  std::move(undo).Cancel();
  id.part.pd = pd;
  id.part.qp = qp;
  return 0;
}

int CreateSrqEx(Id& id, ibv_srq_init_attr_ex* attr) {
  if (attr == nullptr || id.part.srq != nullptr) return EINVAL;
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0) return EINVAL;
  const bool has_pd = (attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) != 0;
  ibv_pd* pd = nullptr;
  if (const int error = ChoosePd(id, has_pd ? attr->pd : nullptr, &pd)) {
    return error;
  }
  // Restores the caller's attributes, so that it may retry.
  absl::Cleanup restore = [attr, comp_mask = attr->comp_mask, cq = attr->cq] {
    attr->comp_mask = comp_mask;
    attr->cq = cq;
  };
  attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
  attr->pd = pd;
  const bool is_xrc = attr->srq_type == IBV_SRQT_XRC;
  int error = is_xrc ? CompleteXrcSrq(id, attr) : 0;
  ibv_srq* const srq =
      error == 0 ? ibv_create_srq_ex(id.part.verbs, attr) : nullptr;
  if (srq == nullptr) {
    if (error == 0) error = errno;
    if (id.part.qp == nullptr) DestroyRecvCq(id);
    return error;
  }
  std::move(restore).Cancel();
  id.srq_has_recv_cq = is_xrc && attr->cq == id.part.recv_cq;
  id.part.pd = pd;
  id.part.srq = srq;
  return 0;
}

}  // namespace

int CreateQp(Id& id, ibv_pd* pd, ibv_qp_init_attr* attr) {
  if (attr == nullptr) return EINVAL;
  ibv_qp_init_attr_ex extended = {};
  // The extended structure begins with the members of the plain one.
  static_assert(offsetof(ibv_qp_init_attr_ex, sq_sig_all) ==
                offsetof(ibv_qp_init_attr, sq_sig_all));
  constexpr size_t kCommon =
      offsetof(ibv_qp_init_attr, sq_sig_all) + sizeof(attr->sq_sig_all);
  std::memcpy(static_cast<void*>(&extended), attr, kCommon);
  extended.comp_mask = IBV_QP_INIT_ATTR_PD;
  extended.pd = pd;
  const int error = CreateQpEx(id, &extended);
  if (error == 0) std::memcpy(static_cast<void*>(attr), &extended, kCommon);
  return error;
}

CM_EXPORT int rdma_create_qp(rdma_cm_id* pointer, ibv_pd* pd,
                             ibv_qp_init_attr* attr) {
  return IdCall(pointer, [&](Id& id) { return CreateQp(id, pd, attr); });
}

CM_EXPORT int rdma_create_qp_ex(rdma_cm_id* pointer,
                                ibv_qp_init_attr_ex* attr) {
  return IdCall(pointer, [&](Id& id) { return CreateQpEx(id, attr); });
}

CM_EXPORT void rdma_destroy_qp(rdma_cm_id* pointer) {
  IdCall(pointer, [](Id& id) -> int {
    if (id.part.qp == nullptr) return EINVAL;
    DetachAll(id);
    ibv_destroy_qp(id.part.qp);
    id.part.qp = nullptr;
    DestroyCqs(id);
    return 0;
  });
}

CM_EXPORT int rdma_create_srq_ex(rdma_cm_id* pointer,
                                 ibv_srq_init_attr_ex* attr) {
  return IdCall(pointer, [&](Id& id) { return CreateSrqEx(id, attr); });
}

CM_EXPORT int rdma_create_srq(rdma_cm_id* pointer, ibv_pd* pd,
                              ibv_srq_init_attr* attr) {
  return IdCall(pointer, [&](Id& id) -> int {
    if (attr == nullptr) return EINVAL;
    ibv_srq_init_attr_ex extended = {};
    extended.srq_context = attr->srq_context;
    extended.attr = attr->attr;
    extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    extended.srq_type =
        id.part.qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
    extended.pd = pd;
    const int error = CreateSrqEx(id, &extended);
    if (error == 0) attr->attr = extended.attr;
    return error;
  });
}

CM_EXPORT void rdma_destroy_srq(rdma_cm_id* pointer) {
  IdCall(pointer, [](Id& id) -> int {
    if (id.part.srq == nullptr) return EINVAL;
    ibv_destroy_srq(id.part.srq);
    id.part.srq = nullptr;
    if (id.srq_has_recv_cq) {
      id.srq_has_recv_cq = false;
      DestroyRecvCq(id);
    }
    return 0;
  });
}

}  // namespace librdmacm
