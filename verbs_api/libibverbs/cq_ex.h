// The iterator over completions: ibv_start_poll and the functions around it,
// ibv_create_cq_ex(3).
#ifndef VERBS_API_LIBIBVERBS_CQ_EX_H_
#define VERBS_API_LIBIBVERBS_CQ_EX_H_

#include "verbs_api/libibverbs/abi.h"

namespace verbs_api {

// Fills the function table: every entry, whatever the queue was created with.
void InitCqEx(Cq* cq);
int StartPoll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr);
int NextPoll(ibv_cq_ex* cq);

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_CQ_EX_H_
