// Calls on synchronous ids: each waits for the event that carries its result
// (rdma_create_id(3)).
#include <cerrno>
#include <utility>

#include "verbs_api/librdmacm/connect.h"
#include "verbs_api/librdmacm/id.h"
#include "verbs_api/librdmacm/newer.h"

namespace librdmacm {
namespace {

// Whether an event of this type ends `call`. `type` is that in the channel,
// before BeforeReport may change it.
bool IsOutcome(WaitingCall call, int type) {
  switch (call) {
    case WaitingCall::kNone:
      return false;
    case WaitingCall::kResolveAddr:
      return type == RDMA_CM_EVENT_ADDR_RESOLVED ||
             type == RDMA_CM_EVENT_ADDR_ERROR;
    case WaitingCall::kResolveRoute:
      return type == RDMA_CM_EVENT_ROUTE_RESOLVED ||
             type == RDMA_CM_EVENT_ROUTE_ERROR;
    case WaitingCall::kResolveAddrinfo:
      return type == kAddrinfoResolved || type == kAddrinfoError;
    case WaitingCall::kConnect:
      return type == RDMA_CM_EVENT_CONNECT_RESPONSE ||
             type == RDMA_CM_EVENT_ESTABLISHED ||
             type == RDMA_CM_EVENT_CONNECT_ERROR ||
             type == RDMA_CM_EVENT_REJECTED ||
             type == RDMA_CM_EVENT_UNREACHABLE;
    case WaitingCall::kAccept:
      return type == RDMA_CM_EVENT_ESTABLISHED ||
             type == RDMA_CM_EVENT_REJECTED ||
             type == RDMA_CM_EVENT_UNREACHABLE ||
             type == RDMA_CM_EVENT_DISCONNECTED;
    case WaitingCall::kDisconnect:
      return type == RDMA_CM_EVENT_DISCONNECTED;
    case WaitingCall::kJoin:
      return type == RDMA_CM_EVENT_MULTICAST_JOIN ||
             type == RDMA_CM_EVENT_MULTICAST_ERROR;
    case WaitingCall::kGetRequest:
      // A user event wakes the call, which then fails.
      return type == RDMA_CM_EVENT_CONNECT_REQUEST || type == kUserEvent;
  }
  return false;
}

// The result of `call`, from its event. Returns 0 or an errno value.
int ResultOf(WaitingCall call, const rdma_cm_event& event) {
  switch (TypeOf(event)) {
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return ENODEV;
    case RDMA_CM_EVENT_REJECTED:
      return ECONNREFUSED;  // whatever reason the peer gives
    case RDMA_CM_EVENT_DISCONNECTED:
      if (call != WaitingCall::kDisconnect) return ECONNRESET;
      break;
    default:
      break;
  }
  // Positive statuses come from the wire: the peer's reason for rejecting.
  return event.status <= 0 ? -event.status : ECONNREFUSED;
}

// `call` could not wait, for lack of memory or of a descriptor. Made again, it
// resumes the wait (ResumesWait).
void NoteUnfinished(rdma_cm_id* pointer, WaitingCall call) {
  const std::shared_ptr<Id> id = FindId(pointer);
  if (id == nullptr) return;
  std::lock_guard<std::mutex> lock(id->mutex);
  id->unfinished = call;
}

}  // namespace

bool ResumesWait(Id& id, WaitingCall call) {
  std::lock_guard<std::mutex> lock(id.mutex);
  return std::exchange(id.unfinished, WaitingCall::kNone) == call;
}

void AcknowledgeOwn(rdma_cm_id* part) {
  if (part->event == nullptr) return;
  (void)Acknowledge(part->event);
  part->event = nullptr;
}

int TakeOutcome(EventChannel& channel, WaitingCall call, rdma_cm_event** out) {
  return TakeEvent(
      channel,
      [call](const Event& event) {
        return IsOutcome(call, event.type()) ||
               event.type() == RDMA_CM_EVENT_DEVICE_REMOVAL;
      },
      out);
}

bool HasOutcome(EventChannel& channel, WaitingCall call, const Id& id) {
  return channel.HasIf([&](const Event& event) {
    return event.owner.get() == &id && IsOutcome(call, event.type());
  });
}

int Complete(rdma_cm_id* pointer, WaitingCall call) {
  std::shared_ptr<EventChannel> channel;
  {
    const rxe_user::NoCancellation no_cancellation;
    const std::shared_ptr<Id> id = FindId(pointer);
    if (id == nullptr) return Return(EINVAL);
    std::lock_guard<std::mutex> lock(id->mutex);
    if (!id->synchronous) return 0;
    channel = id->channel;
  }
  AcknowledgeOwn(pointer);
  if (TakeOutcome(*channel, call, &pointer->event) != 0) {
    const int error = errno;
    if (error == ENOMEM || error == EMFILE || error == ENFILE) {
      NoteUnfinished(pointer, call);
    }
    return Return(error);
  }
  return Return(ResultOf(call, *pointer->event));
}

}  // namespace librdmacm
