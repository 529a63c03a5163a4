// The target of an extended reliable connection (IBA vol. 1, annex A14): an RC
// responder. Each request names an SRQ of the domain, which provides the
// receives, the completion queue, and the protection domain of remote keys
// (XrcDomain). It sends responses only.
#ifndef TRANSPORT_XRC_XRC_TARGET_H_
#define TRANSPORT_XRC_XRC_TARGET_H_

#include "transport/qp/queue_pair.h"
#include "transport/rc/responder.h"

namespace transport {

class XrcTarget final : public QueuePair {
 public:
  XrcTarget(Endpoint& endpoint, const QpConfig& config);
  ~XrcTarget() override;

 private:
  void StartReceiving() override { responder_.Start(); }
  void Drain(Time now) override;
  void ResizeReadResources() override { responder_.ResizeResources(); }
  void OnError() override { responder_.OnError(); }
  void OnReset() override { responder_.Reset(); }
  void ReportService(QpReport* report) const override;
  bool OnRequest(const Received& received, Time now) override;
  bool IsExpected(const wire::PacketView& packet) const override;
  bool IsWithinWindow(const wire::PacketView& packet) const override;
  void OnNotification(Time now) override { responder_.OnNotification(now); }
  void ForgetOutOfOrder() override { responder_.ForgetOutOfOrder(); }
  void OnServiceTimer(Time now) override { responder_.OnTimer(now); }
  Interests TakeServiceInterests(Time now) override;
  Interests TransmitService(Time now, const TransmitTurn& turn,
                            Burst* burst) override;

  Responder responder_;
};

}  // namespace transport

#endif  // TRANSPORT_XRC_XRC_TARGET_H_
