#include "transport/testing/bring_up.h"

#include "transport/qp/state_table.h"

namespace transport {

uint32_t RequiredAttributes(QpType type, QpState to) {
  const QpState from = to == QpState::kRts   ? QpState::kRtr
                       : to == QpState::kRtr ? QpState::kInit
                                             : QpState::kReset;
  return kQpState | FindTransition(type, from, to).required;
}

QpAttributes ConnectionTo(uint32_t peer_qpn, const wire::IpAddress& source,
                          const wire::IpAddress& destination) {
  QpAttributes to;
  to.access_flags = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead |
                    kAccessRemoteAtomic;
  to.dest_qpn = peer_qpn;
  to.av.source = source;
  to.av.destination = destination;
  to.max_rd_atomic = to.max_dest_rd_atomic = 16;
  to.min_rnr_timer = 1;
  to.timeout = 14;
  to.retry_cnt = 7;
  to.rnr_retry = 7;
  return to;
}

int BringUp(QueuePair& qp, const QpAttributes& attributes, Time now) {
  QpAttributes to = attributes;
  for (const QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
    if (state == QpState::kRts && qp.config().type == QpType::kDct) break;
    to.state = state;
    const uint32_t mask = RequiredAttributes(qp.config().type, state);
    if (const int error = qp.Modify(to, mask, now)) return error;
  }
  return 0;
}

}  // namespace transport
