// An unreliable datagram queue pair (IBA vol. 1, 9.8.3; annex A17): SEND, with
// or without immediate, in one packet, to any queue pair with the same Q_Key.
// No acknowledgement, no retransmission.
//
// A work request names its destination, also for all its segments (kTso). It
// completes when its packet has been sent, in order: a path that holds up a
// request holds up those behind it (Path, "without acknowledgements"). A
// message longer than the port's MTU completes with kLocalLengthError, and the
// send queue enters SQE (IBA vol. 1, 10.3.1.7; 11.6.2).
//
// Dropped and counted: a wrong Q_Key or P_Key, a packet without a posted
// receive, and one that is too long for its receive (9.9.3, class D). That
// receive goes to the next packet, except that one of an SRQ completes with
// kLocalLengthError (class E). Anyone may send, so none of these ends the queue
// pair. Only a receive whose memory is gone does.
//
// Congestion marks are not answered by CNPs. CNPs from the current destination
// slow down its path.
#ifndef TRANSPORT_UD_UD_QUEUE_PAIR_H_
#define TRANSPORT_UD_UD_QUEUE_PAIR_H_

#include <cstdint>
#include <memory>

#include "transport/qp/destinations.h"
#include "transport/qp/packetizer.h"
#include "transport/qp/queue_pair.h"
#include "transport/qp/tso_headers.h"

namespace transport {

class UdQueuePair final : public QueuePair {
 public:
  // `max_tso_header`: bytes; 0: no segmentation.
  UdQueuePair(Endpoint& endpoint, const QpConfig& config,
              uint32_t max_tso_header);
  ~UdQueuePair() override;

  // --- EndpointQp. Visits the addresses of queued work requests.
  void ForEachAddress(const VisitAddress& visit) const override;

 private:
  // A remote Q_Key with this bit is replaced by the queue pair's own (IBA vol.
  // 1, 10.2.5, "controlled Q_Keys").
  static constexpr uint32_t kOwnQkey = 0x80000000;

  // Destination of a queued work request.
  struct Address {
    Destination* to;
    uint32_t qpn;
    uint32_t qkey;
  };

  // --- QueuePair.
  void StartReceiving() override;
  void StartSending(Time now) override;
  void Drain(Time now) override;
  void Resume(Time now) override;
  bool Drained() const override { return draining_ && segment_ == 0; }
  void OnError() override { StopSending(); }
  void OnReset() override;
  void ReportService(QpReport* report) const override;
  int CheckServiceFields(const SendRequest& request) const override;
  int PrepareServiceFields(const SendRequest& request) override;
  void StoreServiceFields(const SendRequest& request) override;
  bool OnRequest(const Received& received, Time now) override;
  Interests TakeServiceInterests(Time now) override;
  Interests TransmitService(Time now, const TransmitTurn& turn,
                            Burst* burst) override;

  void StopSending();
  // A request that was begun is always finished.
  bool HasPackets() const {
    return sending_ && (!draining_ || segment_ != 0) &&
           !core().send_queue.empty();
  }
  Address& AddressOf(uint64_t index) { return addresses_[index & mask_]; }
  const Address& AddressOf(uint64_t index) const {
    return addresses_[index & mask_];
  }
  // Sends by the flow of the oldest work request's destination from now on.
  void Direct();
  // Sends the oldest work request or its next segment. False when it does not
  // fit the burst, or the send queue has failed.
  bool SendNext(Time now, Packetizer* packetizer);
  bool SendMessage(uint64_t index, Time now, Packetizer* packetizer);
  bool SendSegment(uint64_t index, Time now, Packetizer* packetizer);
  // Completes the oldest work request. False: the send queue has failed.
  bool Complete(Time now);
  // Completes the oldest work request with `status` and enters SQE.
  void FailSend(WcResult result, Time now);

  bool sending_ = false;   // from RTS until SQE, ERR or RESET
  bool draining_ = false;  // SQD
  uint32_t next_psn_ = 0;
  const uint64_t mask_;
  // A ring parallel to the send queue. Unused entries take no memory.
  const std::unique_ptr<Address[]> addresses_;
  const std::unique_ptr<TsoHeaders> headers_;  // null: no segmentation
  uint32_t segment_ = 0;  // segments sent of the oldest work request
  Destinations destinations_;
  Destination* current_ = nullptr;  // of the next packets
  Destination* next_to_ = nullptr;  // of the request that is being queued
};

}  // namespace transport

#endif  // TRANSPORT_UD_UD_QUEUE_PAIR_H_
