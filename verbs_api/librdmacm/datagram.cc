#include "verbs_api/librdmacm/datagram.h"

#include <cerrno>

#include "verbs_api/librdmacm/private_data.h"
#include "verbs_api/librdmacm/queue_pair.h"
#include "wire/headers.h"

namespace librdmacm {
namespace {

namespace cm = transport::cm;

int Answer(Id& id, wire::CmSidrRep rep, const void* private_data,
           uint8_t length) {
  if (!FillAnswerData(private_data, length, rep.private_data)) return EINVAL;
  const IdState after = rep.status == wire::CmSidrStatus::kOk
                            ? IdState::kConnected
                            : IdState::kFailed;
  ibv_ece ece = {};
  {
    std::lock_guard<std::mutex> lock(id.mutex);
    if (id.state != IdState::kRequested) return EINVAL;
    id.state = after;
    if (id.part.qp == nullptr) ece = id.local_ece;
  }
  rep.vendor_id = ece.vendor_id;
  return id.service->AnswerService(id.connection, rep, ece.options);
}

}  // namespace

int ResolveDatagram(Id& id, const rdma_conn_param* param) {
  cm::ResolveOptions options;
  {
    std::lock_guard<std::mutex> lock(id.mutex);
    if (id.state != IdState::kRouteResolved) return EINVAL;
    options.local = id.source.address;
    options.remote = id.destination.address;
    options.req.pkey = wire::kDefaultPkey;
    options.req.service_id =
        wire::RdmaServiceId(id.port_space(), id.destination.port);
    if (!FillRequestData(id, param != nullptr ? *param : rdma_conn_param{},
                         options.req.private_data)) {
      return EINVAL;
    }
    id.state = IdState::kConnecting;
  }
  return id.StartExchange([&](cm::CmId* connection) {
    return id.service->Resolve(options, id.shared_from_this(), connection);
  });
}

int AcceptDatagram(Id& id, const rdma_conn_param* param) {
  wire::CmSidrRep rep;
  if (id.part.qp != nullptr) {
    rep.qpn = id.part.qp->qp_num;
  } else if (param != nullptr) {
    rep.qpn = param->qp_num & 0xffffff;
  } else {
    return EINVAL;
  }
  rep.qkey = QkeyOf(id);
  return Answer(id, rep, param != nullptr ? param->private_data : nullptr,
                param != nullptr ? param->private_data_len : 0);
}

int RejectDatagram(Id& id, const void* private_data, uint8_t length) {
  wire::CmSidrRep rep;
  rep.status = wire::CmSidrStatus::kRejected;
  return Answer(id, rep, private_data, length);
}

}  // namespace librdmacm
