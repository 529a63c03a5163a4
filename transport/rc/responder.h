// The responder half of a reliable connection (IBA vol. 1, 9.7.4): executes
// requests in PSN order, answers them, and remembers what it must answer again.
//
// The class dispatches. Its state is in parts with one job each:
//   OutOfOrderPackets   packets that are buffered beyond a gap
//   GapReport           what has been reported of the open gap
//   GapWait             how long a gap is left unreported
//   ResponderResources  READs and atomics that may be requested again
//   OwedAcks            ACKs and NAKs that must be sent
//
// Its methods are in one file for each kind of event: responder.cc (life and
// dispatch), responder_request.cc (requests in their order), responder_read.cc
// (READ and atomics), responder_gap.cc (packets beyond a gap),
// responder_replay.cc (duplicates), responder_transmit.cc.
//
// PSNs are 64 bits wide in here, so that they compare as numbers: they start at
// 2^32 + rq_psn, and their low 24 bits go on the wire.
#ifndef TRANSPORT_RC_RESPONDER_H_
#define TRANSPORT_RC_RESPONDER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/base/burst.h"
#include "transport/base/types.h"
#include "transport/base/work.h"
#include "transport/endpoint/endpoint_qp.h"
#include "transport/endpoint/packet_arena.h"
#include "transport/qp/message_receiver.h"
#include "transport/qp/qp_core.h"
#include "transport/qp/request.h"
#include "transport/rc/gap_wait.h"
#include "transport/rc/out_of_order_packets.h"
#include "transport/rc/owed_acks.h"
#include "transport/rc/responder_resources.h"
#include "wire/aeth.h"
#include "wire/packet.h"
#include "wire/psn.h"

namespace transport {

// The NAK with which a failed use of a remote key is answered.
inline constexpr wire::NakCode kAccessNak = wire::NakCode::kRemoteAccess;

// A failure goes to QpCore::Fail.
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
  // True if the packet's PSN is among the kWindow PSNs from the expected one
  // on.
  bool OnRequest(const wire::PacketView& packet, Time now);
  bool IsExpected(const wire::PacketView& packet) const {
    return Extend(packet.psn()) == expected_;
  }
  // Whether OnRequest would return true.
  bool IsWithinWindow(const wire::PacketView& packet) const {
    const uint64_t psn = Extend(packet.psn());
    return psn >= expected_ && psn - expected_ < kWindow;
  }
  void OnTimer(Time now);
  // A CNP: responses that were sent have met congestion.
  void OnNotification(Time now);
  // Drops what is buffered beyond a gap, since it is not the peer's.
  void ForgetOutOfOrder();

  // --- Outputs.
  // Adds response packets. Those from the first READ response on are left out
  // if `acks_only`, or if the path delays it (ResponsePace). True if more could
  // be sent at once.
  bool Transmit(Time now, Burst* burst, bool acks_only) {
    return (resources_.any_pending() || owed_.any()) &&
           TransmitPending(now, burst, acks_only);
  }
  // What there is to transmit, in the order of PSNs: kAcks if packets other
  // than READ responses come first, kUnwindowed if there are READ responses
  // that may go out now.
  Interests GetInterests(Time now) const {
    Interests want;
    want.deadline = gap_.deadline;
    if (resources_.any_pending()) {
      AddPending(now, &want);
    } else if (OwesAck()) {
      want.wants = Interests::kAcks;
    }
    return want;
  }
  // The program may be about to answer messages: messages without AckReq are
  // acknowledged, too.
  void OnAnswer() {
    if (owed_.unacknowledged) owed_.due = true;
  }
  // Whether the next packet to transmit is an ACK or a NAK, and may go out at
  // once.
  bool OwesAck() const { return !resources_.any_pending() && owed_.any(); }
  uint32_t expected_psn() const {
    return static_cast<uint32_t>(expected_) & wire::kPsnMask;
  }

 private:
  enum class Outcome : uint8_t {
    kExecuted,
    kNotReady,  // no receive: the RNR NAK is due, nothing has changed
    kFailed,    // the queue pair has failed
    // A buffered packet that would have failed: it is treated as lost.
    kRefused,
  };
  // The NAK for the expected PSN, due or sent. No other NAK is sent until that
  // PSN arrives, unless a copy of a buffered packet asks for an ACK: then the
  // NAK was lost.
  enum class GapNak : uint8_t {
    kNone,
    kSequence,
    kRnr,  // the packet has arrived without a receive, and is sent again
  };
  struct GapReport {
    GapNak reported = GapNak::kNone;
    uint8_t idle_reports = 0;  // kMaxIdleReports
    // When to report the gap that is open; once it is reported, when to drop
    // what is buffered.
    Time deadline = kNever;
  };

  uint64_t Extend(uint32_t psn) const;
  uint32_t mtu() const { return core_.attributes.path_mtu; }
  const QpAttributes& attributes() const { return core_.attributes; }

  // --- responder_request.cc
  Outcome Execute(const wire::PacketView& packet, Time now);
  // XRC: whether the SRQ that the packet names exists and is that of the
  // message in progress.
  bool IsForItsSrq(const wire::PacketView& packet, Time now);
  Outcome ExecuteMessagePacket(const wire::PacketView& packet, RequestKind kind,
                               Time now);
  Outcome NotReady();
  // The expected PSN has arrived after a NAK of it.
  void OnAwaited(const wire::PacketView& packet, Time now);
  // A fault on command: the AETH syndrome with which to refuse the expected
  // PSN; none: it is executed. Not inline: rare.
  [[gnu::noinline]] std::optional<uint8_t> RefusalOnCommand() const;
  // Answers the expected PSN with a NAK, and does not execute it.
  Outcome Refuse(uint8_t syndrome, Time now);
  // Answers the expected PSN with a NAK: the queue pair has failed, with
  // `event`.
  Outcome Fail(wire::NakCode code, Reason reason, QpEvent event);
  // The same, but the receive in use completes with `status`.
  Outcome FailReceive(wire::NakCode code, WcStatus status, Time now);
  // Completes the receive in use with `status`, without a NAK of its own: the
  // message has arrived, and only the key that it was to invalidate does not
  // exist (9.9.3, class J).
  Outcome FailSilently(WcStatus status, Time now);
  Outcome Invalid(Reason reason);
  Outcome AccessDenied(Reason reason);

  // --- responder_read.cc
  Outcome ExecuteRead(const wire::PacketView& packet);
  Outcome ExecuteAtomic(const wire::PacketView& packet);
  Outcome ExecuteAtomicWrite(const wire::PacketView& packet);
  Outcome ExecuteFlush(const wire::PacketView& packet);
  // The aligned word at `va`, or null: then the request has failed, as
  // `*outcome` says.
  uint8_t* AtomicWord(uint32_t rkey, uint64_t va, uint32_t access,
                      Outcome* outcome);
  // ResponderResources::New, of the expected PSN.
  Resource* NewResource();
  // `resource` is of `packet`, which has been executed: it is to be answered.
  Outcome Executed(Resource* resource, const wire::PacketView& packet,
                   uint32_t rkey, uint64_t va);
  // The peer's access to memory of the queue pair's protection domain.
  MemoryAccess RemoteAccess(uint32_t rkey, uint64_t va, uint64_t length,
                            uint32_t access) const;
  uint64_t ReadPackets(uint64_t length) const;

  // --- responder_gap.cc
  bool OnGap(const wire::PacketView& packet, uint64_t psn, Time now);
  void Buffer(const wire::PacketView& packet, uint64_t psn, Time now);
  // Executes what was buffered and is now in order; waits for the gap behind
  // that, if any.
  void ExecuteBuffered(Time now);
  void ReportGap(Time now);
  void OnGapTimer(Time now);
  void DropBuffered();
  // After one gap has filled, the next one is left unreported for this long,
  // unless packets show that it is not about to fill as well.
  static constexpr Time kGapTimeout = 50 * kMicrosecond;
  // Packets further ahead are ignored. With large READs outstanding a peer may
  // be this far ahead.
  static constexpr uint64_t kWindow = 1 << 16;  // PSNs
  // Packets further ahead are not buffered: this is as many as the maximum
  // window of a path holds.
  static constexpr uint64_t kBufferWindow =
      Path::kMaxWindow / Path::kPacketOverhead;
  // Buffered packets are dropped, and their memory is given back, when no
  // packet was added and none came into order for this long
  // (ForgedRequestTest.NothingIsBufferedForEver).
  static constexpr Time kBufferTime = 250 * kMillisecond;
  // The timer may report a gap this often in a row while no buffered packet
  // comes into order. Then the gap is given up: a packet was buffered that the
  // peer never sent (ReplayTest.StrayPacketAhead).
  static constexpr int kMaxIdleReports = 64;

  // --- responder_replay.cc
  void OnDuplicate(const wire::PacketView& packet, uint64_t psn, Time now);
  void AcknowledgeAgain(uint64_t psn);
  void RepeatRead(const wire::PacketView& packet, uint64_t psn);
  void RepeatAtomic(const wire::PacketView& packet, uint64_t psn);
  void Repeat(Resource* resource, uint64_t psn, uint32_t stop);
  // Sends a part of a READ before the rest of the response in progress, unless
  // that rest contains it.
  void RepeatPart(Resource* resource, uint64_t psn, uint32_t stop);

  // --- responder_transmit.cc
  bool TransmitPending(Time now, Burst* burst, bool acks_only);
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
  // `icrc`: null, or continued over what was read. `streams`: `icrc` is null,
  // and the bytes are for another process (Memory::StreamFrom).
  bool ReadMemory(const Resource& resource, uint64_t offset, size_t bytes,
                  uint8_t* out, uint32_t* icrc, bool streams);
  void FailResponse(const Resource& failed, uint64_t psn);
  // Called only while there are resources that may be pending.
  void AddPending(Time now, Interests* want) const;
  // Reserves a packet with space for a payload and its pad, and writes BTH,
  // AETH if the opcode has one, and the service's own header. Null if `burst`
  // has no room.
  uint8_t* BeginResponse(uint8_t opcode, uint64_t psn, uint8_t syndrome,
                         uint32_t msn, size_t payload, Burst* burst) const;

  QpCore& core_;
  MessageReceiver& receiver_;

  uint64_t expected_ = 0;  // PSN
  OutOfOrderPackets out_of_order_;
  // Reset resets all of these by `= {}`: state that a part keeps elsewhere
  // would leak into the next connection.
  GapReport gap_;
  GapWait gap_wait_;
  ResponderResources resources_;  // sent first, in the order of PSNs
  OwedAcks owed_;                 // sent next: the NAK, or else the ACK
  uint32_t msn_ = 0;              // messages completed, modulo 2^24
  bool responded_ = false;        // to READs, since the last CNP

  // A packet that fails may not be the peer's.
  bool executing_buffered_ = false;
};

}  // namespace transport

#endif  // TRANSPORT_RC_RESPONDER_H_
