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

// The application is about to see that it has joined: attaches the queue pair
// of the id, if it has one; what goes wrong makes the event an error. 0, or
// ENOMEM: then it is to be done again. `id.calls` is held.
int FinishJoining(Id& id, Event& event);

// The queue pair is about to go: it is in no group any more. `id.calls` is
// held.
void DetachAll(Id& id);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_MULTICAST_H_
