// An unreliable connection queue pair (IBA vol. 1, 9.8): SEND and RDMA WRITE,
// with or without immediate. No acknowledgement, no retransmission: a message
// arrives whole, or the receiver drops it silently.
//
// A work request completes when its last packet has been sent. The path paces
// the packets (Path, "without acknowledgements"), unless the peer reports what
// has arrived (UcFlight).
//
// After a gap, a packet out of sequence, or a request that it cannot execute,
// the receiver (uc_receive.cc) waits for the first packet of the next message.
// A receive that a dropped message has taken goes to the next message. Only an
// error of the receive itself, such as missing memory, ends the queue pair.
#ifndef TRANSPORT_UC_UC_QUEUE_PAIR_H_
#define TRANSPORT_UC_UC_QUEUE_PAIR_H_

#include <cstdint>

#include "transport/qp/packetizer.h"
#include "transport/qp/queue_pair.h"
#include "transport/uc/uc_flight.h"
#include "wire/packet.h"

namespace transport {

class UcQueuePair final : public QueuePair {
 public:
  UcQueuePair(Endpoint& endpoint, const QpConfig& config);
  ~UcQueuePair() override;

 private:
  // A packet at most this many PSNs behind the expected one is a duplicate or
  // late: its message was delivered or dropped. One further behind is a new
  // packet after that many losses.
  static constexpr int32_t kLatePsns = 1 << 16;
  // A packet more than this many PSNs ahead of the expected one does not prove
  // the peer's port: so many losses in a row are rare.
  static constexpr int32_t kAheadPsns = 1 << 10;

  // --- QueuePair.
  void StartReceiving() override;
  void StartSending(Time now) override;
  void Drain(Time now) override;
  void Resume(Time now) override;
  bool Drained() const override { return draining_ && position_ == 0; }
  void OnError() override;
  void OnReset() override;
  void OnOtherPath() override;
  void ReportService(QpReport* report) const override;
  void OnPosted(Time now) override { RunLocalWork(now); }
  bool OnRequest(const Received& received, Time now) override;
  bool OnResponse(const Received& received, Time now) override;
  bool IsExpected(const wire::PacketView& packet) const override;
  bool IsBeginning(const wire::PacketView& packet) const override;
  void OnServiceTimer(Time now) override {
    if (core().path != nullptr) flight_.OnTimer(core().path, now);
  }
  Interests TakeServiceInterests(Time now) override;
  Interests TransmitService(Time now, const TransmitTurn& turn,
                            Burst* burst) override;

  // --- uc_send.cc
  void StopSending();
  bool HasPackets() const;
  enum class Sent : uint8_t {
    kPackets,
    kNothing,  // the burst is full, or nothing is left
    kWindowFull
  };
  // True if it ends because the path's window is full.
  bool TransmitRequests(Time now, const TransmitTurn& turn, Burst* burst);
  // Sends a packet, or a run of MIDDLE packets.
  Sent SendNext(Time now, const TransmitTurn& turn, const Burst& burst,
                Packetizer* packetizer);
  // Completes the oldest work request with `status` and enters SQE (IBA vol. 1,
  // 10.3.1.7).
  void FailSend(WcResult result, Time now);
  // Executes local operations at the head of the queue; reports SQD drained.
  void RunLocalWork(Time now);

  // --- uc_receive.cc
  // In [expected, expected + kAheadPsns].
  static bool IsAhead(uint32_t psn, uint32_t expected);
  void Drop();
  // False if the burst is full.
  bool TransmitReport(Burst* burst);

  // --- Sending. `position_` packets of the oldest work request are sent.
  bool sending_ = false;   // from RTS until SQE, ERR or RESET
  bool draining_ = false;  // SQD
  bool drain_reported_ = false;
  bool running_local_work_ = false;
  uint32_t next_psn_ = 0;
  uint32_t position_ = 0;
  UcFlight flight_;

  // --- Receiving.
  uint32_t expected_psn_ = 0;
  // No packet near rq_psn has arrived. Others may come from a stranger.
  bool unheard_ = false;
  bool dropping_ = false;  // until the next message
  uint32_t missed_ = 0;    // packets, since RTR
  // PSN of the peer's last request for a report.
  uint32_t asked_psn_ = 0;
  bool report_due_ = false;
  bool report_first_ = false;  // it did not fit the last burst
};

}  // namespace transport

#endif  // TRANSPORT_UC_UC_QUEUE_PAIR_H_
