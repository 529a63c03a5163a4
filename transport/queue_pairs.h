// Makes queue pairs of each transport service.
#ifndef TRANSPORT_QUEUE_PAIRS_H_
#define TRANSPORT_QUEUE_PAIRS_H_

#include <memory>

#include "transport/endpoint/endpoint.h"
#include "transport/qp/queue_pair.h"
#include "transport/raw/raw_packet_queue_pair.h"

namespace transport {

// In RESET, known to `endpoint`, which outlives it. Null: no such service.
// `raw`: of QpType::kRawPacket.
std::unique_ptr<QueuePair> MakeQueuePair(Endpoint& endpoint,
                                         const QpConfig& config,
                                         const RawPacketConfig& raw = {});

}  // namespace transport

#endif  // TRANSPORT_QUEUE_PAIRS_H_
