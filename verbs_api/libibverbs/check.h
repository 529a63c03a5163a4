// The functions in the function tables of a context that is checked (`rxe-user
// run --check`): each tells the checker (verbs_api/lint) and calls the function
// of trace.h, which records if the process is recorded. Without a check none of
// them runs.
#ifndef VERBS_API_LIBIBVERBS_CHECK_H_
#define VERBS_API_LIBIBVERBS_CHECK_H_

#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/lint/checker.h"

namespace verbs_api {

void CheckOps(ibv_context_ops* ops);
void CheckCqEx(Cq* cq);
void CheckQpEx(ibv_qp_ex* qp);

// --- Called by functions that are in no table, if the process is checked.

// A thread is about to wait for an event of `channel`.
void CheckWait(Channel* channel);
// A region has been deregistered.
void CheckDeregistered(const Mr& mr);
// As WaitForAcks, but gives up after a second. Returns the number of missing
// acknowledgements.
uint32_t MissingAcks(pthread_mutex_t* mutex, pthread_cond_t* cond,
                     const uint32_t* completed, uint32_t taken);

// The name of a queue pair for the checker.
inline lint::QpKey CheckedKey(const Qp& qp) {
  return {&qp.owner->device->engine(), qp.base->qp_num};
}

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_CHECK_H_
