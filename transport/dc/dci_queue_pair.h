// The initiator of dynamic connections (DCI): an RC requester whose work
// requests name their target, a DCT and its access key.
//
// It has one connection at a time. Work requests to the same target share it. A
// work request to another target waits until all before it are complete. Then a
// CONNECT goes to the new target, and the request's packets follow the answer.
// A lost CONNECT is retransmitted as early as RC's probes, and costs a retry
// (retry_cnt) with each local ACK timeout.
//
// An initiator does not learn that its target has evicted the connection. So
// before it sends after kIdle without an answer, it connects anew
// (DcConnections).
//
// Its PSNs continue through all connections. A CONNECT uses one.
//
// With streams (mlx5dv_create_qp(3)) each work request with packets belongs to
// one, and a failure ends its stream alone: the requests of that stream are
// flushed at their turn, and the others continue over a new connection. Only
// requests of one stream are in flight at a time, so a failure affects no other
// stream. The initiator goes to ERR when as many streams as
// QpConfig::dci_errored_streams have failed, or when a request without packets
// fails, which has no stream.
#ifndef TRANSPORT_DC_DCI_QUEUE_PAIR_H_
#define TRANSPORT_DC_DCI_QUEUE_PAIR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "transport/dc/dc_lane.h"
#include "transport/qp/destinations.h"
#include "transport/qp/header_front.h"
#include "transport/qp/queue_pair.h"
#include "transport/rc/requester.h"
#include "transport/rc/retry_budget.h"
#include "wire/dc.h"

namespace transport {

class DciQueuePair final : public QueuePair, private HeaderFront {
 public:
  // An open connection may have been evicted if it was not used for this long.
  static constexpr Time kIdle = kSecond;

  // `lane` outlives it.
  DciQueuePair(Endpoint& endpoint, const QpConfig& config, DcLane& lane);
  ~DciQueuePair() override;

  int ResetStream(uint16_t stream) override;

  // --- EndpointQp. Visits the addresses of queued work requests, too.
  void ForEachAddress(const VisitAddress& visit) const override;

 private:
  // Repeats of a CONNECT are at most this far apart.
  static constexpr Time kLongestRepeat = 250 * kMillisecond;

  // Target of a work request; `to` is null for local operations.
  struct Target {
    Destination* to = nullptr;
    uint64_t key = 0;
    uint32_t dct = 0;
    uint16_t stream = 0;

    bool operator==(const Target&) const = default;
    // Whether they share a connection.
    bool IsSamePeer(const Target& other) const {
      return to == other.to && key == other.key && dct == other.dct;
    }
  };
  struct ErroredStream {
    uint16_t stream = 0;
    Reason reason = Reason::kNone;
  };
  enum class Phase : uint8_t {
    kStopped,     // before RTS, and in ERR
    kIdle,        // there is no connection
    kConnecting,  // a CONNECT must be sent, or has been sent
    kOpen,
  };
  // While kConnecting.
  struct Attempt {
    uint32_t psn = 0;
    bool due = false;          // to be sent
    Time repeat_after = 0;     // doubles with each repeat
    Time repeat_at = kNever;   // spends nothing
    Time timeout_at = kNever;  // spends a retry
    RetryBudget retries = {};
  };

  // --- QueuePair.
  void StartSending(Time now) override;
  // There is no SQD.
  void Drain(Time now) override { requester_.Drain(now); }
  void Resume(Time now) override { requester_.Resume(now); }
  bool Drained() const override { return requester_.drained(); }
  bool Survives(Time now) override;
  void OnError() override;
  void OnReset() override;
  void ReportService(QpReport* report) const override;
  int CheckServiceFields(const SendRequest& request) const override;
  int PrepareServiceFields(const SendRequest& request) override;
  void StoreServiceFields(const SendRequest& request) override;
  void OnPosted(Time now) override;
  bool OnResponse(const Received& received, Time now) override;
  bool IsExpected(const wire::PacketView& packet) const override;
  void OnServiceTimer(Time now) override;
  Interests TakeServiceInterests(Time now) override;
  Interests TransmitService(Time now, const TransmitTurn& turn,
                            Burst* burst) override;

  // --- HeaderFront.
  void Emit(uint8_t opcode, uint8_t* packet) const override {
    wire::EmitDcEth(dceth_, opcode, packet);
  }

  Target& TargetOf(uint64_t index) { return targets_[index & mask_]; }
  const Target& TargetOf(uint64_t index) const {
    return targets_[index & mask_];
  }
  bool has_streams() const { return config().dci_errored_streams != 0; }
  // Why the stream of `target` has failed; nothing: it has not.
  std::optional<Reason> WhyErrored(const Target& target) const;
  // Flushes the oldest work requests while their stream has failed.
  void FlushErroredStreams(Time now);
  // Moves held_ over work requests that need no other connection and belong to
  // the stream in flight.
  void ExtendHeld();
  // Whether the oldest work request needs a connection that does not exist.
  bool NeedsConnection(Time now) const;
  void BeginConnecting(Time now);
  void OnConnectTimer(Time now);
  // Adds the CONNECT to `burst` if there is space.
  void TransmitConnect(Time now, Burst* burst);
  // The answer to the outstanding CONNECT.
  bool IsAnswer(const wire::PacketView& packet) const;
  // A packet of the open connection.
  bool IsOfConnection(const wire::PacketView& packet) const;
  Interests ConnectInterests() const;

  DcLane& lane_;
  const uint64_t mask_;
  // A ring parallel to the send queue. Unused entries take no memory.
  const std::unique_ptr<Target[]> targets_;
  Destinations destinations_;
  Target next_target_;  // of the request that is being queued
  Phase phase_ = Phase::kStopped;
  // The target of the connection, from kConnecting on, with the stream in
  // flight.
  Target current_;
  wire::DcEth dceth_;  // of the packets sent to it
  Attempt attempt_;
  Time heard_ = 0;     // last answer
  uint64_t held_ = 0;  // the first work request for another connection
  Requester requester_;
  std::vector<ErroredStream> errored_;
  // A stream has failed: the next connection begins after the current burst.
  bool restarted_ = false;
  bool flushing_ = false;
};

}  // namespace transport

#endif  // TRANSPORT_DC_DCI_QUEUE_PAIR_H_
