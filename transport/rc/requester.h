// The requester half of a reliable connection (IBA vol. 1, 9.7.5): takes send
// work requests, sends their packets, and completes them in order. One file per
// kind of event: requester.cc (calls by the queue pair), requester_send.cc,
// requester_ack.cc, requester_read.cc, requester_missing.cc, requester_loss.cc;
// and requester_flight.cc for what is in flight.
//
// Sequence numbers are 64-bit and start at 0 with the first packet; the PSN on
// the wire is the initial one plus the sequence number, modulo 2^24. A work
// request takes a range of them when it is begun: one per request packet, or,
// for a READ, one per response packet.
//
//   snd_una      snd_nxt        snd_max
//    |-- sent --->|-- to resend -->|-- never sent
//
// In flight (what Path counts) is always the cost of [snd_una, snd_nxt), less
// what has come, or is kept by the peer, beyond a gap, so it cannot leak: one
// function, SyncFlight, keeps it. Where it counts there is a matter of
// Standing.
#ifndef TRANSPORT_RC_REQUESTER_H_
#define TRANSPORT_RC_REQUESTER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "transport/base/burst.h"
#include "transport/base/types.h"
#include "transport/endpoint/endpoint_qp.h"
#include "transport/endpoint/path.h"
#include "transport/qp/packetizer.h"
#include "transport/qp/qp_core.h"
#include "transport/rc/missing_responses.h"
#include "transport/rc/outstanding_reads.h"
#include "wire/aeth.h"
#include "wire/packet.h"
#include "wire/psn.h"

namespace transport {

// The local ACK timeout T of a queue pair allows the requester to wait for T to
// 4 T (IBA vol. 1, 9.7.6.1.3). A peer in software may have to wait for a core,
// and what is lost is found by probes much sooner: so it waits for 2 T, but
// only for a peer that has answered once.
inline constexpr int kAckTimeoutFactor = 2;

// A failure of its own is reported by QpCore::Fail; from then on it is stopped.
class Requester {
 public:
  explicit Requester(QpCore& core) : core_(core), queue_(core.send_queue) {}

  // --- Calls by the queue pair.
  // To RTS: PSNs start at attributes.sq_psn.
  void Start(Time now);
  // To RESET or ERR: gives back what is in flight, forgets all sequence state.
  void Stop();
  // State SQD entered or left.
  void Drain(Time now);
  void Resume(Time now);
  bool drained() const { return draining_ && queue_.head() == begun_; }
  // Of the next new packet; of the oldest that is not acknowledged.
  uint32_t send_psn() const { return PsnOf(snd_max_); }
  uint32_t unacked_psn() const { return PsnOf(snd_una_); }
  // A work request has been queued.
  void OnPosted(Time now) { RunLocalWork(now); }

  // --- Inputs: response packets (ACK, NAK, RNR NAK, READ response, atomic ACK)
  // whose source and P_Key have been checked. True if it answers something
  // that is outstanding.
  bool OnResponse(const wire::PacketView& packet, Time now);
  bool Answers(const wire::PacketView& packet) const;
  void OnTimer(Time now);

  // --- Outputs.
  // There is a packet never sent: of what has begun, or of what may begin.
  bool NewIsQueued() const {
    return snd_nxt_index_ != begun_ || (!draining_ && begun_ != queue_.tail());
  }
  // Adds request packets to `burst`, which has been begun for the queue pair's
  // flow. Returns what TakeInterests would.
  Interests Transmit(Time now, const TransmitTurn& turn, Burst* burst);
  Interests TakeInterests(Time now) {
    return InterestsWith(NextSource(now) != Source::kNothing);
  }

 private:
  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  // Outstanding PSNs; the window keeps them far below. Must be below 2^23.
  static constexpr uint64_t kMaxOutstanding = uint64_t{1} << 22;
  // Packets that replays may send again: so many, and so many more for each PSN
  // that is acknowledged. At most, and in the beginning, what a window holds of
  // packets of 1 KiB.
  static constexpr uint64_t kReplayCreditPerPsn = 4;
  static constexpr uint16_t kMostReplayCredit = 1024;

  // What is next to be sent,
  enum class Source : uint8_t {
    kNothing,  // until something else happens
    kResend,   // out of turn: what is missing at the peer
    kMissing,  // out of turn: what is missing here
    kReplay,   // from snd_nxt on, before snd_max
    kNew,
  };
  // and what Transmit may do about it.
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
    bool out_of_turn = false;  // leaves snd_nxt where it is
  };
  enum class SendResult : uint8_t { kSent, kNoRoom, kFailed };
  // What the path makes of what is in flight.
  enum class Standing : uint8_t {
    kAnswered,  // it counts in the path's window, and is limited by that alone
    // It counts there, too, and is limited to a share: another queue pair fell
    // silent before it began, and there was no answer since.
    kDoubted,
    // It counts in this queue pair's share only: the peer is silent, or nobody
    // on the path has answered yet.
    kUnanswered,
  };
  // Whether the peer keeps what comes after a gap. What it answers tells, if
  // not everything has been sent again by then: so until it is known a replay
  // after a NAK waits for an answer after some packets.
  enum class PeerKeeps : uint8_t { kUnknown, kYes, kNo };
  // --- requester.cc
  // Completes the oldest work request with `status`; the queue pair goes to
  // the error state. Callers return at once.
  void Fail(WcStatus status, Time now);
  // What follows from a change of state, whatever event made it: local
  // operations whose turn has come, failures whose turn has come, SQD drained.
  void RunLocalWork(Time now);
  void RunLocalWorkOnce(Time now);

  // --- requester_send.cc
  Source NextSource(Time now) const;
  bool ReplayIsDue() const;
  bool HasReplayCredit() const;
  bool TriesWhatPeerKeeps() const;
  bool NewIsDue() const;  // if it is queued
  // Costs of the next packet never sent, and of the next item sent again.
  uint64_t NewCost() const;
  uint64_t ReplayCost() const;
  // Finds the item that comes next, and whether the window permits it.
  Next Decide(Time now, Item* item) const;
  Next DecideReplay(Item* item) const;
  Next DecideNew(Item* item) const;
  Next DecideResend(Item* item) const;
  Next DecideMissing(Item* item) const;
  bool HasCreditFor(const SendWqe& wqe, bool begins) const;
  // Sends `*item`, and those in the middle of the message that follow; then
  // decides what is next: an ACK is asked for if nothing is.
  SendResult Send(Time now, const TransmitTurn& turn, Item* item, Next* next,
                  Burst* burst, Packetizer* packetizer);
  // How many packets from `item` on, in the middle of a message, may be sent
  // now and fit the burst; 1 for others. Only the last of them may have to ask
  // for an ACK.
  uint32_t CountMiddlePackets(const SendWqe& wqe, const Item& item,
                              const Packetizer& packetizer) const;
  // From so many bytes on that nobody asked an ACK for, the next packet does.
  uint64_t MaxUnaskedBytes() const;
  bool WantAckReq(const SendWqe& wqe, const Item& item, bool more) const;
  void Begin(uint64_t index);
  // `packets`: how many `item` was; `payload`: bytes of each.
  void NoteSent(Time now, const Item& item, uint32_t packets, size_t payload);
  // Work request `index` cannot go on; it fails when those before it are done.
  void FailLocally(uint64_t index, WcStatus status);

  // --- requester_ack.cc
  bool TakeResponse(const wire::PacketView& packet, Time now);
  void OnAcknowledge(uint64_t seq, const wire::Aeth& aeth, Time now);
  void OnNak(uint64_t seq, wire::NakCode code, Time now);
  void OnRnrNak(uint64_t seq, uint8_t timer, Time now);
  // The peer has executed everything before `until`.
  void Acknowledge(uint64_t until, Time now);
  // Moves snd_una over what is acknowledged and not a READ or atomic.
  void Proceed(Time now);
  // Moves snd_una to `to`, completing what ends before it.
  void AdvanceTo(uint64_t to, Time now);
  void UpdateCredits(uint64_t seq, const wire::Aeth& aeth);
  void LearnFromAck(uint64_t until);

  // --- requester_read.cc
  // How many of `remaining` packets to ask for now; 0 to wait for the window.
  uint32_t ReadCount(uint64_t remaining, bool always) const;
  // The answer to a READ or an atomic that is outstanding.
  void OnAnswer(uint64_t seq, const wire::PacketView& packet, Time now);
  // Places it in the buffers of work request `index`, if it is what its number
  // asks for: kSuccess, or how the work request is to end.
  WcStatus Place(uint64_t index, const OutstandingReads::Entry& read,
                 uint64_t seq, const wire::PacketView& packet);
  bool IsExpectedPosition(const OutstandingReads::Entry& slot, uint64_t seq,
                          wire::Operation operation) const;
  MemoryStatus CheckTarget(uint64_t index, uint64_t offset, uint64_t bytes);

  // --- requester_missing.cc
  // Whether anything is known to be missing, or has come ahead.
  bool HasMissing() const {
    return missing_ != nullptr && missing_->known_to() > snd_una_;
  }
  // What of READs and atomics before `until` is not answered is missing. False
  // if it cannot be noted.
  bool NoteMissing(uint64_t until, Time now);
  // An answer beyond snd_una: whether it is to be taken.
  bool AdmitAhead(uint64_t seq, const wire::PacketView& packet, Time now);
  // Whether what was placed for `seq` is what `packet` says.
  bool IsSame(uint64_t seq, const wire::PacketView& packet);
  // It has been placed, with something missing before or behind it.
  void TakeAhead(uint64_t seq, Time now);
  // What is due has been lost, and is asked for.
  void AskForDue(Time now);
  // The next range to ask for; null: none.
  const MissingResponses::Range* DueRange() const;
  // How many more packets may be asked for again now.
  uint64_t MissingRoom() const;
  // `seq` is of a READ or an atomic, and is not answered: one past the last
  // that is missing with it.
  uint64_t MissingEnd(uint64_t seq, const OutstandingReads::Entry& read) const;
  // The same for a replay, which leaves nothing out: one past the last missing
  // of `read`.
  uint64_t ReplayEnd(const OutstandingReads::Entry& read) const;
  // The first of `read` that is missing.
  uint64_t FirstMissing(const OutstandingReads::Entry& read) const;

  // --- requester_loss.cc
  void Rewind();
  // The peer has said no beyond snd_una, a READ or atomic, so its response was
  // lost.
  void OnGap(Time now);
  bool JustHandled(Time now) const;
  void OnSequenceNak(Time now);
  // The window shrinks once for what was lost of one flight, however many gaps
  // that has left.
  void NoteLoss(Time now);
  // Sends again what is missing at snd_una, and not what the peer keeps beyond.
  void ResendGap();
  void Resend(uint64_t first, uint64_t end);
  void ResendOne(uint64_t seq);  // or the READ or atomic that it belongs to
  // `next` comes next, of a run or not.
  void ContinueResend(uint64_t next);
  // Silence: what was in flight counts as lost until the peer shows otherwise.
  void OnRetransmitTimeout(Time now);
  void OnAckTimeout(Time now);
  // What is at snd_una is about to be sent once more without progress since the
  // last time. False: retry_cnt does not allow it, the queue pair has failed.
  bool CountRetry(Time now);
  // A gap that the peer reports, in so many words or not: the same if it is
  // reported again and no ACK timeout is running out meanwhile.
  bool CountGap(Time now);
  void OnProbe(Time now);
  void OnEarlyProbe(Time now);
  void ResendProbe();
  void RunTimers(Time now);
  Time NextTimeout() const {
    return rnr_until_ != kNever || outstanding() ? ArmedTimeout() : kNever;
  }
  Time ArmedTimeout() const;
  Time AckDeadline() const;
  Time ProbeDeadline() const;
  Time EarlyProbeDeadline() const;
  bool GapIsKnown() const { return gap_seq_ == snd_una_; }
  void SetKept();
  void StopTimers();
  // Moves the snd_nxt over what the peer is known to have.
  void SkipAcknowledged();

  // --- requester_flight.cc
  void SyncFlight();
  // Nothing is in flight, and something may be sent: as what it counts then.
  void BeginFlight();
  // The peer answers; `good`: and not because it misses something.
  void NoteAnswer(bool good);
  void FallSilent();
  bool LimitedToShare() const { return standing_ != Standing::kAnswered; }
  // One packet may always be sent, however small the share.
  bool ShareIsUsed(uint64_t cost) const {
    return flight_ != 0 && cost > ShareRoom();
  }
  uint64_t ShareRoom() const;  // bytes
  // Of what a share allows.
  bool WindowAllows(uint64_t cost) const {
    if (standing_ != Standing::kUnanswered) return path()->MaySend(cost);
    return flight_ != 0 || path()->MaySendUnanswered(cost);
  }
  // How many packets share and window allow now.
  uint64_t PacketsAllowed() const;

  // --- Interests.
  Interests InterestsWith(bool data) {
    Interests want;
    if (data) want.wants = Interests::kData;
    if (past_window_ || end_turn_) {
      if (data && past_window_) want.wants |= Interests::kUnwindowed;
      if (end_turn_) want.wants |= Interests::kEndTurn;
      past_window_ = end_turn_ = false;
    }
    want.deadline = NextTimeout();
    return want;
  }

  // --- Arithmetic.
  uint32_t PsnOf(uint64_t seq) const {
    return wire::PsnAdd(initial_psn_, static_cast<int64_t>(seq));
  }
  // The sequence number nearest to snd_una; negative before the first.
  int64_t SeqOf(uint32_t psn) const {
    return static_cast<int64_t>(snd_una_) + wire::PsnDiff(psn, PsnOf(snd_una_));
  }
  uint64_t PacketCost() const { return mtu_ + Path::kPacketOverhead; }
  // Cost of all packets of `wqe`; of those before sequence number `seq`.
  uint64_t CostOf(const SendWqe& wqe) const {
    return wqe.length + wqe.packets * Path::kPacketOverhead;
  }
  uint64_t CostBefore(const SendWqe& wqe, uint64_t seq) const {
    return seq >= wqe.end() ? wqe.cost + CostOf(wqe)
                            : wqe.cost + (seq - wqe.first) * PacketCost();
  }
  uint64_t CostBeforeAt(uint64_t index, uint64_t seq) const {
    return index == begun_ ? next_cost_ : CostBefore(queue_.at(index), seq);
  }
  // The begun work request that contains `seq`, which is in [snd_una, snd_max).
  uint64_t IndexOf(uint64_t seq) const;
  bool outstanding() const { return snd_una_ < snd_nxt_; }
  Path* path() const { return core_.path; }

  QpCore& core_;
  SendQueue& queue_;
  OutstandingReads reads_;
  std::unique_ptr<MissingResponses> missing_;  // null until a gap is found
  uint32_t mtu_ = 1024;                        // bytes
  uint32_t initial_psn_ = 0;
  bool running_ : 1 = false;   // from RTS to ERR or RESET
  bool draining_ : 1 = false;  // SQD
  bool drain_reported_ : 1 = false;
  bool busy_ : 1 = false;  // inside an event that ends with RunLocalWork
  PeerKeeps peer_keeps_ = PeerKeeps::kUnknown;
  // For TakeInterests: what is sent again does not wait for the window; others
  // come first.
  bool past_window_ : 1 = false;
  bool end_turn_ : 1 = false;
  bool force_ack_req_ : 1 = false;  // the next packet asks for an ACK
  // The path's window went to its least because of this queue pair, and there
  // was no progress since.
  bool timed_out_ : 1 = false;
  // After an RNR NAK: one packet at a time, until there is progress.
  bool rnr_probe_ : 1 = false;
  bool credit_limited_ : 1 = false;
  // What was sent again last was a gap, and not what had been sent behind it.
  bool gap_alone_ : 1 = false;
  // It was taken for one that keeps, and then kept nothing.
  bool kept_nothing_ : 1 = false;

  Standing standing_ = Standing::kUnanswered;
  // Path::silences at the last answer; 0 when unanswered.
  uint32_t silences_seen_ = 0;

  // Work requests [head, begun) have sequence numbers; `begun` may be next.
  uint64_t begun_ = 0;
  uint64_t snd_una_ = 0;        // oldest sequence number not acknowledged
  uint64_t snd_nxt_ = 0;        // next to send
  uint64_t snd_nxt_index_ = 0;  // its work request; `begun` at the very end
  uint64_t snd_max_ = 0;        // next never sent
  // The peer has everything before this, though READs before it may be
  // unanswered.
  uint64_t acknowledged_ = 0;
  uint64_t next_cost_ = 0;  // bytes: cost of everything that has been begun
  uint64_t flight_ = 0;     // bytes in flight, as the path counts them
  // To be sent again out of turn: from here up to `resend_end`, which keeps
  // where the last such run ended.
  uint64_t resend_ = kNone;
  uint64_t resend_end_ = kNone;
  uint32_t resend_run_ = 1;  // packets; grows while a gap goes on behind a run
  uint32_t messages_ = 0;    // begun: the last SSN

  // Work request that failed here, and how.
  uint64_t failed_index_ = kNone;
  // A NAK that ends the connection, for when what is before it is answered.
  uint64_t fatal_seq_ = kNone;
  WcStatus failed_status_ = WcStatus::kSuccess;
  WcStatus fatal_status_ = WcStatus::kSuccess;

  // Credits, if limited: messages up to this number may be sent (IBA vol. 1,
  // 9.7.7.2).
  uint32_t credit_limit_ = 0;
  uint64_t credit_seq_ = 0;  // of the response that said so

  uint64_t unasked_bytes_ = 0;  // since the last AckReq

  // Loss.
  uint64_t nak_seq_ = kNone;  // of the last sequence NAK taken
  uint64_t nak_snd_max_ = 0;  // snd_max then
  uint64_t replayed_to_ = 0;  // furthest resent since
  uint64_t gap_seq_ = kNone;  // snd_una when loss was last acted upon
  uint64_t lost_until_ = 0;   // snd_max when loss last shrank the window
  Time gap_time_ = 0;
  Time gap_counted_ = 0;  // when the gap last counted as a retry, or began

  // Times. kNever: not running.
  Time timeout_base_ = kNever;  // since when the local ACK timeout counts
  Time probe_base_ = kNever;
  Time rnr_until_ = kNever;  // waiting after an RNR NAK
  // Since the last progress; probes_ at most kMaxBackoff.
  uint8_t probes_ = 0;
  uint8_t early_probes_ = 0;
  uint8_t naks_as_no_ = 0;  // since peer_keeps_ became kNo
  uint8_t retries_ = 0;
  uint8_t rnr_retries_ = 0;
  // Packets that replays may send again, beyond their first ones.
  uint16_t replay_credit_ = kMostReplayCredit;
  uint32_t unasked_packets_ = 0;  // since the last AckReq
  // Bytes beyond snd_una that count as in flight no longer: the peer keeps
  // them.
  uint32_t kept_ = 0;

  // One round trip measured at a time, never over a resend.
  uint64_t rtt_seq_ = kNone;
  Time rtt_sent_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_RC_REQUESTER_H_
