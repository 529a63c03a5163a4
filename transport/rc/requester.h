// The requester half of a reliable connection (IBA vol. 1, 9.7.5): takes send
// work requests, sends their packets, and completes them in order.
//
// The class dispatches. Its state is in parts with one job each:
//   SendSequence      where it stands in its packets
//   OutstandingReads  READs and atomics that wait for responses
//   MissingResponses  which of those responses are missing
//   LossDetector      when packets are considered lost
//   PeerBuffering     whether the peer buffers packets beyond a gap
//   RetransmitPlan    what is retransmitted
//   RetryBudget       how often
//   FlightAccount     what is in flight, and how much may be
//   MessageCredits    end-to-end flow control
//   AckRequests       when a packet asks for an ACK
//
// Its methods are in one file for each kind of event: requester.cc (calls by
// the queue pair), requester_send.cc (what is next) and requester_packet.cc
// (sending it), requester_ack.cc, requester_read.cc, requester_missing.cc,
// requester_loss.cc and requester_timer.cc.
//
// The bytes in flight are always the cost of [una, nxt), less what has arrived,
// or is buffered by the peer, beyond a gap. One function, SyncFlight, computes
// them, so they cannot leak.
#ifndef TRANSPORT_RC_REQUESTER_H_
#define TRANSPORT_RC_REQUESTER_H_

#include <cstdint>
#include <memory>

#include "transport/base/burst.h"
#include "transport/base/types.h"
#include "transport/congestion/flight_account.h"
#include "transport/congestion/path.h"
#include "transport/endpoint/endpoint_qp.h"
#include "transport/qp/packetizer.h"
#include "transport/qp/qp_core.h"
#include "transport/rc/ack_requests.h"
#include "transport/rc/loss_detector.h"
#include "transport/rc/message_credits.h"
#include "transport/rc/missing_responses.h"
#include "transport/rc/outstanding_reads.h"
#include "transport/rc/peer_buffering.h"
#include "transport/rc/retransmit_plan.h"
#include "transport/rc/retry_budget.h"
#include "transport/rc/send_sequence.h"
#include "wire/aeth.h"
#include "wire/packet.h"

namespace transport {

// The specification lets a requester wait for one to four times the local ACK
// timeout (IBA vol. 1, 9.7.6.1.3). Ours waits for twice that time: a peer in
// software may have to wait for a core, and probes find losses much sooner. For
// a peer that has never answered it waits for exactly that time.
inline constexpr int kAckTimeoutFactor = 2;

// A failure goes to QpCore::Fail and stops the requester. Guarded by its
// endpoint's lock.
class Requester {
 public:
  explicit Requester(QpCore& core) : core_(core) {}

  // --- Calls by the queue pair.
  // To RTS: PSNs start at attributes.sq_psn.
  void Start(Time now);
  // To RESET or ERR: gives back what is in flight, forgets all sequence state.
  void Stop();
  // After a failure: the remaining work requests start anew, and PSNs continue.
  // The caller holds them (HoldAt), or changes the peer.
  void Restart();
  // Changes to another peer: the next packet has PSN `first_psn`. Nothing may
  // be outstanding, and the path is still that of the old peer.
  void ChangePeer(uint32_t first_psn);
  // Holds work requests from `index` on. Those before it end as if nothing
  // followed them.
  void HoldAt(uint64_t index) {
    if (!failures_.is_local()) failures_.local_index = index;
  }
  // Ends the oldest work request, which has not begun.
  void CompleteUnsent(WcResult result, Time now);
  // State SQD entered or left.
  void Drain(Time now);
  void Resume(Time now);
  bool drained() const {
    return phase_.draining && queue().head() == snd_.begun;
  }
  uint64_t first_unbegun() const { return snd_.begun; }
  // PSN of the next new packet, and of the oldest that is not acknowledged.
  uint32_t send_psn() const { return snd_.PsnOf(snd_.max); }
  uint32_t unacked_psn() const { return snd_.PsnOf(snd_.una); }
  // Whether nothing is outstanding, and no message is sent in part.
  bool idle() const {
    return snd_.una == snd_.max && snd_.begun == core_.send_queue.head();
  }
  // Adds what the oldest work request waits for.
  void Report(QpReport* report) const;
  // A work request has been queued. With packets, it waits for its turn.
  void OnPosted(Time now) {
    const SendWqe& posted = queue().at(queue().tail() - 1);
    if (posted.operation().kind == SendKind::kLocal) RunLocalWork(now);
  }
  // What follows from a change of state, after any event: runs local operations
  // whose turn has come, ends work requests that have failed, reports that SQD
  // is drained.
  void RunLocalWork(Time now);

  // --- Inputs: response packets (ACK, NAK, RNR NAK, READ response, atomic ACK)
  // whose source and P_Key have been checked. True if the packet answers an
  // outstanding request.
  bool OnResponse(const wire::PacketView& packet, Time now);
  bool Answers(const wire::PacketView& packet) const;
  void OnTimer(Time now);

  // --- Outputs.
  // There is a packet that was never sent.
  bool NewIsQueued() const {
    return snd_.nxt_index != snd_.begun ||
           (!phase_.draining && snd_.begun != queue().tail());
  }
  // Adds request packets to `burst`, which has been begun for the queue pair's
  // flow. Returns what TakeInterests would.
  Interests Transmit(Time now, const TransmitTurn& turn, Burst* burst);
  Interests TakeInterests(Time now) {
    return InterestsWith(!queue().empty() &&
                         NextSource(now) != Source::kNothing);
  }

 private:
  // Outstanding PSNs; the window keeps them far below. Must be below 2^23.
  static constexpr uint64_t kMaxOutstanding = uint64_t{1} << 22;

  // What is next to be sent.
  enum class Source : uint8_t {
    kNothing,  // until something else happens
    kResend,   // out of turn: what is missing at the peer
    kMissing,  // out of turn: what is missing here
    kReplay,   // from nxt on, before max
    kNew,
  };
  // What Transmit may do about it.
  enum class Next : uint8_t {
    kNothing,
    kWindow,  // until the path's window opens
    kTurn,    // until it is this queue pair's turn again
    kPacket,  // send `Item`
  };
  struct Item {
    uint64_t index = 0;  // work request
    uint64_t seq = 0;    // unless it begins
    // PSNs: of a READ, how many packets to ask for; else, how many to send.
    uint32_t count = 1;
    bool begins = false;       // first packet of a new work request
    bool out_of_turn = false;  // leaves nxt where it is
  };
  enum class SendResult : uint8_t { kSent, kNoRoom, kFailed };
  // Where it is in the states of the queue pair (IBA vol. 1, 10.3.1).
  struct Phase {
    bool running : 1 = false;   // from RTS to ERR or RESET
    bool draining : 1 = false;  // SQD
    bool drain_reported : 1 = false;
    // A request with a data error is complete: SQD is due
    // (QpConfig::stops_at_data_errors).
    bool data_error : 1 = false;
  };
  // For TakeInterests.
  struct TurnHints {
    // Retransmissions do not wait for the window.
    bool past_window : 1 = false;
    bool end_turn : 1 = false;  // others come first
  };
  // One round trip is measured at a time, and never over a retransmission: it
  // would be unknown which of the two packets was answered.
  struct RoundTripSample {
    uint64_t seq = kNoSequence;  // whose answer ends it
    Time sent = 0;
  };
  // Failures that take effect when earlier work requests are done. kNoSequence:
  // there is none.
  struct PendingFailures {
    // Work request that failed here, or that is held (HoldAt).
    uint64_t local_index = kNoSequence;
    uint64_t nak_seq = kNoSequence;  // a NAK that ends the connection
    WcResult local_result;
    WcResult nak_result;

    bool is_local() const { return local_result.status != WcStatus::kSuccess; }
  };

  // --- requester.cc
  // Forgets all that belongs to one connection.
  void Forget();
  // Completes the oldest work request with `result`; the queue pair goes to
  // the error state. Callers return at once.
  void Fail(WcResult result, Time now);
  // Completes the oldest work request, which takes no sequence numbers.
  void EndUnsent(WcResult result, Time now);
  void RunLocalWorkOnce(Time now);

  // --- requester_send.cc
  Source NextSource(Time now) const;
  [[gnu::noinline]] bool ReplayIsDue() const;  // rare
  bool NewIsDue() const;                       // if it is queued
  // Whether the next request, which has a fence, waits.
  bool FenceHolds() const;
  // Whether the next request waits for its fence, if it has one (`fence`), or
  // for the queue pair's share.
  [[gnu::noinline]] bool NewIsHeld(bool fence) const;  // rare
  // Costs of the next packet never sent, and of the next item retransmitted.
  uint64_t NewCost() const;
  uint64_t ReplayCost() const;
  // Finds the item that comes next, and whether the window permits it.
  Next Decide(Time now, Item* item) const;
  Next DecideNew(Item* item) const;
  // Rare.
  [[gnu::noinline]] Next DecideReplay(Item* item) const;
  [[gnu::noinline]] Next DecideResend(Item* item) const;
  [[gnu::noinline]] Next DecideMissing(Item* item) const;
  bool HasCreditFor(const SendWqe& wqe, bool begins) const;

  // --- requester_packet.cc
  // Sends `*item` and the middle packets that follow it, then decides what is
  // next. If nothing is, the last packet asks for an ACK.
  SendResult Send(Time now, const TransmitTurn& turn, Item* item, Next* next,
                  Burst* burst, Packetizer* packetizer);
  // How many packets from `item` on, in the middle of a message, may be sent
  // now and fit the burst. Only the last of them may have to ask for an ACK.
  uint32_t CountMiddlePackets(const SendWqe& wqe, const Item& item,
                              const Packetizer& packetizer) const;
  // Whether the last packet of `item` asks for an ACK. `more`: another packet
  // follows in this turn.
  bool WantAckReq(const SendWqe& wqe, const Item& item, bool more) const;
  void Begin(SendWqe* wqe);
  // `item` of `wqe` was sent as `packets` packets, with `payload` bytes each.
  void NoteSent(Time now, const SendWqe& wqe, const Item& item,
                uint32_t packets, size_t payload);
  // Work request `index` cannot continue; it fails when those before it are
  // done.
  void FailLocally(uint64_t index, WcResult result);

  // --- requester_ack.cc
  bool TakeResponse(const wire::PacketView& packet, Time now);
  void OnAcknowledge(uint64_t seq, const wire::Aeth& aeth, Time now);
  void OnNak(uint64_t seq, wire::NakCode code, Time now);
  void OnRnrNak(uint64_t seq, uint8_t timer, Time now);
  // The peer has executed everything before `until`.
  void Acknowledge(uint64_t until, Time now);
  // Moves una over acknowledged packets, up to a READ or an atomic.
  void Proceed(Time now);
  // Moves una to `to`, completing what ends before it.
  void AdvanceTo(uint64_t to, Time now);

  // --- requester_read.cc
  // How many of `remaining` packets to ask for now; 0 to wait for the window.
  uint32_t ReadCount(uint64_t remaining, bool always) const;
  // The response to a READ or an atomic that is outstanding.
  void OnAnswer(uint64_t seq, const wire::PacketView& packet, Time now);
  // Places a response in the buffers of work request `index`, if it fits its
  // number. Returns success, or how the work request must end.
  WcResult Place(uint64_t index, const OutstandingReads::Entry& read,
                 uint64_t seq, const wire::PacketView& packet);
  bool IsExpectedPosition(const OutstandingReads::Entry& slot, uint64_t seq,
                          wire::Operation operation) const;
  // Whether the buffers of work request `index` must be filled in order
  // (Memory::NeedsOrder).
  bool NeedsOrder(uint64_t index) const;
  MemoryStatus CheckTarget(uint64_t index, uint64_t offset, uint64_t bytes);

  // --- requester_missing.cc
  // Whether anything is known to be missing, or has arrived ahead.
  bool HasMissing() const {
    return missing_ != nullptr && missing_->known_to() > snd_.una;
  }
  // Responses to READs and atomics before `until` that have not arrived are
  // missing. False if that cannot be noted.
  bool NoteMissing(uint64_t until, Time now);
  // A response beyond una: whether to take it.
  bool AdmitAhead(uint64_t seq, const wire::PacketView& packet, Time now);
  // Whether the payload placed for `seq` equals that of `packet`.
  bool IsSame(uint64_t seq, const wire::PacketView& packet);
  // `seq` has been placed while something before or beyond it is missing.
  void TakeAhead(uint64_t seq, Time now);
  // Requests the ranges that are due: they count as lost.
  void AskForDue(Time now);
  // The next range to ask for; null: none.
  const MissingResponses::Range* DueRange() const;
  // How many more packets may be requested again now.
  uint64_t MissingRoom() const;
  // The end of the gap that contains `seq`, a missing packet of `read`.
  uint64_t MissingEnd(uint64_t seq, const OutstandingReads::Entry& read) const;
  // The end of a replay of `read`: behind its last missing packet.
  uint64_t ReplayEnd(const OutstandingReads::Entry& read) const;
  // The first of `read` that is missing.
  uint64_t FirstMissing(const OutstandingReads::Entry& read) const;

  // --- requester_loss.cc
  // The peer has answered something beyond una: the response to the READ or
  // atomic at una was lost.
  void OnGap(Time now);
  // A NAK of una.
  void OnSequenceNak(Time now);
  // Charges a retry for a gap at una, if LossDetector::OnGap says so. False: no
  // retry was left, and the queue pair has failed.
  bool CountGap(Time now);
  // `reason`: why the queue pair fails if no retry is left.
  bool CountRetry(Reason reason, Time now);
  void NoteLoss(Time now);  // LossDetector::IsNewFlight
  // Everything from una on is retransmitted.
  void Rewind();
  // Retransmits out of turn what is missing at una, without what the peer
  // buffers beyond.
  void ResendGap();
  // Retransmits out of turn `seq`, or the READ or atomic that it belongs to.
  void ResendOne(uint64_t seq);
  void NoteOutOfTurn();
  // Continues a run of retransmissions with packet `next`, if that still
  // belongs to it.
  void ContinueResend(uint64_t next);
  // Moves nxt over what the peer is known to have.
  void SkipAcknowledged() {
    if (snd_.nxt < snd_.max && snd_.nxt < snd_.acknowledged) SkipAtNext();
  }
  void SkipAtNext();  // there is something to skip

  // --- requester_timer.cc
  void RunTimers(Time now);
  // Packets in flight count as lost until the peer shows otherwise.
  void OnSilence(Time now);
  void OnAckTimeout(Time now);
  void OnProbe(Time now);
  void OnEarlyProbe(Time now);
  void ResendProbe();
  Time NextTimeout() const {
    return rnr_until_ != kNever || snd_.outstanding() ? ArmedTimeout() : kNever;
  }
  Time ArmedTimeout() const;
  LossDetector::Conditions TimerConditions() const;

  // --- requester_flight.cc
  void SyncFlight() {
    const uint64_t sent_to = snd_.CostBefore(queue(), snd_.nxt_index, snd_.nxt);
    const bool some_arrived = HasMissing() || peer_.buffered_bytes != 0;
    flight_.Set(path(),
                some_arrived ? NotArrived(sent_to) : sent_to - snd_.una_cost);
  }
  // What is in flight while packets beyond una have arrived. `sent_to`: the
  // cost of everything before nxt.
  [[gnu::noinline]] uint64_t NotArrived(uint64_t sent_to) const;  // rare
  // Nothing is in flight, and something may be sent: decides how it will count
  // (FlightAccount).
  void BeginFlight();
  // The peer has answered; `good`: and reports nothing missing.
  void NoteAnswer(bool good);
  // Packets that the peer buffers beyond a gap are no longer in flight.
  void CountBuffered();

  // --- Interests.
  Interests InterestsWith(bool data) {
    Interests want;
    if (data) want.wants = Interests::kData;
    if (hints_.past_window || hints_.end_turn) {
      if (data && hints_.past_window) want.wants |= Interests::kUnwindowed;
      if (hints_.end_turn) want.wants |= Interests::kEndTurn;
      hints_.past_window = hints_.end_turn = false;
    }
    want.deadline = NextTimeout();
    return want;
  }

  // --- Of the path and of the parts.
  Path* path() const { return core_.path; }
  SendQueue& queue() const { return core_.send_queue; }
  uint64_t IndexOf(uint64_t seq) const { return snd_.IndexOf(queue(), seq); }
  // Whether packets sent now are retransmissions after a silence, which widens
  // the share (FlightAccount). If these always get lost there are too many:
  // after kProbesOfMany probes it is one packet at a time.
  bool RetransmitsAfterSilence() const {
    constexpr uint8_t kProbesOfMany = 3;
    return (loss_.probes() > 0 && loss_.probes() <= kProbesOfMany) ||
           retries_.any_spent();
  }
  bool ShareAllows(uint64_t cost) const {
    return flight_.ShareAllows(*path(), cost, snd_.PacketCost(),
                               RetransmitsAfterSilence());
  }
  bool WindowAllows(uint64_t cost) const {
    return flight_.WindowAllows(*path(), cost);
  }
  uint64_t PacketsAllowed() const {
    return flight_.PacketsAllowed(*path(), snd_.PacketCost(),
                                  RetransmitsAfterSilence());
  }

  QpCore& core_;
  OutstandingReads reads_;
  std::unique_ptr<MissingResponses> missing_;  // null until a gap is found
  // Stop resets all of these by `= {}`: state that a part keeps elsewhere would
  // leak into the next connection.
  SendSequence snd_;
  PeerBuffering peer_;
  RetransmitPlan plan_;
  LossDetector loss_;
  FlightAccount flight_;
  MessageCredits credits_;
  RoundTripSample rtt_;
  // Saves memory per queue pair: the small members use its padding.
  [[no_unique_address]] PendingFailures failures_;
  RetryBudget retries_;
  Phase phase_;
  TurnHints hints_;
  [[no_unique_address]] AckRequests acks_;  // busy_ uses its padding
  bool busy_ = false;        // inside an event that ends with RunLocalWork
  Time rnr_until_ = kNever;  // waiting after an RNR NAK
};

}  // namespace transport

#endif  // TRANSPORT_RC_REQUESTER_H_
