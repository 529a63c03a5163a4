// rdma_resolve_addrinfo(3), rdma_query_addrinfo(3), rdma_write_cm_event(3).
#include <netdb.h>
#include <pthread.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <string>

#include "rxe_user/base/service_thread.h"
#include "verbs_api/librdmacm/addrinfo.h"
#include "verbs_api/librdmacm/id.h"
#include "verbs_api/librdmacm/newer.h"
#include "verbs_api/symbols.h"

namespace librdmacm {
namespace {

// A resolution in progress, on its own thread: the host's resolver may block.
struct Resolution {
  std::shared_ptr<Id> id;
  std::optional<std::string> node;
  std::optional<std::string> service;
  UniqueAddrinfo hints;
  UnsentEvent event;  // carries the result
};

std::optional<std::string> Kept(const char* text) {
  if (text == nullptr) return std::nullopt;
  return text;
}
const char* Given(const std::optional<std::string>& text) {
  return text.has_value() ? text->c_str() : nullptr;
}

// The status of an event is a negative errno value.
int ErrnoOfEai(int error) {
  switch (error) {
    case EAI_SYSTEM:
      return errno != 0 ? errno : EIO;
    case EAI_MEMORY:
      return ENOMEM;
    case EAI_AGAIN:
      return EAGAIN;
    case EAI_FAIL:
      return EIO;
    case EAI_BADFLAGS:
    case EAI_SOCKTYPE:
      return EINVAL;
    case EAI_FAMILY:
    case EAI_ADDRFAMILY:
      return EAFNOSUPPORT;
    default:
      return ENOENT;  // no such node or service
  }
}

// Returns 0 or an errno value.
int Find(const Resolution& resolution, UniqueAddrinfo* found) {
  try {
    const int error =
        FindAddrinfo(Given(resolution.node), Given(resolution.service),
                     resolution.hints.get(), found);
    return error != 0 ? ErrnoOfEai(error) : 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

void Resolve(Resolution& resolution) {
  UniqueAddrinfo found;
  const int error = Find(resolution, &found);
  Id& id = *resolution.id;
  std::lock_guard<std::mutex> lock(id.mutex);
  id.resolving = false;
  if (id.destroyed) return;
  if (error == 0) id.addrinfo = std::move(found);
  resolution.event->SetType(error == 0 ? kAddrinfoResolved : kAddrinfoError);
  resolution.event->part.status = -error;
  id.Push(std::move(resolution.event));
}

void* RunResolution(void* argument) {
  const std::unique_ptr<Resolution> resolution(
      static_cast<Resolution*>(argument));
  Resolve(*resolution);
  return nullptr;
}

int Start(Id& id, const char* node, const char* service,
          const rdma_addrinfo* hints) {
  if (node == nullptr && service == nullptr && hints == nullptr) return EINVAL;
  const int flags = hints != nullptr ? hints->ai_flags : 0;
  // Ethernet has no subnet administrator.
  if ((flags & kRaiSa) != 0) return EOPNOTSUPP;
  auto resolution = std::make_unique<Resolution>();
  resolution->id = id.shared_from_this();
  resolution->event = id.NewEvent(kAddrinfoResolved);
  resolution->node = Kept(node);
  resolution->service = Kept(service);
  if (hints != nullptr) {
    resolution->hints = CopyAddrinfo(*hints);
    if (resolution->hints == nullptr) return ENOMEM;
  }
  {
    std::lock_guard<std::mutex> lock(id.mutex);
    if (id.resolving || id.addrinfo != nullptr) return EBUSY;
    if (id.state != IdState::kIdle && id.state != IdState::kBound) {
      return EINVAL;
    }
    id.resolving = true;
  }
  pthread_t thread;
  const int error =
      rxe_user::StartServiceThread(&thread, &RunResolution, resolution.get());
  if (error != 0) {
    std::lock_guard<std::mutex> lock(id.mutex);
    id.resolving = false;
    return error;
  }
  (void)resolution.release();
  pthread_detach(thread);
  return 0;
}

}  // namespace

CM_EXPORT int rdma_resolve_addrinfo(rdma_cm_id* pointer, const char* node,
                                    const char* service,
                                    const rdma_addrinfo* hints) {
  return CompleteCall(pointer, WaitingCall::kResolveAddrinfo,
                      [&](Id& id) { return Start(id, node, service, hints); });
}

// Returns the result of a resolution once. The application then owns it and
// frees it with rdma_freeaddrinfo.
CM_EXPORT int rdma_query_addrinfo(rdma_cm_id* pointer, rdma_addrinfo** info) {
  return IdCall(pointer, [&](Id& id) -> int {
    if (info == nullptr) return EINVAL;
    std::lock_guard<std::mutex> lock(id.mutex);
    if (id.addrinfo == nullptr) return ENOENT;
    *info = id.addrinfo.release();
    return 0;
  });
}

NEWER_EXPORT(int, rdma_write_cm_event, rdma_cm_id* pointer, int event,
             int status, uint64_t arg) {
  return IdCall(
      pointer,
      [&](Id& id) -> int {
        if (event != kUserEvent) return EINVAL;
        std::lock_guard<std::mutex> lock(id.mutex);
        UnsentEvent out = id.NewEvent(event, status);
        // In newer headers it is a member of the union.
        std::memcpy(static_cast<void*>(&out->part.param), &arg, sizeof(arg));
        id.Push(std::move(out));
        return 0;
      },
      "rdma_write_cm_event");  // in C++ it has another name
}

}  // namespace librdmacm
