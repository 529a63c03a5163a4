// Creates queue pairs of each transport service.
#ifndef TRANSPORT_QUEUE_PAIRS_H_
#define TRANSPORT_QUEUE_PAIRS_H_

#include <cstdint>
#include <memory>

#include "transport/dc/dc_connections.h"
#include "transport/endpoint/endpoint.h"
#include "transport/qp/queue_pair.h"
#include "transport/raw/raw_packet_queue_pair.h"

namespace transport {

// For kDci and kDct.
struct DcConfig {
  DcConnections* connections = nullptr;  // of the lane; outlives the queue pair
  uint64_t access_key = 0;               // kDct
};

// A queue pair in RESET, registered with `endpoint`, which outlives it. Null:
// no such service, or `dc` lacks what a DC type needs, as does a kDct without
// SRQ. `max_tso_header`: bytes, for kUd and kRawPacket; 0: no segmentation.
// `raw`: for kRawPacket.
std::unique_ptr<QueuePair> MakeQueuePair(Endpoint& endpoint,
                                         const QpConfig& config,
                                         uint32_t max_tso_header = 0,
                                         const RawPacketConfig& raw = {},
                                         const DcConfig& dc = {});

}  // namespace transport

#endif  // TRANSPORT_QUEUE_PAIRS_H_
