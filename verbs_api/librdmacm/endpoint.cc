// rdma_create_ep(3), rdma_destroy_ep(3), rdma_get_request(3): synchronous ids
// that are created from a result of rdma_getaddrinfo(3).
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <cerrno>
#include <utility>

#include "verbs_api/librdmacm/connect.h"
#include "verbs_api/librdmacm/id.h"
#include "verbs_api/librdmacm/queue_pair.h"

namespace librdmacm {
namespace {

// Time limit for address resolution on the active side.
constexpr int kResolveTimeoutMs = 2000;

// Does everything but creating the active side's queue pair. Returns 0 or an
// errno value.
int PreparePassive(rdma_cm_id* pointer, const rdma_addrinfo& info, ibv_pd* pd,
                   const ibv_qp_init_attr* attr) {
  if (info.ai_src_addr != nullptr &&
      rdma_bind_addr(pointer, info.ai_src_addr) != 0) {
    return errno;
  }
  const std::shared_ptr<Id> id = FindId(pointer);
  std::lock_guard<std::mutex> calls(id->calls);
  id->endpoint.pd = pd;
  if (pd != nullptr) id->part.pd = pd;
  if (attr != nullptr) {
    id->endpoint.qp = *attr;
    id->endpoint.qp->qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
  }
  return 0;
}

int PrepareActive(rdma_cm_id* pointer, const rdma_addrinfo& info, ibv_pd* pd,
                  ibv_qp_init_attr* attr) {
  if (rdma_resolve_addr(pointer, info.ai_src_addr, info.ai_dst_addr,
                        kResolveTimeoutMs) != 0) {
    return errno;
  }
  const int routed =
      info.ai_route_len != 0
          ? rdma_set_option(pointer, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH,
                            info.ai_route, info.ai_route_len)
          : rdma_resolve_route(pointer, kResolveTimeoutMs);
  if (routed != 0) return errno;
  if (attr != nullptr) {
    attr->qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
    if (rdma_create_qp(pointer, pd, attr) != 0) return errno;
  }
  return 0;
}

// Creates the queue pair that rdma_create_ep of the listener asked for.
int CreateRequestedQp(const std::shared_ptr<Id>& listener,
                      rdma_cm_id* request) {
  std::optional<ibv_qp_init_attr> attr;
  ibv_pd* pd;
  {
    std::lock_guard<std::mutex> calls(listener->calls);
    attr = listener->endpoint.qp;
    pd = listener->endpoint.pd;
  }
  if (!attr.has_value()) return 0;
  return rdma_create_qp(request, pd, &*attr) == 0 ? 0 : errno;
}

}  // namespace

CM_EXPORT int rdma_create_ep(rdma_cm_id** out, rdma_addrinfo* info, ibv_pd* pd,
                             ibv_qp_init_attr* attr) {
  std::shared_ptr<Id> id;
  const int result = Call([&]() -> int {
    if (out == nullptr || info == nullptr) return EINVAL;
    EndpointOptions options;
    if (info->ai_connect_len != 0 && info->ai_connect != nullptr) {
      const auto* bytes = static_cast<const uint8_t*>(info->ai_connect);
      options.connect_data.assign(bytes, bytes + info->ai_connect_len);
    }
    const int error = CreateId(nullptr, nullptr, info->ai_port_space,
                               static_cast<ibv_qp_type>(info->ai_qp_type), &id);
    if (error == 0) id->endpoint = std::move(options);
    return error;
  });
  if (result != 0) return result;
  rdma_cm_id* const pointer = &id->part;
  id.reset();
  const int error = (info->ai_flags & RAI_PASSIVE) != 0
                        ? PreparePassive(pointer, *info, pd, attr)
                        : PrepareActive(pointer, *info, pd, attr);
  if (error != 0) {
    rdma_destroy_ep(pointer);
    return Return(error);
  }
  *out = pointer;
  return 0;
}

CM_EXPORT void rdma_destroy_ep(rdma_cm_id* id) {
  if (FindId(id) == nullptr) return;
  if (id->qp != nullptr) rdma_destroy_qp(id);
  if (id->srq != nullptr) rdma_destroy_srq(id);
  rdma_destroy_id(id);
}

CM_EXPORT int rdma_get_request(rdma_cm_id* listen, rdma_cm_id** out) {
  std::shared_ptr<Id> listener;
  std::shared_ptr<EventChannel> channel;
  Events place;
  const int result = IdCall(listen, [&](Id& id) -> int {
    std::lock_guard<std::mutex> lock(id.mutex);
    if (out == nullptr || !id.synchronous) return EINVAL;
    if (id.state != IdState::kListening) return EINVAL;
    listener = id.shared_from_this();
    channel = id.channel;
    place.emplace_back();
    return 0;
  });
  if (result != 0) return result;
  AcknowledgeOwn(listen);
  rdma_cm_event* event = nullptr;
  if (TakeOutcome(*channel, WaitingCall::kGetRequest, &event) != 0) return -1;
  if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
    const bool gone = event->event == RDMA_CM_EVENT_DEVICE_REMOVAL;
    (void)Acknowledge(event);
    return Return(gone ? ENODEV : EINVAL);
  }
  rdma_cm_id* const request = event->id;
  // After an earlier ENOMEM, a part of the work is already done.
  int error = request->qp == nullptr ? CreateRequestedQp(listener, request) : 0;
  if (error == 0 && rdma_migrate_id(request, nullptr) != 0) error = errno;
  if (error == ENOMEM) {
    ReturnEvent(event, std::move(place));
    return Return(error);
  }
  if (error != 0) {
    (void)Acknowledge(event);
    rdma_destroy_ep(request);
    return Return(error);
  }
  // Kept until the next call on the id: the application may read the peer's
  // private data.
  request->event = event;
  *out = request;
  return 0;
}

}  // namespace librdmacm
