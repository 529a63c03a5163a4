// The queue pair of an id: what its states take, and the way through them.
#ifndef VERBS_API_LIBRDMACM_QUEUE_PAIR_H_
#define VERBS_API_LIBRDMACM_QUEUE_PAIR_H_

#include <infiniband/verbs.h>

#include <cstdint>

#include "verbs_api/librdmacm/id.h"

namespace librdmacm {

// The Q_Key of a datagram id: that of its port space.
uint32_t QkeyOf(const Id& id);

// The way to the peer. `id.mutex` is held.
ibv_ah_attr PathTo(const Id& id);

// rdma_init_qp_attr: what `attr->qp_state` (INIT, RTR, RTS) takes. Adds to
// nothing: sets `*attr` but for the state, and `*mask`. EINVAL for other
// states. `id.mutex` is held.
int QpAttributes(const Id& id, ibv_qp_attr* attr, int* mask);

// Moves the connected queue pair of `id` through INIT and RTR to RTS. Takes
// `id.mutex`; `id.calls` is held. 0, or what ibv_modify_qp gave. After ENOMEM
// the next call goes on from there.
int MakeReady(Id& id);
// To the state ERR: what is posted is flushed. Harmless in every state.
void MakeFailed(Id& id);

// rdma_create_qp; `id.calls` is held. 0 or an errno value. Sets what of `*attr`
// ibv_create_qp sets.
int CreateQp(Id& id, ibv_pd* pd, ibv_qp_init_attr* attr);

// How many READs and atomics the id's device may have to answer, and may have
// outstanding, at a time.
struct ReadLimits {
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
};
ReadLimits LimitsOf(const Id& id);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_QUEUE_PAIR_H_
