#include "transport/queue_pairs.h"

#include "transport/dc/dci_queue_pair.h"
#include "transport/dc/dct_queue_pair.h"
#include "transport/raw/raw_packet_queue_pair.h"
#include "transport/rc/rc_queue_pair.h"
#include "transport/uc/uc_queue_pair.h"
#include "transport/ud/ud_queue_pair.h"
#include "transport/xrc/xrc_initiator.h"
#include "transport/xrc/xrc_target.h"

namespace transport {

std::unique_ptr<QueuePair> MakeQueuePair(Endpoint& endpoint,
                                         const QpConfig& config,
                                         uint32_t max_tso_header,
                                         const RawPacketConfig& raw,
                                         const DcConfig& dc) {
  switch (config.type) {
    case QpType::kRc:
      return std::make_unique<RcQueuePair>(endpoint, config);
    case QpType::kUc:
      return std::make_unique<UcQueuePair>(endpoint, config);
    case QpType::kUd:
      return std::make_unique<UdQueuePair>(endpoint, config, max_tso_header);
    case QpType::kRawPacket:
      return std::make_unique<RawPacketQueuePair>(endpoint, config, raw,
                                                  max_tso_header);
    case QpType::kXrcInitiator:
      return std::make_unique<XrcInitiator>(endpoint, config);
    case QpType::kXrcTarget:
      return std::make_unique<XrcTarget>(endpoint, config);
    case QpType::kDci:
      if (dc.connections == nullptr) return nullptr;
      return std::make_unique<DciQueuePair>(endpoint, config,
                                            dc.connections->lane());
    case QpType::kDct:
      if (dc.connections == nullptr || config.srq == nullptr) return nullptr;
      return std::make_unique<DctQueuePair>(endpoint, config, *dc.connections,
                                            dc.access_key);
  }
  return nullptr;
}

}  // namespace transport
