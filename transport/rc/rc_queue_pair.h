// A queue pair of a reliable connection: a requester and a responder that share
// its bursts. They are separate classes since an XRC queue pair has only one of
// them.
#ifndef TRANSPORT_RC_RC_QUEUE_PAIR_H_
#define TRANSPORT_RC_RC_QUEUE_PAIR_H_

#include "transport/qp/queue_pair.h"
#include "transport/rc/requester.h"
#include "transport/rc/responder.h"

namespace transport {

class RcQueuePair final : public QueuePair {
 public:
  RcQueuePair(Endpoint& endpoint, const QpConfig& config);
  ~RcQueuePair() override;

 private:
  void StartReceiving() override { responder_.Start(); }
  void StartSending(Time now) override { requester_.Start(now); }
  void Drain(Time now) override { requester_.Drain(now); }
  void Resume(Time now) override { requester_.Resume(now); }
  bool Drained() const override { return requester_.drained(); }
  uint64_t FirstUnbegun() const override { return requester_.first_unbegun(); }
  void ResizeReadResources() override { responder_.ResizeResources(); }
  void OnError() override;
  void OnReset() override;
  void ReportService(QpReport* report) const override;
  void OnPosted(Time now) override { requester_.OnPosted(now); }
  bool OnRequest(const Received& received, Time now) override;
  bool OnResponse(const Received& received, Time now) override;
  bool IsExpected(const wire::PacketView& packet) const override;
  bool IsWithinWindow(const wire::PacketView& packet) const override;
  void OnNotification(Time now) override { responder_.OnNotification(now); }
  void ForgetOutOfOrder() override { responder_.ForgetOutOfOrder(); }
  void OnServiceTimer(Time now) override;
  Interests TakeServiceInterests(Time now) override;
  Interests TransmitService(Time now, const TransmitTurn& turn,
                            Burst* burst) override;

  // The responder had to wait for the requester in the last burst.
  bool responder_first_ = false;
  Requester requester_;
  Responder responder_;
};

}  // namespace transport

#endif  // TRANSPORT_RC_RC_QUEUE_PAIR_H_
