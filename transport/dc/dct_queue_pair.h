// The target of dynamic connections (DCT): accepts a CONNECT from any initiator
// that knows its access key, and has a DcConnection for each. It sends nothing
// itself. Receives come from its SRQ, and complete with its number.
//
// A wrong key is counted (dc_key_violations) and not answered.
#ifndef TRANSPORT_DC_DCT_QUEUE_PAIR_H_
#define TRANSPORT_DC_DCT_QUEUE_PAIR_H_

#include <cstdint>
#include <optional>

#include "transport/dc/dc_connections.h"
#include "transport/qp/queue_pair.h"

namespace transport {

class DctQueuePair final : public QueuePair, private EventSink {
 public:
  // `config` has an SRQ. `connections` outlives it.
  DctQueuePair(Endpoint& endpoint, const QpConfig& config,
               DcConnections& connections, uint64_t access_key);
  ~DctQueuePair() override;

  // --- Calls by DcConnections.
  QpConfig ConnectionConfig();
  // A CONNECT was dropped: there is no space.
  void CountUnaccepted() { ++core().counters.dropped_window; }

 private:
  // --- QueuePair.
  void OnError() override { connections_.CloseAll(*this, last_); }
  void OnReset() override { connections_.CloseAll(*this, std::nullopt); }
  bool AcceptsAnySource(const wire::PacketView& packet) const override {
    return packet.info().is_request;
  }
  bool OnRequest(const Received& received, Time now) override;

  // --- EventSink, of the connections.
  void OnQpEvent(QueuePair& connection, QpEvent event) override;
  std::optional<uint8_t> Refuse(const RequestToExecute& request) override {
    return config().events->Refuse(request);
  }

  // Whether `packet` is a well-formed CONNECT.
  static bool IsConnect(const wire::PacketView& packet);

  DcConnections& connections_;
  const uint64_t access_key_;
  Time last_ = 0;  // of the last packet
};

}  // namespace transport

#endif  // TRANSPORT_DC_DCT_QUEUE_PAIR_H_
