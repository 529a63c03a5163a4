#include "verbs_api/libibverbs/fault_ops.h"

#include <mutex>

#include "rxe_user/faults/process_faults.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {
namespace {

// The functions without faults. Written once, before a context is usable.
ibv_context_ops before;

// Whether the call fails on command; *error is its errno then.
bool Fails(const char* call, int* error) {
  *error = FailOnCommand(call);
  if (*error == 0) return false;
  ReportRefusal(call, *error);
  Refuse(*error);
  return true;
}

int FaultedPostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  int error;
  if (!Fails("ibv_post_send", &error)) return before.post_send(qp, wr, bad);
  if (bad != nullptr) *bad = wr;
  return error;
}

int FaultedPostRecv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  int error;
  if (!Fails("ibv_post_recv", &error)) return before.post_recv(qp, wr, bad);
  if (bad != nullptr) *bad = wr;
  return error;
}

int FaultedPostSrqRecv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  int error;
  if (!Fails("ibv_post_srq_recv", &error)) {
    return before.post_srq_recv(srq, wr, bad);
  }
  if (bad != nullptr) *bad = wr;
  return error;
}

// What is late arrives right before the queue is armed, and so raises no event.
int FaultedReqNotifyCq(ibv_cq* ibv, int solicited_only) {
  if (Cq* const cq = Find(ibv)) cq->queue->RevealLate();
  return before.req_notify_cq(ibv, solicited_only);
}

}  // namespace

void FaultOps(ibv_context_ops* ops) {
  if (rxe_user::ProcessFaults::Find() == nullptr) return;
  // The same for each context, and other threads may use it.
  static std::once_flag once;
  std::call_once(once, [ops] { before = *ops; });
  ops->post_send = FaultedPostSend;
  ops->post_recv = FaultedPostRecv;
  ops->post_srq_recv = FaultedPostSrqRecv;
  ops->req_notify_cq = FaultedReqNotifyCq;
}

}  // namespace verbs_api
