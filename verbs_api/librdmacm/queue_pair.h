// The queue pair of an id: attributes for each state, and the transitions.
#ifndef VERBS_API_LIBRDMACM_QUEUE_PAIR_H_
#define VERBS_API_LIBRDMACM_QUEUE_PAIR_H_

#include <infiniband/verbs.h>

#include <cstdint>

#include "verbs_api/librdmacm/id.h"

namespace librdmacm {

// The Q_Key of a datagram id: that of its port space.
uint32_t QkeyOf(const Id& id);

// The address of the peer. `id.mutex` is held.
ibv_ah_attr PathTo(const Id& id);

// rdma_init_qp_attr: the attributes for `attr->qp_state` (INIT, RTR, RTS).
// Overwrites the rest of `*attr`, and `*mask`. EINVAL for other states.
// `id.mutex` is held.
int QpAttributes(const Id& id, ibv_qp_attr* attr, int* mask);

// Moves the queue pair to the state, with those attributes. Returns 0 or an
// errno value.
int MoveTo(Id& id, ibv_qp* qp, ibv_qp_state state);

// Moves the connected queue pair of `id` through INIT and RTR to RTS. Takes
// `id.mutex`; `id.calls` is held. Returns 0 or the error of ibv_modify_qp.
// After ENOMEM the next call resumes.
int MakeReady(Id& id);
// Moves it to the state ERR, which flushes posted requests. Allowed in every
// state.
void MakeFailed(Id& id);

// rdma_create_qp; `id.calls` is held. Returns 0 or an errno value. Sets the
// members of `*attr` that ibv_create_qp sets.
int CreateQp(Id& id, ibv_pd* pd, ibv_qp_init_attr* attr);

// The READs and atomics that the id's device can respond to, and have
// outstanding, at a time.
struct ReadLimits {
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
};
ReadLimits LimitsOf(const Id& id);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_QUEUE_PAIR_H_
