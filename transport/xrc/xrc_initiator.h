// The initiator of an extended reliable connection (IBA vol. 1, annex A14): an
// RC requester whose packets name an SRQ of the target's domain. It receives
// nothing.
#ifndef TRANSPORT_XRC_XRC_INITIATOR_H_
#define TRANSPORT_XRC_XRC_INITIATOR_H_

#include "transport/qp/queue_pair.h"
#include "transport/rc/requester.h"

namespace transport {

class XrcInitiator final : public QueuePair {
 public:
  XrcInitiator(Endpoint& endpoint, const QpConfig& config);
  ~XrcInitiator() override;

 private:
  void StartSending(Time now) override { requester_.Start(now); }
  void Drain(Time now) override { requester_.Drain(now); }
  void Resume(Time now) override { requester_.Resume(now); }
  bool Drained() const override { return requester_.drained(); }
  void OnError() override { requester_.Stop(); }
  void OnReset() override { requester_.Stop(); }
  void ReportService(QpReport* report) const override;
  void OnPosted(Time now) override { requester_.OnPosted(now); }
  bool OnResponse(const Received& received, Time now) override;
  bool IsExpected(const wire::PacketView& packet) const override;
  void OnServiceTimer(Time now) override { requester_.OnTimer(now); }
  Interests TakeServiceInterests(Time now) override {
    return requester_.TakeInterests(now);
  }
  Interests TransmitService(Time now, const TransmitTurn& turn,
                            Burst* burst) override;

  Requester requester_;
};

}  // namespace transport

#endif  // TRANSPORT_XRC_XRC_INITIATOR_H_
