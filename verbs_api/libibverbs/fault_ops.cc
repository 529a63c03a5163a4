#include "verbs_api/libibverbs/fault_ops.h"

#include <cstdint>
#include <mutex>
#include <new>
#include <span>
#include <vector>

#include "rxe_user/faults/process_faults.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"
#include "verbs_api/libibverbs/work_builder.h"

namespace verbs_api {
namespace {

// The functions without faults. Written once, before a context can be used.
ibv_context_ops before;

// Whether the call fails on command; then *error is its errno, and *bad is
// `wr`, the first request of a post.
template <typename Wr>
bool Fails(const char* call, Wr* wr, Wr** bad, int* error) {
  *error = wr != nullptr ? FailOnCommand(call, wr->wr_id) : FailOnCommand(call);
  if (*error == 0) return false;
  ReportRefusal(call, *error);
  Refuse(*error);
  if (bad != nullptr) *bad = wr;
  return true;
}

using transport::faults::PostedRequest;

// Whether the request sends a message.
bool SendsMessage(transport::SendOpcode opcode) {
  return transport::GetSendOperation(opcode).kind !=
         transport::SendKind::kLocal;
}

// The requests of a post that send messages.
class Requests {
 public:
  void Add(const PostedRequest& request) {
    try {
      if (unknown_ == 0) return known_.push_back(request);
    } catch (const std::bad_alloc&) {
      // Without memory, the request is unknown, and no rule finds it.
    }
    ++unknown_;
  }
  size_t count() const { return known_.size() + unknown_; }
  void Tell(rxe_user::ProcessFaults& faults, uint32_t qpn) const {
    faults.OnPosted(qpn, known_, unknown_);
  }

 private:
  std::vector<PostedRequest> known_;
  size_t unknown_ = 0;  // behind these
};

int FaultedPostSend(ibv_qp* ibv, ibv_send_wr* wr, ibv_send_wr** bad) {
  int error;
  if (Fails("ibv_post_send", wr, bad, &error)) return error;
  Qp* const qp = Find(ibv);
  if (qp == nullptr) return before.post_send(ibv, wr, bad);
  rxe_user::ProcessFaults& faults = *rxe_user::ProcessFaults::Find();
  const uint32_t qpn = qp->pair->qpn();
  // Store the requests first: their packets may leave before the call returns.
  Requests requests;
  const auto sends = [](const ibv_send_wr& one) {
    return SendsMessage(static_cast<transport::SendOpcode>(Raw(one.opcode)));
  };
  for (const ibv_send_wr* one = wr; one != nullptr; one = one->next) {
    if (!sends(*one)) continue;
    PostedRequest request = {.wr_id = one->wr_id};
    if (one->opcode == IBV_WR_RDMA_READ && one->sg_list != nullptr &&
        one->num_sge <= transport::kMaxSge) {  // else it is refused
      for (int i = 0; i < one->num_sge; ++i) {
        request.read_bytes += one->sg_list[i].length;
      }
    }
    requests.Add(request);
  }
  requests.Tell(faults, qpn);
  ibv_send_wr* refused = nullptr;
  error = before.post_send(ibv, wr, &refused);
  if (error == 0) return 0;
  if (bad != nullptr) *bad = refused;
  size_t count = 0;
  for (const ibv_send_wr* one = refused; one != nullptr; one = one->next) {
    if (sends(*one)) ++count;
  }
  faults.OnPostRefused(qpn, count);
  return error;
}

int FaultedPostRecv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  int error;
  if (Fails("ibv_post_recv", wr, bad, &error)) return error;
  return before.post_recv(qp, wr, bad);
}

int FaultedPostSrqRecv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  int error;
  if (Fails("ibv_post_srq_recv", wr, bad, &error)) return error;
  return before.post_srq_recv(srq, wr, bad);
}

// The function without faults. Written once, as above.
int (*wr_complete_before)(ibv_qp_ex*) = nullptr;

int FaultedWrComplete(ibv_qp_ex* ibv) {
  ExtendedQp* const qp = Self(ibv);
  if (!qp->builder.active) return wr_complete_before(ibv);
  rxe_user::ProcessFaults& faults = *rxe_user::ProcessFaults::Find();
  const uint32_t qpn = qp->pair->qpn();
  Requests requests;
  const WorkBuilder& builder = qp->builder;
  for (size_t i = 0; i < builder.requests.size(); ++i) {
    const transport::SendRequest& one = builder.requests[i];
    if (!SendsMessage(one.opcode)) continue;
    PostedRequest request = {.wr_id = one.wr_id};
    if (transport::GetSendOperation(one.opcode).kind ==
        transport::SendKind::kRead) {
      const WorkBuilder::Data& data = builder.data[i];
      request.read_bytes = transport::TotalLength(
          std::span(builder.sges).subspan(data.first_sge, data.num_sge));
    }
    requests.Add(request);
  }
  requests.Tell(faults, qpn);
  const int error = wr_complete_before(ibv);
  if (error != 0) faults.OnPostRefused(qpn, requests.count());
  return error;
}

// Late completions arrive right before the queue is armed, so they raise no
// event.
int FaultedReqNotifyCq(ibv_cq* ibv, int solicited_only) {
  if (Cq* const cq = Find(ibv)) cq->queue->RevealLate();
  return before.req_notify_cq(ibv, solicited_only);
}

}  // namespace

void FaultOps(ibv_context_ops* ops) {
  if (rxe_user::ProcessFaults::Find() == nullptr) return;
  // All contexts have the same functions, and other threads may be reading
  // `before`.
  static std::once_flag once;
  std::call_once(once, [ops] { before = *ops; });
  ops->post_send = FaultedPostSend;
  ops->post_recv = FaultedPostRecv;
  ops->post_srq_recv = FaultedPostSrqRecv;
  ops->req_notify_cq = FaultedReqNotifyCq;
}

void FaultQpEx(ibv_qp_ex* qp) {
  if (rxe_user::ProcessFaults::Find() == nullptr) return;
  static std::once_flag once;
  std::call_once(once, [qp] { wr_complete_before = qp->wr_complete; });
  qp->wr_complete = FaultedWrComplete;
}

}  // namespace verbs_api
