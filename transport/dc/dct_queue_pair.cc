#include "transport/dc/dct_queue_pair.h"

#include "wire/dc.h"

namespace transport {

DctQueuePair::DctQueuePair(Endpoint& endpoint, const QpConfig& config,
                           DcConnections& connections, uint64_t access_key)
    : QueuePair(endpoint, config, wire::Transport::kDc),
      connections_(connections),
      access_key_(access_key) {}

DctQueuePair::~DctQueuePair() { EnterReset(); }

QpConfig DctQueuePair::ConnectionConfig() {
  QpConfig config = this->config();
  config.events = this;
  config.capacity = {};
  config.queue_memory = nullptr;
  return config;
}

bool DctQueuePair::IsConnect(const wire::PacketView& packet) {
  const wire::DcEth dc = packet.dceth();
  return packet.opcode() == wire::kOpcodeDcConnect &&
         packet.payload().empty() && dc.version == wire::kDcVersion &&
         dc.from_initiator && dc.src_qpn != 0 && dc.src_qpn != wire::kNoDcQpn &&
         dc.initiator_session != wire::kNoDcSession &&
         dc.responder_session == wire::kNoDcSession;
}

bool DctQueuePair::OnRequest(const Received& received, Time now) {
  const wire::PacketView& packet = *received.packet;
  last_ = now;
  if (packet.dceth().dct != qpn()) {
    ++core().counters.dropped_window;
  } else if (packet.opcode() != wire::kOpcodeDcConnect) {
    connections_.OnEarlyData(received, now);
  } else if (!IsConnect(packet)) {
    ++core().counters.dropped_window;
  } else if (packet.dcceth().access_key != access_key_) {
    ++endpoint().service_counters().dc_key_violations;
  } else {
    connections_.OnConnect(*this, received, now);
  }
  return false;  // there is no peer whose state could be updated
}

// A failure of a connection is reported as an event of the target. The last WQE
// of a connection is not, since the target continues.
void DctQueuePair::OnQpEvent(QueuePair& /*connection*/, QpEvent event) {
  if (config().events == nullptr) return;
  if (event == QpEvent::kAccessError || event == QpEvent::kRequestError) {
    config().events->OnQpEvent(*this, event);
  }
}

}  // namespace transport
