// rdma_init_qp_attr, and the state transitions of an id's queue pair.
#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "verbs_api/librdmacm/devices.h"
#include "verbs_api/librdmacm/queue_pair.h"

namespace librdmacm {
namespace {

// The Q_Key of the broadcast group, which port space IPOIB uses.
constexpr uint32_t kIpoibQkey = 0x0b1b;

bool IsReliable(const Id& id) { return id.qp_type() != IBV_QPT_UC; }

// One end of an XRC connection sends requests; the other responds.
bool Requests(const Id& id) { return id.qp_type() != IBV_QPT_XRC_RECV; }
bool Responds(const Id& id) { return id.qp_type() != IBV_QPT_XRC_SEND; }

void InitAttributes(const Id& id, ibv_qp_attr* attr, int* mask) {
  *mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  attr->pkey_index = 0;
  attr->port_num = kPort;
  if (id.is_datagram()) {
    *mask |= IBV_QP_QKEY;
    attr->qkey = QkeyOf(id);
    return;
  }
  *mask |= IBV_QP_ACCESS_FLAGS;
  // Without a connection the peer has no access.
  if (id.attributes.remote_qpn == 0) return;
  attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (id.attributes.responder_resources != 0 && IsReliable(id)) {
    attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  }
}

void RtrAttributes(const Id& id, ibv_qp_attr* attr, int* mask) {
  *mask = IBV_QP_STATE;
  if (id.is_datagram()) return;
  *mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  attr->ah_attr = PathTo(id);
  attr->path_mtu = id.attributes.path_mtu;
  attr->dest_qp_num = id.attributes.remote_qpn;
  attr->rq_psn = id.attributes.local_psn;
  if (!IsReliable(id) || !Responds(id)) return;
  *mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  attr->max_dest_rd_atomic = id.attributes.responder_resources;
  attr->min_rnr_timer = 0;  // 655 ms: rdma_connect(3)
}

void RtsAttributes(const Id& id, ibv_qp_attr* attr, int* mask) {
  *mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  attr->sq_psn = id.is_datagram() ? 0 : id.attributes.remote_psn;
  if (id.is_datagram() || !IsReliable(id)) return;
  *mask |= IBV_QP_TIMEOUT;
  attr->timeout = id.options.ack_timeout.value_or(id.attributes.ack_timeout);
  if (!Requests(id)) return;
  *mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  attr->retry_cnt = id.attributes.retry_count;
  attr->rnr_retry = id.attributes.rnr_retry_count;
  attr->max_rd_atomic = id.attributes.initiator_depth;
}

}  // namespace

uint32_t QkeyOf(const Id& id) {
  return id.part.ps == RDMA_PS_IPOIB ? kIpoibQkey : wire::kRdmaUdpQkey;
}

ibv_ah_attr PathTo(const Id& id) {
  ibv_ah_attr path = {};
  path.grh.dgid = GidOf(id.attributes.remote_gid);
  path.grh.flow_label = id.attributes.flow_label;
  path.grh.sgid_index = id.attributes.gid_index;
  path.grh.hop_limit = id.attributes.hop_limit;
  path.grh.traffic_class = id.attributes.traffic_class;
  path.sl = id.attributes.sl;
  path.is_global = 1;
  path.port_num = kPort;
  return path;
}

int QpAttributes(const Id& id, ibv_qp_attr* attr, int* mask) {
  const ibv_qp_state state = attr->qp_state;
  *attr = {};
  attr->qp_state = state;
  switch (state) {
    case IBV_QPS_INIT:
      InitAttributes(id, attr, mask);
      return 0;
    case IBV_QPS_RTR:
      RtrAttributes(id, attr, mask);
      return 0;
    case IBV_QPS_RTS:
      RtsAttributes(id, attr, mask);
      return 0;
    default:
      return EINVAL;
  }
}

int MoveTo(Id& id, ibv_qp* qp, ibv_qp_state state) {
  ibv_qp_attr attr = {};
  attr.qp_state = state;
  int mask = 0;
  {
    std::lock_guard<std::mutex> lock(id.mutex);
    if (const int error = QpAttributes(id, &attr, &mask)) return error;
  }
  return ibv_modify_qp(qp, &attr, mask);
}

int MakeReady(Id& id) {
  ibv_qp* const qp = id.part.qp;
  const bool resumes = std::exchange(id.ready_interrupted, false);
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    if (resumes && state <= qp->state) continue;
    if (const int error = MoveTo(id, qp, state)) {
      id.ready_interrupted = error == ENOMEM && state != IBV_QPS_INIT;
      return error;
    }
  }
  return 0;
}

void MakeFailed(Id& id) {
  if (id.part.qp == nullptr) return;
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  ibv_modify_qp(id.part.qp, &attr, IBV_QP_STATE);
}

ReadLimits LimitsOf(const Id& id) {
  if (id.part.verbs == nullptr) return {};
  ibv_device_attr device;
  const int error = ibv_query_device(id.part.verbs, &device);
  if (error == ENOMEM) throw std::bad_alloc();
  if (error != 0) return {};
  const auto bounded = [](int value) {
    return static_cast<uint8_t>(std::clamp(value, 0, 254));
  };
  return {.responder_resources = bounded(device.max_qp_rd_atom),
          .initiator_depth = bounded(device.max_qp_init_rd_atom)};
}

CM_EXPORT int rdma_init_qp_attr(rdma_cm_id* pointer, ibv_qp_attr* attr,
                                int* mask) {
  return IdCall(pointer, [&](Id& id) -> int {
    if (attr == nullptr || mask == nullptr) return EINVAL;
    std::lock_guard<std::mutex> lock(id.mutex);
    // An id has a device once it is bound.
    if (id.part.verbs == nullptr) return EINVAL;
    return QpAttributes(id, attr, mask);
  });
}

}  // namespace librdmacm
