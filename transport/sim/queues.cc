#include "transport/sim/queues.h"

#include "transport/qp/queue_pair.h"

namespace sim {

void SimEvents::OnQpEvent(transport::QueuePair& qp, transport::QpEvent event) {
  events_.emplace_back(qp.qpn(), event);
  if (on_event) on_event(qp.qpn(), event);
}

}  // namespace sim
