// Iterates over completions: ibv_start_poll and related functions
// (ibv_create_cq_ex(3)).
#ifndef VERBS_API_LIBIBVERBS_CQ_EX_H_
#define VERBS_API_LIBIBVERBS_CQ_EX_H_

#include "verbs_api/libibverbs/abi.h"

namespace verbs_api {

// Fills in every entry of the function table, however the queue was created.
void InitCqEx(Cq* cq);
int StartPoll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr);
int NextPoll(ibv_cq_ex* cq);

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_CQ_EX_H_
