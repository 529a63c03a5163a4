// Functions for the tables of a context whose posts may fail on command, or
// whose completions may arrive late (docs/faults-on-command.md).
#ifndef VERBS_API_LIBIBVERBS_FAULT_OPS_H_
#define VERBS_API_LIBIBVERBS_FAULT_OPS_H_

#include <infiniband/verbs.h>

namespace verbs_api {

// Replaces functions of `ops` by ones that apply fault rules and then call
// them, if faults are on. `ops` must have the same functions for all contexts
// of a process.
void FaultOps(ibv_context_ops* ops);
// The same for the work request builder of a queue pair.
void FaultQpEx(ibv_qp_ex* qp);

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_FAULT_OPS_H_
