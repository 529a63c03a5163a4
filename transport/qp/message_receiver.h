// Receives SEND and RDMA WRITE messages packet by packet: takes a receive,
// places the payload into it or into the memory of an R_Key, and completes it.
// The transport service handles errors: RC sends a NAK, UC drops the message
// (IBA vol. 1, 9.7.4.1, 9.8.2, 9.9.3).
#ifndef TRANSPORT_QP_MESSAGE_RECEIVER_H_
#define TRANSPORT_QP_MESSAGE_RECEIVER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/memory.h"
#include "transport/base/work.h"
#include "transport/qp/qp_core.h"
#include "transport/qp/request.h"
#include "wire/packet.h"

namespace transport {

enum class ReceiveOutcome : uint8_t {
  kPlaced,     // the message continues
  kCompleted,  // the message has ended
  kNoReceive,  // no receive posted; nothing has changed, so it can be retried
  // --- Error in the message.
  kInvalidRequest,  // opcode out of sequence, bad length, or not offered
  kAccessDenied,    // R_Key, range or rights
  // --- Error that completes the current receive: call FailReceive.
  kReceiveTooShort,
  kReceiveNotWritable,  // bad L_Key, or the memory is gone
  kAccessFailed,        // like kAccessDenied, but a receive was taken
  kNotInvalidated,      // the R_Key of a SEND with invalidate
  // --- The receive completion queue has overrun: the queue pair has failed.
  kCqLost,
};

class MessageReceiver {
 public:
  explicit MessageReceiver(QpCore& core) : core_(core) {}

  // How much of the current message has been received.
  struct Progress {
    enum class Kind : uint8_t { kNone, kSend, kWrite };
    Kind kind = Kind::kNone;
    uint16_t sge = 0;         // position of the next byte in the receive
    uint32_t sge_offset = 0;  // bytes into `sge`
    uint64_t received = 0;    // bytes
  };
  const Progress& progress() const { return progress_; }
  // Reverts the last packet, which will be retransmitted.
  void Restore(const Progress& progress) { progress_ = progress; }

  // XRC: the next message is for this SRQ. False if there is no such SRQ.
  bool UseSrq(uint32_t srqn, Time now);
  // XRC: whether the current message is for this SRQ.
  bool UsesSrq(uint32_t srqn) const { return srqn_ == srqn; }
  // XRC: the SRQ is being destroyed. A message for it is abandoned; its
  // remaining packets are out of sequence.
  void ForgetSrq(const ReceiveSource* srq);

  // Between messages.
  bool idle() const { return progress_.kind == Progress::Kind::kNone; }

  // Executes the next packet of a SEND or WRITE (`kind`).
  ReceiveOutcome Receive(const wire::PacketView& packet, RequestKind kind,
                         Time now);
  // Executes a UD packet: `header`, then the payload, go into one receive,
  // whose completion reports `kind`. Returns kNoReceive, kReceiveTooShort,
  // kReceiveNotWritable, kCompleted or kCqLost.
  ReceiveOutcome ReceiveDatagram(const wire::PacketView& packet,
                                 RoceHeader kind,
                                 std::span<const uint8_t> header, Time now);
  // The same for a message that is not a RoCE packet. The caller fills in what
  // it knows of `completion`.
  ReceiveOutcome ReceiveWhole(std::span<const uint8_t> header,
                              std::span<const uint8_t> payload,
                              Completion* completion, Time now);
  // Completes the current receive with `status`, for the reason that
  // QpCore::refusal has, and ends the message.
  void FailReceive(WcStatus status, Time now);
  // Drops the current message. Its receive, if taken, goes to the next message.
  void Abandon() { progress_.kind = Progress::Kind::kNone; }
  // On transition to ERR: completes the current receive and the queue pair's
  // own receive queue with kFlushed.
  void Flush(Time now);
  // On transition to RESET and before destruction. The queue pair's own receive
  // queue must be empty.
  void Reset();

 private:
  // Returns `outcome`, whose reason is left in QpCore::refusal.
  ReceiveOutcome Refuse(ReceiveOutcome outcome, Reason reason) {
    core_.refusal = reason;
    return outcome;
  }
  bool IsNext(const wire::PacketView& packet, RequestKind kind) const;
  ReceiveOutcome ReceiveSend(const wire::PacketView& packet, Time now);
  ReceiveOutcome ReceiveWrite(const wire::PacketView& packet, Time now);
  bool TakeReceive();
  // Places `payload` in the receive; `ends`: end of the message.
  ReceiveOutcome PlaceInReceive(std::span<const uint8_t> payload, bool ends);
  // CopyIn: the memory is gone.
  static constexpr size_t kFault = ~size_t{0};
  // Copies to `spans`, which may be larger or smaller than the payload
  // (Memory::Translate). Returns the number of bytes that are left, or kFault.
  // `more`: the next packet continues right after it.
  size_t CopyIn(const SpanList& spans, std::span<const uint8_t> payload,
                bool more);
  // Copies the last `left` bytes of the payload, where `left` is the result of
  // CopyIn, or kFault. `access` is that of the whole payload.
  MemoryStatus CopyRest(const MemoryAccess& access,
                        std::span<const uint8_t> payload, size_t left,
                        bool more);
  ReceiveOutcome Complete(Completion* completion, Time now);
  void PushFlushed(Time now);
  // Completes the current receive. False: the completion queue has overrun.
  bool Push(Completion* completion);

  QpCore& core_;
  Progress progress_;
  bool has_receive_ = false;
  uint32_t srqn_ : 24 = 0;  // XRC: SRQ of the last message that began
  // Size of `receive_` in bytes, limited to the maximum message.
  uint32_t capacity_ = 0;
  ReceiveWqe receive_;
  // WRITE: RETH of the current message.
  wire::Reth target_;
};

}  // namespace transport

#endif  // TRANSPORT_QP_MESSAGE_RECEIVER_H_
