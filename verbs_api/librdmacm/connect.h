// Processing of events when the application takes them from the channel.
#ifndef VERBS_API_LIBRDMACM_CONNECT_H_
#define VERBS_API_LIBRDMACM_CONNECT_H_

#include <rdma/rdma_cma.h>

#include "verbs_api/librdmacm/event.h"
#include "verbs_api/librdmacm/event_channel.h"

namespace librdmacm {

// Takes the next event of `channel` for the application. Returns 0, or -1 with
// errno. A cancellation point.
int TakeEvent(EventChannel& channel, rdma_cm_event** out);
// Takes the next event that satisfies `matches`, tested before BeforeReport.
int TakeEvent(EventChannel& channel, const EventChannel::Matches& matches,
              rdma_cm_event** out);
// EventChannel::PutBack for an event that the application has. `place` has one
// element, which is reused, so this does not allocate.
void ReturnEvent(const rdma_cm_event* event, Events place);

// Completes an event just before the application sees it. A connection request
// frees its slot in the backlog. A REP, if the id has a queue pair, makes the
// queue pair ready to send and is answered with an RTU. Takes the owner's
// locks. Returns 0, or ENOMEM: then the event is unchanged and the call must be
// repeated.
int BeforeReport(Event& event);

// Drops an event that no application will see. A connection request is
// rejected.
void Discard(Event& event);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_CONNECT_H_
