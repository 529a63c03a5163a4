// What stands in the function tables of a context that is recorded (`rxe-user
// run --trace`): each function records and calls the usual one. Without a
// recording nothing here runs.
#ifndef VERBS_API_LIBIBVERBS_TRACE_H_
#define VERBS_API_LIBIBVERBS_TRACE_H_

#include "rxe_user/observe/process_files.h"
#include "verbs_api/libibverbs/abi.h"

namespace verbs_api {

void TraceOps(ibv_context_ops* ops);
void TraceCqEx(Cq* cq);
int TracedWrComplete(ibv_qp_ex* qp);

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_TRACE_H_
