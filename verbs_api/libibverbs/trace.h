// The functions in the function tables of a context that is recorded (`rxe-user
// run --trace`): each records and calls the usual function. Without a recording
// none of them runs.
#ifndef VERBS_API_LIBIBVERBS_TRACE_H_
#define VERBS_API_LIBIBVERBS_TRACE_H_

#include "rxe_user/observe/process_files.h"
#include "verbs_api/libibverbs/abi.h"

namespace verbs_api {

// The number of requests before `bad`; all of them if there was no error.
template <typename Wr>
size_t Accepted(const Wr* wr, const Wr* bad, int error) {
  size_t count = 0;
  for (; wr != nullptr && (error == 0 || wr != bad); wr = wr->next) ++count;
  return count;
}

void TraceOps(ibv_context_ops* ops);
void TraceCqEx(Cq* cq);
// These record if the process is recorded; otherwise they only make the usual
// call.
int TracedPostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int TracedPostRecv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
int TracedPollCq(ibv_cq* cq, int count, ibv_wc* wc);
int TracedReqNotifyCq(ibv_cq* cq, int solicited_only);
int TracedStartPoll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr);
int TracedNextPoll(ibv_cq_ex* cq);
int TracedWrComplete(ibv_qp_ex* qp);

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_TRACE_H_
