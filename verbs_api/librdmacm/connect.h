// What events mean for ids and queue pairs, on the application's side of the
// channel.
#ifndef VERBS_API_LIBRDMACM_CONNECT_H_
#define VERBS_API_LIBRDMACM_CONNECT_H_

#include <rdma/rdma_cma.h>

#include "verbs_api/librdmacm/event.h"
#include "verbs_api/librdmacm/event_channel.h"

namespace librdmacm {

// The next event of `channel`, for the application. 0 or -1 with errno. A
// cancellation point.
int TakeEvent(EventChannel& channel, rdma_cm_event** out);
// The next one that `matches` says, as it is before it is reported.
int TakeEvent(EventChannel& channel, const EventChannel::Matches& matches,
              rdma_cm_event** out);
// An event that was taken is the next one again. `place` has one element, which
// becomes its own: that needs no memory.
void ReturnEvent(EventChannel& channel, const rdma_cm_event* event,
                 Events place);

// What is left to do when an application is about to see an event: a request
// gives its place in the backlog back; with a queue pair on the id, a REP makes
// it ready to send, and is answered. Takes the
// owner's locks. 0, or ENOMEM: then it is to be done again, and the event as it
// was.
int BeforeReport(Event& event);

// Of an event that no application will see: the connection that it asks for is
// rejected.
void Discard(Event& event);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_CONNECT_H_
