// Receives SEND and RDMA WRITE messages packet by packet: takes a receive,
// places into it or into the memory that an R_Key names, completes it. What
// follows from a packet that cannot be taken is the transport service's
// business: RC answers with a NAK, UC drops the message (IBA vol. 1, 9.7.4.1,
// 9.8.2, 9.9.3).
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
  kPlaced,     // the message goes on
  kCompleted,  // it has ended
  kNoReceive,  // nothing has changed: it may come again
  // --- The message is at fault.
  kInvalidRequest,  // opcode not in sequence, length, or not offered
  kAccessDenied,    // R_Key, range or rights
  // --- The receive in use is to blame, or to be told of it: FailReceive.
  kReceiveTooShort,
  kReceiveNotWritable,  // its keys, or memory that is gone
  kAccessFailed,        // as kAccessDenied, but a receive was taken
  kNotInvalidated,      // the R_Key that a SEND was to invalidate
  // --- The receive completion queue has overrun: the queue pair has failed.
  kCqLost,
};

class MessageReceiver {
 public:
  explicit MessageReceiver(QpCore& core) : core_(core) {}

  // How far the message has come that is being received.
  struct Progress {
    enum class Kind : uint8_t { kNone, kSend, kWrite };
    Kind kind = Kind::kNone;
    uint16_t sge = 0;         // where the next byte of a receive goes
    uint32_t sge_offset = 0;  // bytes into `sge`
    uint64_t received = 0;    // bytes
  };
  const Progress& progress() const { return progress_; }
  // Back to what it was before the last packet, which is to come again.
  void Restore(const Progress& progress) { progress_ = progress; }

  // XRC: the message that begins now is for the SRQ of this number. False if
  // there is none.
  bool UseSrq(uint32_t srqn, Time now);
  // XRC: whether the message that goes on is for that one.
  bool UsesSrq(uint32_t srqn) const { return srqn_ == srqn; }
  // XRC: the SRQ goes. A message for it ends as if it had never begun: what
  // else there is of it is out of sequence.
  void ForgetSrq(const ReceiveSource* srq);

  // Between messages.
  bool idle() const { return progress_.kind == Progress::Kind::kNone; }

  // Executes the next packet of a SEND or WRITE (`kind`).
  ReceiveOutcome Receive(const wire::PacketView& packet, RequestKind kind,
                         Time now);
  // Executes a datagram: `header`, then its payload, go into one receive; its
  // completion tells `kind`.
  // kNoReceive, kReceiveTooShort, kReceiveNotWritable, kCompleted, kCqLost.
  ReceiveOutcome ReceiveDatagram(const wire::PacketView& packet,
                                 RoceHeader kind,
                                 std::span<const uint8_t> header, Time now);
  // The same for a message that is no packet; `completion` has what the caller
  // knows of it.
  ReceiveOutcome ReceiveWhole(std::span<const uint8_t> header,
                              std::span<const uint8_t> payload,
                              Completion* completion, Time now);
  // The receive in use ends with `status`, and the message with it.
  void FailReceive(WcStatus status, Time now);
  // Gives up the message. Its receive, if it has taken one, is the next one's.
  void Abandon() { progress_.kind = Progress::Kind::kNone; }
  // To ERR: the receive in use, and the queue pair's own, complete with
  // kFlushed.
  void Flush(Time now);
  // To RESET, and before it goes: with the queue pair's own queue emptied.
  void Reset();

 private:
  bool IsNext(const wire::PacketView& packet, RequestKind kind) const;
  ReceiveOutcome ReceiveSend(const wire::PacketView& packet, Time now);
  ReceiveOutcome ReceiveWrite(const wire::PacketView& packet, Time now);
  bool TakeReceive();
  // Places `payload`, which may end the message, in its receive.
  ReceiveOutcome PlaceInReceive(std::span<const uint8_t> payload, bool ends);
  // `more` goes right behind with the next packet. `spans` may name more than
  // the payload fills.
  bool CopyIn(const SpanList& spans, std::span<const uint8_t> payload,
              bool more);
  ReceiveOutcome Complete(const Completion& completion, Time now);
  void PushFlushed(Time now);
  // Of the receive in use. False: the completion queue has overrun.
  bool Push(Completion* completion);

  QpCore& core_;
  Progress progress_;
  bool has_receive_ = false;
  uint32_t srqn_ : 24 = 0;  // XRC: of the message that began last
  // Bytes that `receive_` has room for, up to the longest message.
  uint32_t capacity_ = 0;
  ReceiveWqe receive_;
  // WRITE: where the message began, and how long it is.
  wire::Reth target_;
};

}  // namespace transport

#endif  // TRANSPORT_QP_MESSAGE_RECEIVER_H_
