// Work requests, completions, and the interfaces that receives come from and
// completions go to.
#ifndef TRANSPORT_BASE_WORK_H_
#define TRANSPORT_BASE_WORK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/memory.h"
#include "transport/base/outstanding.h"
#include "transport/base/rare_event.h"
#include "transport/base/reason.h"
#include "transport/base/types.h"

namespace transport {

class QueuePair;

// A send work request (struct ibv_send_wr). All that it points to is read
// during PostSend only; inline data is copied then.
struct SendRequest {
  uint64_t wr_id = 0;
  SendOpcode opcode = SendOpcode::kSend;
  uint32_t flags = 0;  // SendFlag
  std::span<const Sge> sges = {};
  // kSendWithImm, kRdmaWriteWithImm: the immediate data in memory (network)
  // order.
  uint32_t imm_be = 0;
  // kSendWithInvalidate, kLocalInvalidate; kBindMw: the region's L_Key;
  // kMemcpy: L_Key of the source.
  uint32_t invalidate_rkey = 0;
  // RDMA and atomics; kBindMw: address in the region; kMemcpy: destination.
  uint64_t remote_addr = 0;
  // RDMA and atomics; kBindMw, kConfigureMkey: the window's or memory key's new
  // key; kMemcpy: L_Key of the destination.
  uint32_t rkey = 0;
  // Atomics; kFlush, kBindMw: length of the range, bytes. kConfigureMkey:
  // repeat count of an interleaved layout. kMemcpy: source.
  uint64_t compare_add = 0;
  // Atomics; kFlush: FlushOperand; kBindMw: Access; kConfigureMkey:
  // MkeyOperand; kMemcpy: bytes, 1 to kMaxMemcpy.
  uint64_t swap = 0;
  // UD, DCI: the destination; copied by PostSend. Null for connected types, and
  // for requests of a DCI without packets (SendKind::kLocal).
  const AddressVector* ah = nullptr;
  Via via = {};                // UD only: the destination's translated address
  uint32_t remote_qpn = 0;     // UD; DCI: number of the DCT
  uint32_t remote_qkey = 0;    // UD only
  uint64_t dc_access_key = 0;  // DCI only: key of the DCT
  uint32_t remote_srqn = 0;    // XRC only
  // kTso: the header of every segment, and the payload bytes per segment.
  std::span<const uint8_t> tso_header = {};
  uint16_t tso_mss = 0;    // bytes
  uint16_t dc_stream = 0;  // DCI with streams only
};

// Packs a FLUSH's placement type and selectivity into one operand (annex A19).
constexpr uint64_t FlushOperand(wire::Feth feth) {
  return feth.placement_type | uint64_t{feth.selectivity} << 8;
}
constexpr wire::Feth FethOf(uint64_t operand) {
  return {.placement_type = static_cast<uint8_t>(operand),
          .selectivity = static_cast<uint8_t>(operand >> 8)};
}
// Whether the specification defines such a FLUSH.
constexpr bool IsValid(wire::Feth feth) {
  return feth.placement_type != 0 &&
         (feth.placement_type & ~(wire::kPlacementGlobalVisibility |
                                  wire::kPlacementPersistence)) == 0 &&
         feth.selectivity <= wire::kSelectivityWholeMr;
}
// The access rights that it needs.
constexpr uint32_t AccessOf(wire::Feth feth) {
  return ((feth.placement_type & wire::kPlacementGlobalVisibility) != 0
              ? uint32_t{kAccessFlushGlobal}
              : 0) |
         ((feth.placement_type & wire::kPlacementPersistence) != 0
              ? uint32_t{kAccessFlushPersistent}
              : 0);
}

// Packs the rest of a kConfigureMkey. Its layout, an array of Sge or
// InterleavedPiece, and then its transform (kMkeyTransformSize bytes, if it
// sets one), are the request's inline data (kSendInline), so the queue pair's
// `max_inline_data` limits the number of entries.
constexpr uint64_t MkeyOperand(
    MkeyConfiguration::Layout layout, std::optional<uint32_t> access,
    MkeyConfiguration::Transform change = MkeyConfiguration::Transform::kKeep) {
  return access.value_or(0) | uint64_t{access.has_value()} << 32 |
         uint64_t{static_cast<uint8_t>(layout)} << 40 |
         uint64_t{static_cast<uint8_t>(change)} << 48;
}
constexpr std::optional<uint32_t> MkeyAccessOf(uint64_t operand) {
  if ((operand >> 32 & 1) == 0) return std::nullopt;
  return static_cast<uint32_t>(operand);
}
constexpr MkeyConfiguration::Layout MkeyLayoutOf(uint64_t operand) {
  return static_cast<MkeyConfiguration::Layout>(operand >> 40 & 0xff);
}
constexpr MkeyConfiguration::Transform MkeyTransformOf(uint64_t operand) {
  return static_cast<MkeyConfiguration::Transform>(operand >> 48 & 0xff);
}
inline constexpr size_t kMkeyTransformSize = 32;  // bytes
inline constexpr size_t kMkeyEntrySize = sizeof(Sge);
static_assert(sizeof(InterleavedPiece) == kMkeyEntrySize);
inline constexpr size_t kMaxMkeyEntries = 64;  // of one request
// Bytes of a kMemcpy, which keeps the lane busy.
inline constexpr uint64_t kMaxMemcpy = 1 << 20;
// The access rights that a memory key can have.
inline constexpr uint32_t kMkeyRights = kAccessLocalWrite | kAccessRemoteWrite |
                                        kAccessRemoteRead | kAccessRemoteAtomic;

// Maximum SGEs of a send or receive.
inline constexpr int kMaxSge = 32;

// A receive work request (struct ibv_recv_wr).
struct ReceiveRequest {
  uint64_t wr_id = 0;
  std::span<const Sge> sges = {};
};

// A receive that was taken from its queue for one message.
struct ReceiveWqe {
  uint64_t wr_id = 0;
  PdId pd = 0;  // its keys are checked against this domain
  // Reused for consecutive receives: keeps its capacity, so it allocates once.
  std::vector<Sge> sges;
  // False, leaving it unchanged, when there is no memory for a longer list.
  bool SetSges(std::span<const Sge> from) {
    // Usually the number is that of the last time.
    if (from.size() == sges.size()) {
      std::copy(from.begin(), from.end(), sges.begin());
      return true;
    }
    try {
      sges.assign(from.begin(), from.end());
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }
};

// Where a responder takes receives from: the queue pair's receive queue, or a
// shared one. A shared one locks itself.
class ReceiveSource {
 public:
  virtual ~ReceiveSource() = default;
  // Takes the oldest receive. False when there is none or no memory for its
  // list; the requester then retries.
  virtual bool Pop(ReceiveWqe* out) = 0;
  // The slot of the receive that the caller took last. The default does not
  // count.
  virtual QueueSlot TakenSlot() { return {}; }
};

// How a work request ends.
struct WcResult {
  // Success. A failure names its reason.
  constexpr WcResult() = default;
  constexpr WcResult(WcStatus status, Reason reason)
      : status(status), reason(reason) {}

  constexpr bool ok() const { return status == WcStatus::kSuccess; }

  WcStatus status = WcStatus::kSuccess;
  Reason reason = Reason::kNone;
};

// struct ibv_wc. Fields that status or opcode leave undefined are zero.
struct Completion {
  uint64_t wr_id = 0;
  WcStatus status = WcStatus::kSuccess;
  Reason reason = Reason::kNone;  // vendor_err
  WcOpcode opcode = WcOpcode::kSend;
  uint32_t byte_len = 0;
  uint32_t flags = 0;  // WcFlag
  // Immediate data, or the invalidated R_Key; raw packets: the flow's tag.
  uint32_t imm_be_or_rkey = 0;
  uint32_t qpn = 0;
  uint32_t src_qpn = 0;  // UD
  uint16_t pkey_index = 0;
  uint8_t service_level = 0;  // UD: RoceHeader
  bool solicited = false;     // for ibv_req_notify_cq(solicited_only)
  Time time = 0;              // when it was created
  QueueSlot slot;             // freed when this completion is polled or dropped
};

// Snapshot of a completion queue, for reports.
struct CqReport {
  uint64_t id = 0;  // tells apart the completion queues of a process; 0: none
  uint32_t capacity = 0;
  uint32_t unpolled = 0;  // completions
  Time oldest = 0;        // when the oldest of these was added
  bool has_channel = false;
  bool armed = false;  // an event was requested, and not raised yet
  bool overrun = false;
};

// The transport's view of a completion queue.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  // Adds a completion. The consumer that removes it frees its slot
  // (`Completion::slot`), whose queue must still exist then. False when the
  // completion queue has overrun: the completion is lost, the sink has reported
  // the CQ error, and the queue pair must enter the error state without further
  // completions (IBA vol. 1, 10.8.3.1).
  virtual bool Push(const Completion& completion) = 0;
  virtual CqReport Report() { return {}; }
};

// Asynchronous events of a queue pair (IBV_EVENT_*).
enum class QpEvent : uint8_t {
  kFatal = 1,            // IBV_EVENT_QP_FATAL
  kRequestError = 2,     // IBV_EVENT_QP_REQ_ERR: responder saw a bad request
  kAccessError = 3,      // IBV_EVENT_QP_ACCESS_ERR: responder denied access
  kCommEstablished = 4,  // IBV_EVENT_COMM_EST: first packet while in RTR
  kSqDrained = 5,        // IBV_EVENT_SQ_DRAINED
  kPathMigrated = 6,
  kPathMigrationError = 7,
  kLastWqeReached = 16,  // IBV_EVENT_QP_LAST_WQE_REACHED: SRQ, QP in error
};

// A request whose turn to be executed has come.
struct RequestToExecute {
  uint32_t psn = 0;
  // The queue pair that sent it; for a DC target, that is the initiator.
  wire::IpAddress requester;
  uint32_t requester_qpn = 0;
  uint8_t min_rnr_timer = 0;  // of the responder, a code
};

class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void OnQpEvent(QueuePair& qp, QpEvent event) = 0;
  virtual void OnRareEvent(const RareEvent& /*event*/) {}
  // Faults on command: the AETH syndrome of the NAK or RNR NAK with which a
  // responder must answer the request instead of executing it; nullopt: it must
  // execute it. Called before each execution, if QpConfig::may_refuse is set.
  virtual std::optional<uint8_t> Refuse(const RequestToExecute& /*request*/) {
    return std::nullopt;
  }
};

}  // namespace transport

#endif  // TRANSPORT_BASE_WORK_H_
