// What stands in the function tables of a context whose posts may fail on
// command, or whose completions may come late (docs/faults-on-command.md).
#ifndef VERBS_API_LIBIBVERBS_FAULT_OPS_H_
#define VERBS_API_LIBIBVERBS_FAULT_OPS_H_

#include <infiniband/verbs.h>

namespace verbs_api {

// Puts functions before those of `ops`, if faults are on. The tables of
// all contexts of a process have the same functions before.
void FaultOps(ibv_context_ops* ops);
// The same for the work request builder of a queue pair.
void FaultQpEx(ibv_qp_ex* qp);

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_FAULT_OPS_H_
