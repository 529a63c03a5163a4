// A queue pair of an unreliable connection (IBA vol. 1, 9.8): SEND and RDMA
// WRITE, with immediate or without. Nothing is acknowledged and nothing sent
// again: a message arrives whole, or the receiver drops it silently.
//
// A work request completes when its last packet has been given to the wire.
// How fast that goes is the path's business (Path, "without
// acknowledgements"), since nobody tells what has arrived.
//
// The receiver (uc_receive.cc) waits for the first packet of the next message
// after a gap, a packet out of sequence, or a request that it cannot execute. A
// receive that a dropped message has taken is the next message's. Only an error
// of its own, a receive whose memory is not there, ends the queue pair.
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
  // A packet whose PSN is so little behind the expected one is a copy, or was
  // overtaken: its message has been delivered or dropped. What is further
  // behind comes after as many losses as make the PSN wrap around.
  static constexpr int32_t kLatePsns = 1 << 16;
  // Nor does it tell the port of the peer if it is further ahead of the
  // expected one: what was lost between two packets is rarely more.
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
    kNothing,  // the burst has no room, or nothing is left
    kWindowFull
  };
  // Whether it ends because the path's window is full.
  bool TransmitRequests(Time now, const TransmitTurn& turn, Burst* burst);
  // Sends a packet, or a run of those in the middle of a message.
  Sent SendNext(Time now, const TransmitTurn& turn, const Burst& burst,
                Packetizer* packetizer);
  // The oldest work request ends with `status`, and the send queue with it:
  // state SQE (IBA vol. 1, 10.3.1.7).
  void FailSend(WcStatus status, Time now);
  // Local operations whose turn has come; SQD drained.
  void RunLocalWork(Time now);

  // --- uc_receive.cc
  // Not behind `expected`, and at most kAheadPsns before it.
  static bool IsAhead(uint32_t psn, uint32_t expected);
  void Drop();
  // False if the burst has no room.
  bool TransmitAnswer(Burst* burst);

  // --- Sending: the oldest work request, of which `position_` packets are
  // sent.
  bool sending_ = false;   // from RTS to SQE, ERR or RESET
  bool draining_ = false;  // SQD
  bool drain_reported_ = false;
  bool running_local_work_ = false;
  uint32_t next_psn_ = 0;
  uint32_t position_ = 0;
  UcFlight flight_;

  // --- Receiving.
  uint32_t expected_psn_ = 0;
  // Nothing near rq_psn has come. What has may be a stranger's.
  bool unheard_ = false;
  bool dropping_ = false;  // until a message begins
  uint32_t missed_ = 0;    // packets, since RTR
  // The peer has asked, last with this PSN.
  uint32_t asked_psn_ = 0;
  bool answer_due_ = false;
  bool answer_first_ = false;  // there was no room behind the last burst
};

}  // namespace transport

#endif  // TRANSPORT_UC_UC_QUEUE_PAIR_H_
