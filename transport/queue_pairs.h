// Creates queue pairs of each transport service.
#ifndef TRANSPORT_QUEUE_PAIRS_H_
#define TRANSPORT_QUEUE_PAIRS_H_

#include <cstdint>
#include <memory>

#include "transport/endpoint/endpoint.h"
#include "transport/qp/queue_pair.h"
#include "transport/raw/raw_packet_queue_pair.h"

namespace transport {

// A queue pair in RESET, registered with `endpoint`, which outlives it. Null:
// no such service. `max_tso_header`: bytes, for kUd and kRawPacket; 0: no
// segmentation. `raw`: for kRawPacket.
std::unique_ptr<QueuePair> MakeQueuePair(Endpoint& endpoint,
                                         const QpConfig& config,
                                         uint32_t max_tso_header = 0,
                                         const RawPacketConfig& raw = {});

}  // namespace transport

#endif  // TRANSPORT_QUEUE_PAIRS_H_
