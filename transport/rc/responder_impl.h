// The responder's state, for the files that share it: responder.cc (life and
// dispatch), responder_request.cc (requests in their order),
// responder_read.cc (READ and atomics), responder_gap.cc (packets beyond a
// gap), responder_replay.cc (duplicates), responder_transmit.cc.
//
// PSNs are 64 bits wide in here, so that they compare as numbers: they start
// at 2^32 + rq_psn and their low 24 bits go on the wire.
#ifndef TRANSPORT_RC_RESPONDER_IMPL_H_
#define TRANSPORT_RC_RESPONDER_IMPL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/memory.h"
#include "transport/base/work.h"
#include "transport/endpoint/endpoint.h"
#include "transport/qp/queue_pair.h"
#include "transport/rc/held_packets.h"
#include "transport/rc/responder.h"
#include "wire/aeth.h"
#include "wire/packet.h"

namespace transport {

// What a request packet asks for.
enum class RequestKind : uint8_t {
  kSend,
  kWrite,
  kRead,
  kAtomic,
  kAtomicWrite,
  kFlush,
};
// Only for opcodes that are requests.
RequestKind KindOf(wire::Operation operation);

// The NAK with which a failed use of a remote key is answered.
inline constexpr wire::NakCode kAccessNak = wire::NakCode::kRemoteAccess;

// A READ or an atomic, from its execution on for as long as it may be asked
// for again: the newest max_dest_rd_atomic of them are kept (IBA vol. 1,
// 9.7.4.4).
struct Resource {
  wire::Operation operation = wire::Operation::kReadRequest;
  uint64_t first_psn = 0;  // of the original request's responses
  uint64_t last_psn = 0;
  uint32_t msn = 0;  // after this request
  uint64_t va = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;    // bytes; READ
  uint64_t original = 0;  // what an atomic found

  // The response that is to be sent: none, the first, or one of a replay.
  bool pending = false;
  bool answered = false;   // in full, at least once
  uint64_t start_psn = 0;  // of this response's first packet
  uint64_t next_psn = 0;   // of its next packet
  uint64_t stop = 0;       // where it ends, in bytes from `va`; READ
};

// How far the message that requests are assembling has come.
struct MessageProgress {
  enum class Kind : uint8_t { kNone, kSend, kWrite };
  Kind kind = Kind::kNone;
  uint32_t sge_offset = 0;  // bytes into `sge`
  size_t sge = 0;           // where the next byte of a receive goes
  uint64_t received = 0;    // bytes
};

// That message, and where it goes.
struct Message : MessageProgress {
  bool has_receive = false;
  ReceiveWqe receive;
  uint64_t capacity = 0;  // bytes of `receive`

  uint64_t va = 0;  // WRITE: where the message began
  uint32_t rkey = 0;
  uint64_t length = 0;
};

struct Nak {
  uint8_t syndrome = 0;
  uint64_t psn = 0;
  // The queue pair is in error and this is its last word.
  bool fatal = false;
};

struct Responder::Impl {
  explicit Impl(QueuePair& qp) : qp(qp), held(qp.endpoint_.hold_pool()) {}

  enum class Outcome : uint8_t {
    kExecuted,
    kNotReady,  // no receive: the RNR NAK is due, nothing has changed
    kFailed,    // the queue pair is in error
    kRefused,   // was held, and would have failed: taken for not having come
  };

  uint64_t Extend(uint32_t psn) const;
  uint32_t mtu() const { return qp.attributes_.path_mtu; }
  Memory& memory() { return *qp.config_.memory; }
  const QpAttributes& attributes() const { return qp.attributes_; }
  void ForgetResponses();

  // --- responder_request.cc
  Outcome Execute(const wire::PacketView& packet, Time now);
  bool SequenceIsValid(const wire::PacketView& packet, RequestKind kind) const;
  bool LengthIsValid(const wire::PacketView& packet, RequestKind kind) const;
  bool Permitted(RequestKind kind) const;
  Outcome ExecuteSend(const wire::PacketView& packet, Time now);
  Outcome ExecuteWrite(const wire::PacketView& packet, Time now);
  bool TakeReceive();
  Outcome NotReady();
  // Places `payload`, which may end the message, in its receive.
  Outcome PlaceInReceive(std::span<const uint8_t> payload, bool ends, Time now);
  // `more` goes right behind with the next packet.
  bool CopyIn(const SpanList& spans, std::span<const uint8_t> payload,
              bool more);
  bool CompleteReceive(const Completion& completion, Time now);
  // Answers the expected PSN with a NAK and goes to the error state. With
  // `receive_status`, the receive in use completes with it; else it is flushed
  // and `event` raised.
  Outcome Fail(wire::NakCode code, QpEvent event, Time now);
  Outcome FailReceive(wire::NakCode code, WcStatus receive_status, Time now);
  Outcome Invalid(Time now);
  Outcome AccessDenied(Time now);

  // --- responder_read.cc
  Outcome ExecuteRead(const wire::PacketView& packet, Time now);
  Outcome ExecuteAtomic(const wire::PacketView& packet, Time now);
  Outcome ExecuteAtomicWrite(const wire::PacketView& packet, Time now);
  // The aligned word at `va`, or null: then the request has failed, as
  // `*outcome` says.
  uint8_t* AtomicWord(uint32_t rkey, uint64_t va, uint32_t access,
                      Outcome* outcome, Time now);
  // Room for one more, or null: the requester has more outstanding than agreed.
  Resource* NewResource();
  uint64_t ReadPackets(uint64_t length) const;

  // --- responder_gap.cc
  void OnGap(const wire::PacketView& packet, uint64_t psn);
  // Executes what was held and is now in order.
  void ExecuteHeld(Time now);
  void ReportGap();
  // How long after one gap has filled the next one is left unreported, unless
  // packets show that it is not about to fill as well.
  static constexpr Time kGapPatience = 50 * kMicrosecond;
  // Only packets this close are held: what is further away was not sent by a
  // peer that waits for acknowledgements.
  static constexpr uint64_t kHoldWindow = 1 << 16;  // PSNs
  // So often in a row may a gap be reported by the timer without anything held
  // coming into order. Then it is given up: something was held that the peer
  // never sent there.
  static constexpr int kMaxIdleReports = 64;
  void OnGapTimer();

  // --- responder_replay.cc
  void OnDuplicate(const wire::PacketView& packet, uint64_t psn);
  void AcknowledgeAgain(uint64_t psn);
  void RepeatRead(const wire::PacketView& packet, uint64_t psn);
  void RepeatAtomic(const wire::PacketView& packet, uint64_t psn);
  void Repeat(Resource* resource, uint64_t psn, uint64_t stop);
  Resource* FindResource(uint64_t psn);

  // --- responder_transmit.cc
  Output output() const;
  bool Transmit(Time now, Burst* burst, bool answers_only);
  bool TransmitResource(Resource* resource, Time now, Burst* burst);
  bool TransmitReadPacket(Resource* resource, Time now, Burst* burst);
  bool TransmitAtomicAck(Resource* resource, Burst* burst);
  bool TransmitAcknowledge(uint64_t psn, uint8_t syndrome, uint32_t ack_msn,
                           Burst* burst);
  // `icrc`: null, or continued over what was read.
  bool ReadMemory(const Resource& resource, uint64_t offset, size_t bytes,
                  uint8_t* out, uint32_t* icrc);
  void FailResponse(uint64_t psn, Time now);
  Resource* NextPending();
  wire::Headers ResponseHeaders(wire::Operation operation, uint64_t psn) const;

  QueuePair& qp;

  // --- Requests.
  uint64_t expected = 0;  // PSN
  uint32_t msn = 0;       // messages completed, modulo 2^24
  // A NAK for `expected` has been made: silence until it arrives.
  bool nak_made = false;
  Message message;
  HeldPackets held;
  Time gap_deadline = kNever;  // when to report the gap that is open now
  int idle_reports = 0;
  bool executing_held = false;  // failures are not the peer's for certain

  // --- Responses, in the order in which they go out: pending resources by
  // PSN, then the NAK, or else the ACK.
  //
  // Resource number n, counted from Start, lies at n % resources.size().
  std::vector<Resource> resources;
  uint64_t first_resource = 0;  // the oldest kept
  uint64_t next_resource = 0;   // one past the newest
  uint64_t first_pending = 0;   // none before this one is pending
  std::optional<Nak> nak;
  bool ack_due = false;                  // for all that has been executed
  std::optional<uint64_t> repeated_ack;  // for a duplicate, up to this PSN
  uint32_t repeated_ack_msn = 0;
  bool last_wqe_reported = false;
};

}  // namespace transport

#endif  // TRANSPORT_RC_RESPONDER_IMPL_H_
