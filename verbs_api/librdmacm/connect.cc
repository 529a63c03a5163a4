// Connections: rdma_connect(3), rdma_listen(3), rdma_accept(3), rdma_reject(3),
// rdma_establish(3), rdma_disconnect(3), rdma_notify(3). datagram.cc does the
// same for datagram ids.
#include "verbs_api/librdmacm/connect.h"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "verbs_api/librdmacm/address.h"
#include "verbs_api/librdmacm/datagram.h"
#include "verbs_api/librdmacm/id.h"
#include "verbs_api/librdmacm/private_data.h"
#include "verbs_api/librdmacm/queue_pair.h"
#include "wire/cm.h"
#include "wire/headers.h"

namespace librdmacm {
namespace {

namespace cm = transport::cm;

// The values that the kernel's rdma_cm sends: 4.3 s, 15 retries.
constexpr uint8_t kResponseTimeout = 20;
constexpr uint8_t kMaxCmRetries = 15;
constexpr uint8_t kMaxRetries = 7;  // 3 bits
// RoCE has no LIDs (A17).
constexpr uint16_t kPermissiveLid = 0xffff;
// For enhanced connection establishment (IBA 12.6.7.2).
constexpr auto kVendorOptionNotSupported =
    static_cast<wire::CmRejectReason>(35);

uint64_t GuidOf(const Id& id) {
  return be64toh(ibv_get_device_guid(id.part.verbs->device));
}

// The number of the id's queue pair, or of the application's own queue pair.
uint32_t QpnOf(const Id& id, const rdma_conn_param& param) {
  return (id.part.qp != nullptr ? id.part.qp->qp_num : param.qp_num) & 0xffffff;
}

bool HasSrq(const Id& id, const rdma_conn_param& param) {
  // An XRC target always receives through SRQs.
  if (id.qp_type() == IBV_QPT_XRC_RECV) return true;
  return id.part.qp != nullptr ? id.part.qp->srq != nullptr : param.srq != 0;
}

// The options that the application set for its own queue pair
// (rdma_set_local_ece). Our queue pairs have no options.
ibv_ece EceOf(const Id& id) {
  return id.part.qp != nullptr ? ibv_ece{} : id.local_ece;
}

// Replaces RDMA_MAX_RESP_RES and RDMA_MAX_INIT_DEPTH by the device's limit.
int Resolve(uint8_t asked, uint8_t limit, uint8_t* out) {
  static_assert(RDMA_MAX_RESP_RES == 0xff && RDMA_MAX_INIT_DEPTH == 0xff);
  *out = asked == 0xff ? limit : asked;
  return *out <= limit ? 0 : EINVAL;
}

// Checks the requested limits and stores them in the id's attributes.
int TakeReadLimits(Id& id, const rdma_conn_param& param) {
  const ReadLimits limits = LimitsOf(id);
  ReadLimits taken;
  if (const int error =
          Resolve(param.responder_resources, limits.responder_resources,
                  &taken.responder_resources)) {
    return error;
  }
  if (const int error = Resolve(param.initiator_depth, limits.initiator_depth,
                                &taken.initiator_depth)) {
    return error;
  }
  id.attributes.responder_resources = taken.responder_resources;
  id.attributes.initiator_depth = taken.initiator_depth;
  return 0;
}

// `id.mutex` is held.
wire::CmReq RequestOf(const Id& id, const rdma_conn_param& param) {
  const ConnectionAttributes& a = id.attributes;
  wire::CmReq req;
  req.service_id = wire::RdmaServiceId(id.port_space(), id.destination.port);
  req.local_ca_guid = GuidOf(id);
  req.local_qpn = QpnOf(id, param);
  req.responder_resources = a.responder_resources;
  req.initiator_depth = a.initiator_depth;
  req.remote_cm_response_timeout = kResponseTimeout;
  if (id.qp_type() == IBV_QPT_UC) {
    req.service = wire::CmService::kUc;
  } else if (id.qp_type() == IBV_QPT_XRC_SEND) {
    req.service = wire::CmService::kExtended;
    req.extended_transport = wire::kCmExtendedXrc;
  }
  req.vendor_id = EceOf(id).vendor_id;
  req.end_to_end_flow_control = param.flow_control != 0;
  req.starting_psn = a.local_psn;
  req.local_cm_response_timeout = kResponseTimeout;
  req.retry_count = a.retry_count;
  req.pkey = wire::kDefaultPkey;
  req.path_mtu = static_cast<uint8_t>(a.path_mtu);
  req.rnr_retry_count = a.rnr_retry_count;
  req.max_cm_retries = kMaxCmRetries;
  req.srq = HasSrq(id, param);
  req.primary = {.local_lid = kPermissiveLid,
                 .remote_lid = kPermissiveLid,
                 .local_gid = id.source.address,
                 .remote_gid = id.destination.address,
                 .flow_label = a.flow_label,
                 .packet_rate = id.path.rate,
                 .traffic_class = a.traffic_class,
                 .hop_limit = a.hop_limit,
                 .sl = a.sl,
                 .local_ack_timeout = a.ack_timeout};
  return req;
}

int Connect(Id& id, const rdma_conn_param* given) {
  // Either the id has a queue pair, or the application must name one.
  if (id.part.qp == nullptr && given == nullptr) return EINVAL;
  rdma_conn_param param = {};
  if (given != nullptr) {
    param = *given;
  } else {
    param.responder_resources = RDMA_MAX_RESP_RES;
    param.initiator_depth = RDMA_MAX_INIT_DEPTH;
    param.retry_count = param.rnr_retry_count = kMaxRetries;
  }
  cm::ConnectOptions options;
  {
    std::lock_guard<std::mutex> lock(id.mutex);
    if (id.state != IdState::kRouteResolved) return EINVAL;
    if (const int error = TakeReadLimits(id, param)) return error;
    id.attributes.retry_count = std::min(param.retry_count, kMaxRetries);
    id.attributes.rnr_retry_count =
        std::min(param.rnr_retry_count, kMaxRetries);
    options.local = id.source.address;
    options.remote = id.destination.address;
    options.packet_life_time = id.path.packet_life_time;
    options.req = RequestOf(id, param);
    options.ece_options = EceOf(id).options;
    if (!FillRequestData(id, param, options.req.private_data)) return EINVAL;
    id.state = IdState::kConnecting;
  }
  return id.StartExchange([&](cm::CmId* connection) {
    return id.service->Connect(options, id.shared_from_this(), connection);
  });
}

int Listen(Id& id, int backlog) {
  // The limit of the kernel's rdma_cm.
  constexpr int kMaxBacklog = 1024;
  IdState state;
  {
    std::lock_guard<std::mutex> lock(id.mutex);
    state = id.state;
  }
  if (state == IdState::kIdle) {
    // Binds to all addresses and a free port.
    if (const int error =
            Bind(id, EndpointAddress::Of({wire::IpAddress::FromV4(0)}))) {
      return error;
    }
  } else if (state != IdState::kBound) {
    return EINVAL;
  }
  if (backlog <= 0 || backlog > kMaxBacklog) backlog = kMaxBacklog;
  if (const int error = id.service->Listen(
          id.reserved, static_cast<size_t>(backlog), id.shared_from_this())) {
    return error;
  }
  std::lock_guard<std::mutex> lock(id.mutex);
  id.state = IdState::kListening;
  return 0;
}

// Builds the REP. `param`: from the application, or what the peer requested.
// Returns 0 or an errno value; on error nothing has changed.
int AnswerOf(Id& id, const rdma_conn_param& param, wire::CmRep* rep,
             ibv_ece* ece) {
  if (!FillAnswerData(param.private_data, param.private_data_len,
                      rep->private_data)) {
    return EINVAL;
  }
  {
    std::lock_guard<std::mutex> lock(id.mutex);
    if (const int error = TakeReadLimits(id, param)) return error;
    rep->responder_resources = id.attributes.responder_resources;
    rep->initiator_depth = id.attributes.initiator_depth;
    rep->starting_psn = id.attributes.local_psn;
    *ece = EceOf(id);
  }
  rep->vendor_id = ece->vendor_id;
  rep->local_qpn = QpnOf(id, param);
  rep->end_to_end_flow_control = param.flow_control != 0;
  rep->rnr_retry_count = std::min(param.rnr_retry_count, kMaxRetries);
  rep->srq = HasSrq(id, param);
  rep->local_ca_guid = GuidOf(id);
  return 0;
}

int AcceptWith(Id& id, const wire::CmRep& rep, const ibv_ece& ece) {
  // The queue pair must be ready for packets that follow the RTU.
  if (id.part.qp != nullptr) {
    if (const int error = MakeReady(id)) return error;
  }
  {
    // The RTU may arrive before Accept returns.
    std::lock_guard<std::mutex> lock(id.mutex);
    id.state = IdState::kAccepted;
  }
  return id.service->Accept(id.connection, rep, ece.options);
}

// Fails the connection at both ends. No event reports it, because the
// application has not accepted yet.
void FailAccepting(Id& id) {
  MakeFailed(id);
  (void)id.service->Reject(id.connection, {});
  std::lock_guard<std::mutex> lock(id.mutex);
  id.state = IdState::kWithdrawn;
  (void)id.channel->Withdraw(&id);
}

int Accept(Id& id, const rdma_conn_param* given) {
  rdma_conn_param param;
  bool withdrawn;
  {
    std::lock_guard<std::mutex> lock(id.mutex);
    withdrawn = id.state == IdState::kWithdrawn;
    if (!withdrawn && id.state != IdState::kRequested) return EINVAL;
    param = id.requested;
  }
  if (withdrawn) {
    // Rejecting frees the slot in the backlog.
    (void)id.service->Reject(id.connection, {});
    return EINVAL;
  }
  // Either the id has a queue pair, or the application must name one.
  if (id.part.qp == nullptr && given == nullptr) return EINVAL;
  const ReadLimits limits = LimitsOf(id);
  const uint8_t responder_resources =
      std::min(param.responder_resources, limits.responder_resources);
  const uint8_t initiator_depth =
      std::min(param.initiator_depth, limits.initiator_depth);
  if (given != nullptr) param = *given;
  if (given == nullptr || param.responder_resources == RDMA_MAX_RESP_RES) {
    param.responder_resources = responder_resources;
  }
  if (given == nullptr || param.initiator_depth == RDMA_MAX_INIT_DEPTH) {
    param.initiator_depth = initiator_depth;
  }
  wire::CmRep rep;
  ibv_ece ece;
  if (const int error = AnswerOf(id, param, &rep, &ece)) return error;
  const int error = AcceptWith(id, rep, ece);
  // After ENOMEM nothing has changed, so the application may retry.
  if (error != 0 && error != ENOMEM) FailAccepting(id);
  return error;
}

int Reject(Id& id, wire::CmRejectReason reason, const void* private_data,
           uint8_t length) {
  if (id.connection == 0) return EINVAL;
  if (private_data == nullptr) length = 0;
  if (id.is_datagram()) return RejectDatagram(id, private_data, length);
  cm::RejectOptions options;
  options.reason = reason;
  options.private_data = {static_cast<const uint8_t*>(private_data), length};
  return id.service->Reject(id.connection, options);
}

int Establish(Id& id) {
  {
    std::lock_guard<std::mutex> lock(id.mutex);
    if (id.state != IdState::kReplied) return EINVAL;
  }
  if (const int error = id.service->Establish(id.connection, {})) return error;
  std::lock_guard<std::mutex> lock(id.mutex);
  // Keeps a later state that a message of the peer has set meanwhile.
  if (id.state == IdState::kReplied) id.state = IdState::kConnected;
  return 0;
}

// `*waits`: whether an event follows or is already queued.
int Disconnect(Id& id, bool* waits) {
  if (id.connection == 0 || id.is_datagram()) return EINVAL;
  MakeFailed(id);
  const int error = id.service->Disconnect(id.connection, {});
  // In other states there is nothing to release, so the call succeeds.
  if (error != 0 && error != EINVAL && error != ENOENT) return error;
  // An event that was already reported does not come again.
  std::lock_guard<std::mutex> lock(id.mutex);
  *waits = (error == 0 && id.state != IdState::kDisconnected) ||
           HasOutcome(*id.channel, WaitingCall::kDisconnect, id);
  return 0;
}

int Notify(Id& id, ibv_event_type event) {
  if (event != IBV_EVENT_COMM_EST || id.connection == 0) return EINVAL;
  if (id.service->state(id.connection) == cm::State::kEstablished) {
    return EISCONN;
  }
  return id.service->NotifyEstablished(id.connection);
}

// Handles a REP if the id has a queue pair. The application only sees that the
// connection is established.
int FinishConnecting(Id& id, Event& event) {
  int error = MakeReady(id);
  if (error == ENOMEM) return error;
  if (error == 0) error = Establish(id);
  if (error == 0) {
    event.part.event = RDMA_CM_EVENT_ESTABLISHED;
    return 0;
  }
  MakeFailed(id);
  id.service->Reject(id.connection, {});
  event.part.event = RDMA_CM_EVENT_CONNECT_ERROR;
  event.part.status = -error;
  return 0;
}

}  // namespace

int BeforeReport(Event& event) {
  if (event.request != nullptr) {
    (void)event.request->service->Seen(event.request->connection);
  }
  Id& id = *event.owner;
  std::lock_guard<std::mutex> lock(id.calls);
  if (id.destroyed || id.part.qp == nullptr) return 0;
  if (event.part.event == RDMA_CM_EVENT_CONNECT_RESPONSE) {
    return FinishConnecting(id, event);
  }
  if (event.part.event == RDMA_CM_EVENT_MULTICAST_JOIN) {
    return FinishJoining(id, event);
  }
  if (event.part.event == RDMA_CM_EVENT_REJECTED) MakeFailed(id);
  return 0;
}

CM_EXPORT int rdma_connect(rdma_cm_id* pointer, rdma_conn_param* param) {
  return CompleteCall(pointer, WaitingCall::kConnect, [&](Id& id) {
    return id.is_datagram() ? ResolveDatagram(id, param) : Connect(id, param);
  });
}

CM_EXPORT int rdma_listen(rdma_cm_id* pointer, int backlog) {
  return IdCall(pointer, [&](Id& id) { return Listen(id, backlog); });
}

CM_EXPORT int rdma_accept(rdma_cm_id* pointer, rdma_conn_param* param) {
  bool waits = false;
  const int result = IdCall(pointer, [&](Id& id) {
    waits = !id.is_datagram();
    if (ResumesWait(id, WaitingCall::kAccept)) return 0;
    return id.is_datagram() ? AcceptDatagram(id, param) : Accept(id, param);
  });
  if (result != 0 || !waits) return result;
  return Complete(pointer, WaitingCall::kAccept);
}

CM_EXPORT int rdma_reject(rdma_cm_id* pointer, const void* private_data,
                          uint8_t length) {
  return IdCall(pointer, [&](Id& id) {
    return Reject(id, wire::CmRejectReason::kConsumer, private_data, length);
  });
}

CM_EXPORT int rdma_reject_ece(rdma_cm_id* pointer, const void* private_data,
                              uint8_t length) {
  return IdCall(pointer, [&](Id& id) {
    return Reject(id, kVendorOptionNotSupported, private_data, length);
  });
}

CM_EXPORT int rdma_establish(rdma_cm_id* pointer) {
  return IdCall(pointer, [](Id& id) -> int {
    // We did that already if the id has a queue pair.
    if (id.part.qp != nullptr) return EINVAL;
    return Establish(id);
  });
}

CM_EXPORT int rdma_disconnect(rdma_cm_id* pointer) {
  bool waits = true;
  const int result = IdCall(pointer, [&](Id& id) {
    if (ResumesWait(id, WaitingCall::kDisconnect)) return 0;
    return Disconnect(id, &waits);
  });
  if (result != 0 || !waits) return result;
  return Complete(pointer, WaitingCall::kDisconnect);
}

CM_EXPORT int rdma_notify(rdma_cm_id* pointer, ibv_event_type event) {
  return IdCall(pointer, [&](Id& id) { return Notify(id, event); });
}

}  // namespace librdmacm
