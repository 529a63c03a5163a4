// ibv_post_send(3), ibv_post_recv(3), ibv_post_srq_recv(3).
#include "transport/qp/qp_type.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"
#include "wire/headers.h"

namespace verbs_api {
namespace {

// Converts a request. Returns 0, or EINVAL for a request that the transport
// cannot express. The result points into `*sges`.
int ToSendRequest(const Qp& qp, const ibv_send_wr& wr, SgeCopy* sges,
                  transport::SendRequest* request) {
  if (const int error = sges->Read(wr.sg_list, ReadOnce(wr.num_sge))) {
    return error;
  }
  request->wr_id = wr.wr_id;
  request->flags = wr.send_flags;
  request->sges = sges->sges();
  const int opcode = Raw(wr.opcode);
  switch (opcode) {
    case IBV_WR_SEND_WITH_IMM:
      request->imm_be = wr.imm_data;
      break;
    case IBV_WR_SEND:
      break;
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_LOCAL_INV:
      request->invalidate_rkey = wr.invalidate_rkey;
      break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      request->imm_be = wr.imm_data;
      [[fallthrough]];
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_WRITE:
      request->remote_addr = wr.wr.rdma.remote_addr;
      request->rkey = wr.wr.rdma.rkey;
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      request->remote_addr = wr.wr.atomic.remote_addr;
      request->rkey = wr.wr.atomic.rkey;
      request->compare_add = wr.wr.atomic.compare_add;
      request->swap = wr.wr.atomic.swap;
      break;
    case IBV_WR_BIND_MW:
      return ToBindRequest(qp, wr.bind_mw.mw, wr.bind_mw.rkey,
                           wr.bind_mw.bind_info, request);
    case IBV_WR_TSO: {
      const uint16_t bytes = ReadOnce(wr.tso.hdr_sz);
      const auto* header = static_cast<const uint8_t*>(wr.tso.hdr);
      if (bytes > 0 && header == nullptr) return EINVAL;
      request->tso_header = {header, bytes};
      request->tso_mss = wr.tso.mss;
      break;
    }
    default:
      return EINVAL;
  }
  request->opcode = static_cast<transport::SendOpcode>(opcode);
  const transport::QpTypeTraits& traits = transport::TraitsOf(qp.pair->type());
  if (traits.target == transport::SendTarget::kSrq) {
    request->remote_srqn = wr.qp_type.xrc.remote_srqn;
  } else if (traits.target == transport::SendTarget::kAddress) {
    // If the opcode is not offered, the union does not hold an address handle.
    if (!traits.Offers(request->opcode)) return EINVAL;
    const Ah* const ah = FindAddress(qp, wr.wr.ud.ah);
    if (ah == nullptr) return EINVAL;
    request->ah = &ah->av;
    request->remote_qpn = wr.wr.ud.remote_qpn & wire::kQpnMask;
    request->remote_qkey = wr.wr.ud.remote_qkey;
  }
  return 0;
}

}  // namespace

// Programs also read `*bad` after success, so success must leave it unchanged.
int PostSend(ibv_qp* ibv, ibv_send_wr* wr, ibv_send_wr** bad) {
  const int failed = PostCall([&]() -> int {
    Qp* qp = Find(ibv);
    if (qp == nullptr) return NotFoundErrno(ibv);
    SgeCopy sges;
    rxe_user::QueuePair::Posting posting(*qp->pair);
    for (; wr != nullptr; wr = wr->next) {
      transport::SendRequest request;
      int error = ToSendRequest(*qp, *wr, &sges, &request);
      if (error != 0) {
        return Because(error, "wr: num_sge, sg_list, opcode or address handle");
      }
      error = posting.Send(request);
      if (error != 0) return Because(error, posting.WhySendRefused(request));
      if (request.opcode == transport::SendOpcode::kBindMw) {
        ShowBoundKey(wr->bind_mw.mw, request.rkey);
      }
    }
    return 0;
  });
  if (failed != 0 && bad != nullptr) *bad = wr;
  return failed;
}

int PostRecv(ibv_qp* ibv, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return PostCall([&]() -> int {
    Qp* qp = Find(ibv);
    if (qp == nullptr) {
      if (bad != nullptr) *bad = wr;
      return NotFoundErrno(ibv);
    }
    rxe_user::QueuePair::Posting posting(*qp->pair);
    return PostReceives(&posting, wr, bad);
  });
}

int PostSrqRecv(ibv_srq* ibv, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return PostCall([&]() -> int {
    Srq* srq = Find(ibv);
    if (srq == nullptr) {
      if (bad != nullptr) *bad = wr;
      return NotFoundErrno(ibv);
    }
    rxe_user::SharedReceiveQueue::Posting posting(*srq->queue);
    return PostReceives(&posting, wr, bad);
  });
}

}  // namespace verbs_api
