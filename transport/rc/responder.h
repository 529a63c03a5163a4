// The responder half of a reliable connection (IBA vol. 1, 9.7.4): executes
// requests in PSN order, answers them, and remembers what it must answer again.
// One file per kind of event: responder.cc (life and dispatch),
// responder_request.cc (requests in their order), responder_read.cc (READ and
// atomics), responder_gap.cc (packets beyond a gap), responder_replay.cc
// (duplicates), responder_transmit.cc.
//
// PSNs are 64 bits wide in here, so that they compare as numbers: they start
// at 2^32 + rq_psn and their low 24 bits go on the wire.
#ifndef TRANSPORT_RC_RESPONDER_H_
#define TRANSPORT_RC_RESPONDER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/base/burst.h"
#include "transport/base/types.h"
#include "transport/base/work.h"
#include "transport/endpoint/endpoint_qp.h"
#include "transport/endpoint/packet_arena.h"
#include "transport/qp/message_receiver.h"
#include "transport/qp/qp_core.h"
#include "transport/qp/request.h"
#include "transport/rc/out_of_order_packets.h"
#include "transport/rc/reorder_wait.h"
#include "wire/aeth.h"
#include "wire/packet.h"
#include "wire/psn.h"

namespace transport {

// The NAK with which a failed use of a remote key is answered.
inline constexpr wire::NakCode kAccessNak = wire::NakCode::kRemoteAccess;

// A READ or an atomic, from its execution on for as long as it may be asked
// for again: the newest max_dest_rd_atomic of them are kept (IBA vol. 1,
// 9.7.4.4).
struct Resource {
  wire::Operation operation = wire::Operation::kReadRequest;
  // The response that is to be sent: none, the first, or one of a replay.
  bool pending = false;
  bool answered = false;   // in full, at least once
  bool owes_ack = false;   // for requests before it; its first packet is one
  uint32_t msn = 0;        // after this request
  uint64_t first_psn = 0;  // of the original request's responses
  uint64_t last_psn = 0;
  PdId pd = 0;  // of the R_Key: an XRC target's changes
  uint64_t va = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;    // bytes; READ
  uint64_t original = 0;  // what an atomic found

  uint64_t start_psn = 0;  // of this response's first packet
  uint64_t next_psn = 0;   // of its next packet
  uint32_t stop = 0;       // where it ends, in bytes from `va`; READ
  // The rest of a response that a replay of an earlier part has interrupted:
  // from so many packets after first_psn on, up to `rest_stop`. 0: none.
  uint32_t rest = 0;
  uint32_t rest_stop = 0;
};

struct Nak {
  uint64_t psn = 0;  // 0: there is none
  uint8_t syndrome = 0;
  // The queue pair is in error and this is its last word.
  bool fatal = false;
};

// A failure of its own is reported by QpCore::Fail.
class Responder {
 public:
  Responder(QpCore& core, MessageReceiver& receiver, PacketArenaPool* pool)
      : core_(core), receiver_(receiver), out_of_order_(pool) {}

  // --- Calls by the queue pair.
  // To RTR: the first expected PSN is attributes.rq_psn.
  void Start();
  void Reset();
  // State ERR: what has been executed is still acknowledged, and a NAK that is
  // due still sent.
  void OnError();
  // attributes.max_dest_rd_atomic has changed.
  void ResizeResources();

  // --- Inputs: request packets whose source and P_Key have been checked.
  // True if its PSN is the expected one, or one of kWindow beyond.
  bool OnRequest(const wire::PacketView& packet, Time now);
  bool IsExpected(const wire::PacketView& packet) const {
    return Extend(packet.bth().psn) == expected_;
  }
  // Whether OnRequest would return true.
  bool IsWithinWindow(const wire::PacketView& packet) const {
    const uint64_t psn = Extend(packet.bth().psn);
    return psn >= expected_ && psn - expected_ < kWindow;
  }
  void OnTimer(Time now);
  // A CNP: responses that were sent have met a queue.
  void OnNotification(Time now);
  // What is kept beyond a gap is not the peer's.
  void ForgetOutOfOrder();

  // --- Outputs.
  // Adds response packets, up to the first READ response if `acks_only`, or if
  // the path holds that back (ResponsePace); true when more could be sent at
  // once.
  bool Transmit(Time now, Burst* burst, bool acks_only);
  // Of all that there is to transmit, in the order of PSNs: kAcks if packets
  // other than READ responses come first, kUnwindowed if there are READ
  // responses that may go out now.
  Interests GetInterests(Time now) const {
    Interests want;
    want.deadline = gap_deadline_;
    if (first_pending_ != next_resource_) {
      AddPending(now, &want);
    } else if (OwesAck()) {
      want.wants = Interests::kAcks;
    }
    return want;
  }
  // The program may be about to answer messages, which acknowledges those that
  // have not asked for it, too.
  void OnAnswer() {
    if (unacknowledged_) ack_due_ = true;
  }
  // Whether the next thing that it transmits is an ACK or a NAK, at once.
  bool OwesAck() const {
    return first_pending_ == next_resource_ &&
           (nak_.psn != 0 || ack_due_ || repeated_ack_ != 0);
  }
  uint32_t expected_psn() const {
    return static_cast<uint32_t>(expected_) & wire::kPsnMask;
  }

 private:
  enum class Outcome : uint8_t {
    kExecuted,
    kNotReady,  // no receive: the RNR NAK is due, nothing has changed
    kFailed,    // the queue pair has failed
    kRefused,   // was kept, and would have failed: taken for not having come
  };

  uint64_t Extend(uint32_t psn) const;
  uint32_t mtu() const { return core_.attributes.path_mtu; }
  const QpAttributes& attributes() const { return core_.attributes; }
  void ForgetResponses();

  // --- responder_request.cc
  Outcome Execute(const wire::PacketView& packet, Time now);
  // XRC: the SRQ that it names is there, and that of the message under way.
  bool IsForItsSrq(const wire::PacketView& packet, Time now);
  Outcome ExecuteMessagePacket(const wire::PacketView& packet, RequestKind kind,
                               Time now);
  Outcome NotReady();
  // Answers the expected PSN with a NAK: the queue pair has failed, with
  // `event`, or with the receive in use, which completes with `status`.
  Outcome Fail(wire::NakCode code, QpEvent event);
  Outcome FailReceive(wire::NakCode code, WcStatus status, Time now);
  // Answers nothing: the message has come, and only what it was to invalidate
  // is not there (9.9.3, class J).
  Outcome FailSilently(WcStatus status, Time now);
  Outcome Invalid();
  Outcome AccessDenied();

  // --- responder_read.cc
  Outcome ExecuteRead(const wire::PacketView& packet);
  Outcome ExecuteAtomic(const wire::PacketView& packet);
  Outcome ExecuteAtomicWrite(const wire::PacketView& packet);
  Outcome ExecuteFlush(const wire::PacketView& packet);
  // The aligned word at `va`, or null: then the request has failed, as
  // `*outcome` says.
  uint8_t* AtomicWord(uint32_t rkey, uint64_t va, uint32_t access,
                      Outcome* outcome);
  // Room for one more, or null: the requester has more outstanding than agreed.
  Resource* NewResource();
  uint64_t ReadPackets(uint64_t length) const;

  // --- responder_gap.cc
  bool OnGap(const wire::PacketView& packet, uint64_t psn, Time now);
  void Keep(const wire::PacketView& packet, uint64_t psn, Time now);
  // Executes what was kept and is now in order; waits for the gap behind that,
  // if any.
  void ExecuteKept(Time now);
  void ReportGap(Time now);
  static constexpr uint32_t kNoPsn = ~uint32_t{0};
  // What was asked for in vain comes within so many ms, or round trips, or
  // never.
  static constexpr uint16_t kAnsweredWithin = 10;
  static constexpr uint16_t kAnsweredRoundTrips = 4;
  bool IsReportedGap(uint64_t psn) const {
    return (static_cast<uint32_t>(psn) & wire::kPsnMask) == reported_gap_;
  }
  // The request that a gap was reported for has come; has come again.
  void OnReportedGapFilled(const wire::PacketView& packet, Time now);
  void OnReportedGapCopy(const wire::PacketView& packet, Time now);
  // How long a gap is left unreported: longer where packets overtake others.
  Time GapWait() const {
    return filling_ ? std::max(reorder_wait_.wait(), kFillingWait)
                    : reorder_wait_.wait();
  }
  // For one whose beginning has come late. A packet of 1 KiB at 4 Mb/s.
  static constexpr Time kFillingWait = 2 * kMillisecond;
  // How long after one gap has filled the next one is left unreported, unless
  // packets show that it is not about to fill as well.
  static constexpr Time kGapTimeout = 50 * kMicrosecond;
  // Only packets this close are looked at: with large READs before it, a peer
  // may be so far ahead.
  static constexpr uint64_t kWindow = 1 << 16;  // PSNs
  // And only those this close are kept, which is as many as the greatest window
  // of a path (Path::kGreatestWindow) has room for.
  static constexpr uint64_t kKeepWindow =
      Path::kGreatestWindow / Path::kPacketOverhead;
  // What is kept is given up, and its memory with it, when for so long nothing
  // was added, nor anything came into order.
  static constexpr Time kKeepTime = 250 * kMillisecond;
  // So often in a row may a gap be reported by the timer without anything kept
  // coming into order. Then it is given up: something was kept that the peer
  // never sent there.
  static constexpr int kMaxIdleReports = 64;
  void OnGapTimer(Time now);
  void GiveUpKept();

  // --- responder_replay.cc
  void OnDuplicate(const wire::PacketView& packet, uint64_t psn, Time now);
  void AcknowledgeAgain(uint64_t psn);
  void RepeatRead(const wire::PacketView& packet, uint64_t psn);
  void RepeatAtomic(const wire::PacketView& packet, uint64_t psn);
  void Repeat(Resource* resource, uint64_t psn, uint32_t stop);
  // A part of a READ: it comes before what the response that is under way has
  // left, unless that contains it.
  void RepeatPart(Resource* resource, uint64_t psn, uint32_t stop);
  Resource* FindResource(uint64_t psn);

  // --- responder_transmit.cc
  bool TransmitResource(Resource* resource, Burst* burst);
  bool TransmitReadPacket(Resource* resource, Burst* burst);
  enum class Paced : uint8_t {
    kDone,
    kFull,  // `burst` has no room for the next packet
    kHeld,  // it is not its time yet
  };
  // While the path paces responses. `begun`: packets before it in `burst` are
  // responses, too.
  Paced TransmitPaced(Time now, Resource* resource, bool acks_only, bool* begun,
                      Burst* burst);
  bool TransmitAtomicAck(Resource* resource, Burst* burst);
  bool TransmitAcknowledge(uint64_t psn, uint8_t syndrome, uint32_t ack_msn,
                           Burst* burst);
  // `icrc`: null, or continued over what was read.
  bool ReadMemory(const Resource& resource, uint64_t offset, size_t bytes,
                  uint8_t* out, uint32_t* icrc);
  void FailResponse(const Resource& failed, uint64_t psn);
  // While there are resources from first_pending on.
  void AddPending(Time now, Interests* want) const;
  Resource* NextPending();
  wire::Headers ResponseHeaders(wire::Operation operation, uint64_t psn) const;

  QpCore& core_;
  MessageReceiver& receiver_;

  // --- Requests.
  uint64_t expected_ = 0;  // PSN
  uint32_t msn_ = 0;       // messages completed, modulo 2^24
  // Of the NAK that has been made for `expected`: silence until it arrives.
  enum class NakMade : uint8_t {
    kNone,
    kSequence,
    kRnr,  // it has arrived, and is to come again
  };
  NakMade nak_made_ = NakMade::kNone;
  bool executing_kept_ : 1 = false;  // failures are not the peer's for certain
  bool responded_ : 1 = false;       // to READs, since the last CNP
  bool unacknowledged_ : 1 = false;  // a message that has been executed
  bool filled_by_first_ : 1 = false;  // reported_gap_, not by what was resent
  // The gap is, a packet at a time, by what was late.
  bool filling_ : 1 = false;
  bool ack_due_ = false;             // for all that has been executed
  uint8_t idle_reports_ = 0;
  OutOfOrderPackets out_of_order_;
  // When to report the gap that is open now; after that (`nak_made`), when to
  // give up what is kept.
  Time gap_deadline_ = kNever;
  ReorderWait reorder_wait_;
  // PSN of one that was reported lately, until it has come twice, or longer ago
  // than it may take; and when that was, in ms.
  uint32_t reported_gap_ = kNoPsn;
  uint16_t reported_at_ = 0;
  // From a NAK to what fills the gap: the longest of the last ones, in ms.
  uint16_t nak_round_trip_ = 0;
  uint32_t repeated_ack_msn_ = 0;  // with repeated_ack_

  // --- Responses, in the order in which they go out: pending resources by
  // PSN, then the NAK, or else the ACK.
  //
  // Resource number n, counted from Start, lies at n % resources.size().
  std::vector<Resource> resources_;
  uint64_t first_resource_ = 0;  // the oldest kept
  uint64_t next_resource_ = 0;   // one past the newest
  uint64_t first_pending_ = 0;   // none before this one is pending
  Nak nak_;
  uint64_t repeated_ack_ = 0;  // for a duplicate, up to this PSN; 0: none
};

}  // namespace transport

#endif  // TRANSPORT_RC_RESPONDER_H_
