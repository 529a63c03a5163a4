// The groups that an id has joined: rdma_join_multicast(3).
#ifndef VERBS_API_LIBRDMACM_MULTICAST_H_
#define VERBS_API_LIBRDMACM_MULTICAST_H_

#include "verbs_api/librdmacm/event.h"
#include "wire/address.h"

namespace librdmacm {

class Id;

// One membership. Guarded by the `calls` of its id.
struct Membership {
  wire::IpAddress group;
  bool receives = false;  // a full member: the queue pair is attached
  bool attached = false;
  bool left = false;
};

// Completes a join just before the application sees it: attaches the id's queue
// pair, if any. A failure turns the event into an error event. Returns 0, or
// ENOMEM: then the call must be repeated. `id.calls` is held.
int FinishJoining(Id& id, Event& event);

// Detaches the queue pair from all groups, before it is destroyed. `id.calls`
// is held.
void DetachAll(Id& id);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_MULTICAST_H_
