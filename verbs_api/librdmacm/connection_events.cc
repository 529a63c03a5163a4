// Turns events of the connection manager into events of ids. Runs on the
// service's thread.
#include <algorithm>
#include <cerrno>

#include "verbs_api/librdmacm/address.h"
#include "verbs_api/librdmacm/id.h"
#include "verbs_api/librdmacm/queue_pair.h"
#include "wire/cm.h"

namespace librdmacm {
namespace {

namespace cm = transport::cm;

constexpr uint8_t kDefaultHopLimit = 64;

wire::CmView ViewOf(const cm::Event& event) {
  wire::CmView view;
  // The service has parsed it before, so this succeeds.
  wire::CmView::Parse(event.mad, &view);
  return view;
}

// The private data behind the header of the RDMA CM.
template <size_t kSize>
std::span<const uint8_t> ConsumerData(
    const std::array<uint8_t, kSize>& private_data) {
  return std::span<const uint8_t>(private_data)
      .subspan(wire::kRdmaCmHeaderSize);
}

ibv_ece EceOf(uint32_t vendor_id, const wire::CmView& mad) {
  return {.vendor_id = vendor_id,
          .options = mad.header().attribute_modifier,
          .comp_mask = 0};
}

// Copies what a REQ requires of our queue pair.
void TakeReq(const wire::CmReq& req, Id& id) {
  ConnectionAttributes& a = id.attributes;
  a.traffic_class = req.primary.traffic_class;
  a.flow_label = req.primary.flow_label;
  a.hop_limit = std::max(req.primary.hop_limit, kDefaultHopLimit);
  a.sl = req.primary.sl;
  a.ack_timeout = req.primary.local_ack_timeout;
  a.path_mtu = static_cast<ibv_mtu>(req.path_mtu);
  a.remote_qpn = req.local_qpn;
  a.remote_psn = req.starting_psn;
  // The requests that one side answers are those that the other sends.
  a.responder_resources = req.initiator_depth;
  a.initiator_depth = req.responder_resources;
  a.retry_count = req.retry_count;
  a.rnr_retry_count = req.rnr_retry_count;
  id.requested.responder_resources = a.responder_resources;
  id.requested.initiator_depth = a.initiator_depth;
  id.requested.flow_control = req.end_to_end_flow_control;
  id.requested.retry_count = a.retry_count;
  id.requested.rnr_retry_count = a.rnr_retry_count;
  id.requested.srq = req.srq;
  id.requested.qp_num = a.remote_qpn;
}

}  // namespace

std::shared_ptr<Id> Id::NewRequest(const cm::Event& event,
                                   const wire::RdmaCmHeader& header,
                                   uint64_t service_id) {
  const std::optional<wire::RdmaService> wanted =
      wire::ParseRdmaServiceId(service_id);
  if (!wanted.has_value()) return nullptr;
  // A link-local address is looked up on the listener's interface, if the
  // listener is bound to one.
  const std::optional<DeviceAddress> device =
      FindDevice(rxe_user::OnInterface(event.local, source.scope_id));
  if (!device.has_value()) return nullptr;
  const rxe_user::LocalAddress local =
      rxe_user::OnInterface(event.local, device->interface);

  auto id = std::make_shared<Id>(part.ps, part.qp_type);
  id->part.channel = channel->part();
  id->part.context = part.context;
  id->channel = channel;
  id->service = service;
  id->options = options;
  id->connection = event.id;
  id->state = IdState::kRequested;
  EndpointAddress here = EndpointAddress::Of(local, wanted->port);
  EndpointAddress there = EndpointAddress::Of(
      rxe_user::OnInterface(event.remote, device->interface),
      header.source_port);
  if (source.family == AF_IB) here.family = there.family = AF_IB;
  SetSource(*id, here, *device);
  SetDestination(*id, there);
  return id;
}

void Id::OnRequest(const cm::Event& event) {
  const wire::CmView mad = ViewOf(event);
  const bool datagram = event.kind == cm::EventKind::kServiceRequest;
  wire::CmReq req;
  wire::CmSidrReq sidr;
  std::optional<wire::RdmaCmHeader> header;
  if (datagram) {
    sidr = mad.sidr_req();
    header = wire::ParseRdmaCmHeader(sidr.private_data);
  } else {
    req = mad.req();
    header = wire::ParseRdmaCmHeader(req.private_data);
  }
  std::shared_ptr<Id> request;
  const bool fits =
      datagram ? is_datagram()
               : !is_datagram() &&
                     cm::IsXrc(req) == (part.qp_type == IBV_QPT_XRC_RECV);
  if (header.has_value() && fits && !destroyed) {
    request =
        NewRequest(event, *header, datagram ? sidr.service_id : req.service_id);
  }
  if (request == nullptr) {
    service->Destroy(event.id);
    return;
  }
  UnsentEvent out = NewEvent(RDMA_CM_EVENT_CONNECT_REQUEST);
  if (datagram) {
    ShowRoute(*request);
    out->SetUdData(ConsumerData(sidr.private_data));
  } else {
    TakeReq(req, *request);
    request->remote_ece = EceOf(req.vendor_id, mad);
    ShowRoute(*request);
    out->part.param.conn = request->requested;
    out->SetConnData(ConsumerData(req.private_data));
  }
  out->part.id = &request->part;
  out->part.listen_id = &part;
  // Nothing after this allocates.
  PublishId(request);
  if (service->SetHandler(event.id, request) != 0) {
    WithdrawId(*request);
    service->Destroy(event.id);
    return;
  }
  out->request = std::move(request);
  Push(std::move(out));
}

void Id::OnReply(const cm::Event& event) {
  const wire::CmView mad = ViewOf(event);
  const wire::CmRep rep = mad.rep();
  // For an XRC target, the REP carries its number in the EE context field.
  attributes.remote_qpn =
      part.qp_type == IBV_QPT_XRC_SEND ? rep.local_eecn : rep.local_qpn;
  attributes.remote_psn = rep.starting_psn;
  attributes.responder_resources = rep.initiator_depth;
  attributes.initiator_depth = rep.responder_resources;
  attributes.rnr_retry_count = rep.rnr_retry_count;
  remote_ece = EceOf(rep.vendor_id, mad);
  UnsentEvent out = NewEvent(RDMA_CM_EVENT_CONNECT_RESPONSE);
  state = IdState::kReplied;
  rdma_conn_param& param = out->part.param.conn;
  param.responder_resources = rep.initiator_depth;
  param.initiator_depth = rep.responder_resources;
  param.flow_control = rep.end_to_end_flow_control;
  param.rnr_retry_count = rep.rnr_retry_count;
  param.srq = rep.srq;
  param.qp_num = attributes.remote_qpn;
  out->SetConnData(rep.private_data);
  Push(std::move(out));
}

void Id::OnRejected(const cm::Event& event) {
  wire::CmRej rej = {.reason = wire::CmRejectReason::kStaleConnection};
  if (event.has_mad) rej = ViewOf(event).rej();
  UnsentEvent out =
      NewEvent(RDMA_CM_EVENT_REJECTED, static_cast<int>(rej.reason));
  state = IdState::kFailed;
  if (event.has_mad) out->SetConnData(rej.private_data);
  Push(std::move(out));
}

void Id::OnServiceReply(const cm::Event& event) {
  const wire::CmView mad = ViewOf(event);
  const wire::CmSidrRep rep = mad.sidr_rep();
  const bool found = rep.status == wire::CmSidrStatus::kOk;
  remote_ece = EceOf(rep.vendor_id, mad);
  UnsentEvent out =
      NewEvent(found ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_UNREACHABLE,
               static_cast<int>(rep.status));
  state = found ? IdState::kConnected : IdState::kFailed;
  if (found) {
    rdma_ud_param& param = out->part.param.ud;
    param.ah_attr = PathTo(*this);
    param.qp_num = rep.qpn;
    param.qkey = rep.qkey;
  }
  out->SetUdData(rep.private_data);
  Push(std::move(out));
}

// If there is no memory for an event, nothing changes and the service repeats
// it.
void Id::OnCmEvent(const cm::Event& event) {
  std::lock_guard<std::mutex> lock(mutex);
  if (event.kind == cm::EventKind::kRequest ||
      event.kind == cm::EventKind::kServiceRequest) {
    return OnRequest(event);
  }
  if (destroyed) return;
  // Until the application accepts, the request belongs to the listener. Like
  // the kernel's rdma_cm, we do not report its failure; accepting it fails.
  if (state == IdState::kRequested || state == IdState::kWithdrawn) {
    state = IdState::kWithdrawn;
    return;
  }
  switch (event.kind) {
    case cm::EventKind::kRequest:
    case cm::EventKind::kServiceRequest:
      return;
    case cm::EventKind::kReply:
      return OnReply(event);
    case cm::EventKind::kEstablished:
      Push(RDMA_CM_EVENT_ESTABLISHED);
      state = IdState::kConnected;
      return;
    case cm::EventKind::kRejected:
      return OnRejected(event);
    case cm::EventKind::kUnreachable:
      Push(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
      state = IdState::kFailed;
      return;
    case cm::EventKind::kDisconnected:
      // Without a message, the peer has not answered our DREQ.
      Push(RDMA_CM_EVENT_DISCONNECTED, event.has_mad ? 0 : -ETIMEDOUT);
      state = IdState::kDisconnected;
      return;
    case cm::EventKind::kTimeWaitExit:
      return Push(RDMA_CM_EVENT_TIMEWAIT_EXIT);
    case cm::EventKind::kServiceReply:
      return OnServiceReply(event);
  }
}

}  // namespace librdmacm
