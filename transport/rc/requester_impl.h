// The state of a requester, shared by the files that implement it, one per
// kind of event: requester.cc (calls by the application, completions),
// requester_send.cc, requester_ack.cc, requester_read.cc, requester_loss.cc.
//
// Sequence numbers are 64-bit and start at 0 with the first packet; the PSN on
// the wire is the initial one plus the sequence number, modulo 2^24. A work
// request takes a range of them when it is begun: one per request packet, or,
// for a READ, one per response packet.
//
//   una          cursor         frontier
//    |-- sent --->|-- to resend -->|-- never sent
//
// In flight (what Path counts) is always the cost of [una, cursor), so it
// cannot leak: one function, SyncFlight, keeps it.
#ifndef TRANSPORT_RC_REQUESTER_IMPL_H_
#define TRANSPORT_RC_REQUESTER_IMPL_H_

#include <cstdint>
#include <limits>
#include <memory>

#include "transport/base/local_buffer.h"
#include "transport/endpoint/path.h"
#include "transport/qp/queue_pair.h"
#include "transport/qp/send_queue.h"
#include "transport/rc/requester.h"
#include "wire/aeth.h"
#include "wire/packet.h"
#include "wire/psn.h"

namespace transport {

// READ requests and atomics that have been sent and are not fully answered, in
// order; at most max_rd_atomic. A long READ is several of them.
class Slots {
 public:
  struct Slot {
    uint64_t first = 0;
    uint64_t end = 0;
    // Asked for more than once: the positions (first, middle, last) of the
    // packets that answer it are no longer certain.
    bool replayed = false;
  };

  void Allocate(uint32_t capacity);  // only while empty
  uint32_t capacity() const { return capacity_; }
  uint32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == capacity_; }
  Slot& front() { return slots_[head_]; }
  const Slot& front() const { return slots_[head_]; }
  // The one that contains `seq`, or null.
  Slot* Find(uint64_t seq);
  const Slot* Find(uint64_t seq) const;
  void Push(uint64_t first, uint64_t end);
  void PopFront();
  void MarkReplayed();  // all
  void Clear() { size_ = 0; }

 private:
  std::unique_ptr<Slot[]> slots_;
  uint32_t capacity_ = 0;
  uint32_t head_ = 0;
  uint32_t size_ = 0;
};

struct Requester::Impl {
  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  // Outstanding PSNs; the window keeps them far below. Must be below 2^23.
  static constexpr uint64_t kMaxOutstanding = uint64_t{1} << 22;

  // What Transmit may do next.
  enum class Next : uint8_t {
    kNothing,  // until something else happens
    kWindow,   // until the path's window opens
    kTurn,     // until it is this queue pair's turn again
    kPacket,   // send `Item`
  };
  struct Item {
    uint64_t index = 0;  // work request
    uint64_t seq = 0;    // unless it begins
    // PSNs: of a READ, how many packets to ask for; else, how many to send.
    uint32_t count = 1;
    bool begins = false;       // first packet of a new work request
    bool out_of_turn = false;  // leaves the cursor where it is
  };
  enum class SendResult : uint8_t { kSent, kNoRoom, kFailed };
  // Where the last packet's payload ended, so that the next need not seek.
  struct Gather {
    LocalBuffer buffer;
    uint64_t index = kNone;
    uint64_t offset = 0;  // bytes
  };

  explicit Impl(QueuePair& qp);

  // --- requester.cc
  int Post(const SendRequest& request, Time now);
  void Start();
  void Stop();  // gives back what is in flight; forgets all sequence state
  void Flush(Time now);
  void Complete(uint64_t index, WcStatus status, Time now);
  // Completes the oldest work request with `status`; the queue pair goes to
  // the error state. Callers return at once.
  void Fail(WcStatus status, Time now);
  // What follows from a change of state, whatever event made it: local
  // operations whose turn has come, failures whose turn has come, SQD drained.
  void Settle(Time now);
  void SettleOnce(Time now);
  bool Drained() const { return draining && queue.head() == begun; }

  // --- requester_send.cc
  bool Transmit(Time now, Burst* burst);
  Next Decide(Time now, Item* item) const;
  Next DecideReplay(Item* item) const;
  Next DecideNew(Item* item) const;
  Next DecideResend(Item* item) const;
  bool HasCreditFor(const SendWqe& wqe, bool begins) const;
  // Sends `*item`, and what follows and is alike; then decides what is next: an
  // ACK is asked for if nothing is.
  SendResult Send(Time now, Item* item, Next* next, Burst* burst,
                  Gather* gather);
  // How many packets from `item` on are alike, in the middle of a message and
  // different in PSN and payload alone (XRC's never: they have more headers),
  // may be sent now, and fit `burst`; 1 for others. Only the last of them may
  // have to ask for an ACK.
  uint32_t CountAlike(const SendWqe& wqe, const Item& item, size_t packet_bytes,
                      const Burst& burst) const;
  size_t AlikeBytes() const { return wire::kBthSize + mtu + wire::kIcrcSize; }
  // `icrc`: null, or continued over what was copied.
  MemoryStatus CopyPayload(uint64_t index, uint64_t offset, size_t bytes,
                           uint8_t* to, uint32_t* icrc, Gather* gather);
  // Of `count` packets from `seq` on: BTH; how much a READ asks for; the
  // headers beyond BTH.
  wire::Bth BthFor(const SendWqe& wqe, uint64_t seq, uint32_t count) const;
  uint32_t ReadLength(const SendWqe& wqe, uint64_t seq, uint32_t count) const;
  wire::Headers HeadersFor(const SendWqe& wqe, uint64_t seq,
                           uint32_t count) const;
  // From so many bytes on that nobody asked an ACK for, the next packet does.
  uint64_t MaxUnaskedBytes() const;
  bool WantAckReq(const SendWqe& wqe, const Item& item, bool more) const;
  void Begin(uint64_t index);
  // `packets`: how many `item` was; `payload`: bytes of each.
  void NoteSent(Time now, const Item& item, uint32_t packets, size_t payload);
  // Work request `index` cannot go on; it fails when those before it are done.
  void FailLocally(uint64_t index, WcStatus status);

  // --- requester_ack.cc
  void OnResponse(const Received& received, Time now);
  void OnAcknowledge(uint64_t seq, const wire::Aeth& aeth, Time now);
  void OnNak(uint64_t seq, wire::NakCode code, Time now);
  void OnRnrNak(uint64_t seq, uint8_t timer, Time now);
  // The peer has executed everything before `until`.
  void Acknowledge(uint64_t until, Time now);
  // Moves una over what is acknowledged and not a READ or atomic.
  void Proceed(Time now);
  // Moves una to `to`, completing what ends before it.
  void AdvanceTo(uint64_t to, Time now);
  void UpdateCredits(uint64_t seq, const wire::Aeth& aeth);
  void LearnFromAck(uint64_t until);

  // --- requester_read.cc
  // How many of `remaining` packets to ask for now; 0 to wait for the window.
  uint32_t ReadCount(uint64_t remaining, bool always) const;
  void OnReadResponse(uint64_t seq, const wire::PacketView& packet, Time now);
  void OnAtomicResponse(uint64_t seq, const wire::PacketView& packet, Time now);
  bool IsExpectedPosition(const Slots::Slot& slot, uint64_t seq,
                          wire::Operation operation) const;
  MemoryStatus CheckTarget(uint64_t index, uint64_t offset, uint64_t bytes);

  // --- requester_loss.cc
  void Rewind();
  // The peer has answered beyond una, a READ or atomic, so its response was
  // lost. `by_ack`: an ACK says so, which may be late news.
  void OnGap(Time now, bool by_ack);
  bool JustHandled(Time now) const;
  void OnSequenceNak(Time now);
  // The window shrinks once for what was lost of one flight, however many gaps
  // that has left.
  void NoteLoss(Time now);
  // Sends again what is missing at una, and not what the peer keeps beyond.
  void ResendGap();
  void Resend(uint64_t first, uint64_t end);
  void ResendOne(uint64_t seq);  // or the READ or atomic that it belongs to
  // `next` comes next, of a run or not.
  void ContinueResend(uint64_t next);
  // Silence: what was in flight counts as lost until the peer shows otherwise.
  void Collapse(Time now);
  void OnAckTimeout(Time now);
  void OnProbe(Time now);
  void OnTimer(Time now);
  Time NextTimeout() const;
  Time AckDeadline() const;
  Time ProbeDeadline() const;
  void StopTimers();
  // Moves the cursor over what the peer is known to have.
  void SkipAcknowledged();

  // --- Arithmetic.
  uint32_t PsnOf(uint64_t seq) const {
    return wire::PsnAdd(initial_psn, static_cast<int64_t>(seq));
  }
  // The sequence number nearest to una; negative before the first.
  int64_t SeqOf(uint32_t psn) const {
    return static_cast<int64_t>(una) + wire::PsnDiff(psn, PsnOf(una));
  }
  uint64_t PacketCost() const { return mtu + Path::kPacketOverhead; }
  // Cost of all packets of `wqe`; of those before sequence number `seq`.
  uint64_t CostOf(const SendWqe& wqe) const {
    return wqe.length + wqe.packets * Path::kPacketOverhead;
  }
  uint64_t CostBefore(const SendWqe& wqe, uint64_t seq) const {
    return seq >= wqe.end() ? wqe.cost + CostOf(wqe)
                            : wqe.cost + (seq - wqe.first) * PacketCost();
  }
  uint64_t CostBeforeAt(uint64_t index, uint64_t seq) const {
    return index == begun ? next_cost : CostBefore(queue.at(index), seq);
  }
  // The begun work request that contains `seq`, which is in [una, frontier).
  uint64_t IndexOf(uint64_t seq) const;
  bool outstanding() const { return una < cursor; }
  Path* path() const { return qp.path_; }
  void SyncFlight();

  QueuePair& qp;
  SendQueue queue;
  Slots slots;
  uint32_t mtu = 1024;  // bytes
  uint32_t initial_psn = 0;
  bool running = false;   // from RTS to ERR or RESET
  bool draining = false;  // SQD
  bool drain_reported = false;
  bool busy = false;  // inside an event that ends with Settle
  bool flushing = false;
  bool cq_lost = false;     // a completion queue has overrun: no completions
  bool peer_keeps = false;  // seen to keep packets beyond a gap
  bool urge_ack = false;    // the next packet asks for an ACK
  // The path's window went to its least because of this queue pair, and there
  // was no progress since.
  bool collapsed = false;
  // After an RNR NAK: one packet at a time, until there is progress.
  bool trial = false;

  // Work requests [head, begun) have sequence numbers; `begun` may be next.
  uint64_t begun = 0;
  uint64_t una = 0;           // oldest sequence number not acknowledged
  uint64_t cursor = 0;        // next to send
  uint64_t cursor_index = 0;  // its work request; `begun` at the very end
  uint64_t frontier = 0;      // next never sent
  // The peer has everything before this, though READs before it may be
  // unanswered.
  uint64_t acknowledged = 0;
  uint64_t next_cost = 0;  // bytes: cost of everything that has been begun
  uint64_t flight = 0;     // bytes charged to the path
  // To be sent again out of turn: from here up to `resend_end`, which keeps
  // where the last such run ended.
  uint64_t resend = kNone;
  uint64_t resend_end = kNone;
  uint32_t resend_run = 1;  // packets; grows while a gap goes on behind a run
  uint32_t messages = 0;    // begun: the last SSN

  // Work request that failed here, and how.
  uint64_t failed_index = kNone;
  WcStatus failed_status = WcStatus::kSuccess;
  // A NAK that ends the connection, for when what is before it is answered.
  uint64_t fatal_seq = kNone;
  WcStatus fatal_status = WcStatus::kSuccess;

  // Credits: messages up to this number may be sent (IBA vol. 1, 9.7.7.2).
  bool credit_limited = false;
  uint32_t credit_limit = 0;
  uint64_t credit_seq = 0;  // of the response that said so

  // Since the last AckReq.
  uint32_t unasked_packets = 0;
  uint64_t unasked_bytes = 0;

  // Loss.
  uint64_t nak_seq = kNone;   // of the last sequence NAK taken
  uint64_t nak_frontier = 0;  // frontier then
  uint64_t replayed_to = 0;   // furthest resent since
  uint64_t gap_seq = kNone;   // una when loss was last acted upon
  uint64_t lost_until = 0;    // frontier when loss last shrank the window
  Time gap_time = 0;

  // Times. kNever: not running.
  Time timeout_base = kNever;  // since when the local ACK timeout counts
  Time probe_base = kNever;
  Time rnr_until = kNever;  // waiting after an RNR NAK
  int probes = 0;           // since the last progress
  int retries = 0;
  int rnr_retries = 0;

  // One round trip measured at a time, never over a resend.
  uint64_t rtt_seq = kNone;
  Time rtt_sent = 0;
};

}  // namespace transport

#endif  // TRANSPORT_RC_REQUESTER_IMPL_H_
