// A queue pair of unreliable datagrams (IBA vol. 1, 9.8.3; annex A17): SEND,
// with immediate or without, each in one packet, to any queue pair that has the
// same Q_Key. Nothing is acknowledged and nothing sent again.
//
// A work request names its destination, which all segments of one that is
// segmented (kTso) go to. It completes when its packet has been
// given to the wire, and in order: what the path to its destination holds up
// holds up those behind it (Path, "without acknowledgements"). A message that
// is longer than the port's MTU ends with kLocalLengthError, and the send queue
// with it: state SQE (IBA vol. 1, 10.3.1.7; 11.6.2).
//
// What cannot be taken is dropped and counted: a wrong Q_Key or P_Key, a packet
// for which no receive is posted, or whose receive is too short for it (9.9.3,
// class D): that one is the next one's, unless it is an SRQ's, which ends with
// kLocalLengthError (class E). Anybody may send, so neither ends the queue
// pair. Only a receive whose memory is not there does.
//
// Congestion marks are not answered by CNPs; those that come from the
// destination in use slow its path down.
#ifndef TRANSPORT_UD_UD_QUEUE_PAIR_H_
#define TRANSPORT_UD_UD_QUEUE_PAIR_H_

#include <cstdint>
#include <memory>

#include "transport/qp/packetizer.h"
#include "transport/qp/queue_pair.h"
#include "transport/qp/tso_headers.h"
#include "transport/ud/destinations.h"

namespace transport {

class UdQueuePair final : public QueuePair {
 public:
  // `max_tso_header`: bytes; 0: no segmentation.
  UdQueuePair(Endpoint& endpoint, const QpConfig& config,
              uint32_t max_tso_header);
  ~UdQueuePair() override;

  // --- EndpointQp. Those of queued work requests: each new one says its own.
  void ForEachAddress(const VisitAddress& visit) const override;

 private:
  // A remote Q_Key with this bit is replaced by the queue pair's own (IBA vol.
  // 1, 10.2.5, "controlled Q_Keys").
  static constexpr uint32_t kOwnQkey = 0x80000000;

  // Where a queued work request goes.
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
  int CheckParticulars(const SendRequest& request) const override;
  int PrepareParticulars(const SendRequest& request) override;
  void TakeParticulars(const SendRequest& request) override;
  void OnPosted(Time) override {}
  bool OnRequest(const Received& received, Time now) override;
  // UD has no responses.
  bool OnResponse(const Received&, Time) override { return false; }
  bool IsExpected(const wire::PacketView&) const override { return false; }
  void OnServiceTimer(Time) override {}
  Interests TakeServiceInterests(Time now) override;
  Interests TransmitService(Time now, const TransmitTurn& turn,
                            Burst* burst) override;

  void StopSending();
  // What has been begun is sent to its end.
  bool HasPackets() const {
    return sending_ && (!draining_ || segment_ != 0) &&
           !core().send_queue.empty();
  }
  Address& AddressOf(uint64_t index) { return addresses_[index & mask_]; }
  const Address& AddressOf(uint64_t index) const {
    return addresses_[index & mask_];
  }
  // The oldest work request's destination is where packets go from here on.
  void Direct();
  // Sends the oldest work request, or its next segment. False when the burst
  // has no room, or the send queue has failed.
  bool SendNext(Time now, Packetizer* packetizer);
  bool SendMessage(uint64_t index, Time now, Packetizer* packetizer);
  bool SendSegment(uint64_t index, Time now, Packetizer* packetizer);
  // The oldest work request has been sent. False: the send queue has failed.
  bool Complete(Time now);
  // The oldest work request ends with `status`; to SQE.
  void FailSend(WcStatus status, Time now);

  bool sending_ = false;   // from RTS to SQE, ERR or RESET
  bool draining_ = false;  // SQD
  uint32_t next_psn_ = 0;
  const uint64_t mask_;
  // A ring, as the send queue is: untouched memory of a large one costs
  // nothing.
  const std::unique_ptr<Address[]> addresses_;
  const std::unique_ptr<TsoHeaders> headers_;  // null: no segmentation
  uint32_t segment_ = 0;  // of the oldest work request: those that have gone
  Destinations destinations_;
  Destination* current_ = nullptr;  // of the packets that go next
  Destination* next_to_ = nullptr;  // of the request that is about to be queued
};

}  // namespace transport

#endif  // TRANSPORT_UD_UD_QUEUE_PAIR_H_
