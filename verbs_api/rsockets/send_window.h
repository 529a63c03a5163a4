// The send side of a stream: what may be sent, and where it is written.
#ifndef VERBS_API_RSOCKETS_SEND_WINDOW_H_
#define VERBS_API_RSOCKETS_SEND_WINDOW_H_

#include <cstdint>
#include <span>

#include "verbs_api/rsockets/protocol.h"

namespace rsockets {

// A piece of a ring of bytes, in two parts if it wraps around.
struct RingPiece {
  uint32_t offset = 0;
  uint32_t first = 0;   // bytes from `offset` on
  uint32_t second = 0;  // bytes from the start of the ring

  uint32_t length() const { return first + second; }
};

// The list of buffers in this host's memory that the peer writes entry by
// entry. A credit message announces each entry.
//
// An entry is read and cleared before its buffer is used: the peer writes it
// again only after that buffer was filled.
class TargetList {
 public:
  static constexpr uint32_t kEntries = 2;

  // `memory`: kEntries entries, aligned to kBufferSize. The peer may write them
  // at any time.
  explicit TargetList(void* memory) : memory_(static_cast<Buffer*>(memory)) {}

  // The next buffer if the peer has written it; else one of length 0.
  Buffer Take();

 private:
  Buffer* memory_;
  uint32_t next_ = 1;  // the first buffer is in the connection data
};

// Counts credits, space in the peer's buffer, slots of the send queue, and
// space in the send ring. Holds only these numbers, no data.
//
// Thread: the lock of its owner is held.
class SendWindow {
 public:
  // With fewer free bytes than this in the send ring, sending waits for more.
  static constexpr uint32_t kLowWater = 2048;
  // Slots of the send queue reserved for control messages.
  static constexpr uint16_t kControlSlots = 4;

  // `ring`: bytes of the ring. `slots`: of the send queue, including
  // kControlSlots.
  SendWindow(uint32_t ring, uint16_t slots);

  // Sets the initial buffer and credits of the peer.
  void Begin(const Buffer& buffer, uint16_t credits);
  // `data` of a credit message: the low 16 bits are a message number.
  void OnCredits(uint32_t data) { limit_ = static_cast<uint16_t>(data); }
  // Whether the buffer is full and another one is needed.
  bool wants_target() const { return target_.length == 0; }
  void SetTarget(const Buffer& buffer) { target_ = buffer; }

  // The bytes that may be sent as one message now. 0: wait.
  uint32_t Room() const;
  // The bytes that may be written without a message (riowrite).
  uint32_t DirectRoom() const;
  // Whether another entry of the peer's mappings may be written.
  bool CanWriteIomap() const { return slots_ > 0 && free_ >= kIomapSize; }
  bool CanSendControl() const { return control_slots_ > 0; }

  // Takes `length` bytes (<= Room()) of the peer's buffer, a credit and a slot.
  // Returns where to write them.
  Buffer TakeTarget(uint32_t length);
  // Takes `length` bytes of the ring. The caller has checked that they are
  // free.
  RingPiece TakeRing(uint32_t length);
  void TakeSlot() { --slots_; }
  void TakeControlSlot() { --control_slots_; }

  // A send has completed: frees its bytes of the ring, which may be none.
  void OnSent(uint32_t ring_bytes);
  void OnControlSent() { ++control_slots_; }
  bool all_sent() const {
    return slots_ == data_slots_ && control_slots_ == kControlSlots;
  }

 private:
  const uint32_t ring_;
  uint32_t begin_ = 0;  // start of the free bytes of the ring
  uint32_t free_;
  const uint16_t data_slots_;
  uint16_t slots_;
  uint16_t control_slots_ = kControlSlots;
  uint16_t next_ = 0;   // number of the next data message
  uint16_t limit_ = 0;  // number of the first message that may not be sent
  Buffer target_;
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_SEND_WINDOW_H_
