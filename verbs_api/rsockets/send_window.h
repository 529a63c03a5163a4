// What one end of a stream may send, and where to.
#ifndef VERBS_API_RSOCKETS_SEND_WINDOW_H_
#define VERBS_API_RSOCKETS_SEND_WINDOW_H_

#include <cstdint>
#include <span>

#include "verbs_api/rsockets/protocol.h"

namespace rsockets {

// A piece of a ring of bytes, in two parts if it goes beyond the end.
struct RingPiece {
  uint32_t offset = 0;
  uint32_t first = 0;   // bytes from `offset` on
  uint32_t second = 0;  // bytes from the ring's begin on

  uint32_t length() const { return first + second; }
};

// The list of buffers in this host's memory that the peer writes, entry after
// entry, and says so by a message of credits.
//
// An entry is taken whole, and cleared before any of it is used: the peer
// writes it again only after its buffer was filled.
class TargetList {
 public:
  static constexpr uint32_t kEntries = 2;

  // `memory`: of kEntries entries, aligned to kBufferSize, which the peer may
  // write at any time.
  explicit TargetList(void* memory) : memory_(static_cast<Buffer*>(memory)) {}

  // The next buffer, if the peer has written it; else one of length 0.
  Buffer Take();

 private:
  Buffer* memory_;
  uint32_t next_ = 1;  // the first is in the connection data
};

// Counts credits, buffers of the peer, slots of the send queue, and a ring of
// bytes from which is sent. It has no memory of its own but these numbers.
//
// Thread: with the lock of its owner.
class SendWindow {
 public:
  // Below so many free bytes of the ring one waits until there are more.
  static constexpr uint32_t kLowWater = 2048;
  // Slots of the send queue that only control messages use.
  static constexpr uint16_t kControlSlots = 4;

  // `ring`: bytes of the ring. `slots`: of the send queue, kControlSlots of
  // them for control messages.
  SendWindow(uint32_t ring, uint16_t slots);

  // What the peer begins with.
  void Begin(const Buffer& buffer, uint16_t credits);
  // The data of a message of credits: of the number of the message 16 bits.
  void OnCredits(uint32_t data) { limit_ = static_cast<uint16_t>(data); }
  // The buffer in use is full, and another one would be of use.
  bool wants_target() const { return target_.length == 0; }
  void SetTarget(const Buffer& buffer) { target_ = buffer; }

  // How many bytes may be sent as one message now; 0: wait.
  uint32_t Room() const;
  // How many may be written without a message (riowrite).
  uint32_t DirectRoom() const;
  // One more entry of the peer's mappings may be written.
  bool CanWriteIomap() const { return slots_ > 0 && free_ >= kIomapSize; }
  bool CanSendControl() const { return control_slots_ > 0; }

  // Takes `length` bytes (<= Room()) of the peer's buffer, a credit and a slot.
  // Returns where to write: `length` of the result is `length`.
  Buffer TakeTarget(uint32_t length);
  // Takes bytes of the ring, which it has.
  RingPiece TakeRing(uint32_t length);
  void TakeSlot() { --slots_; }
  void TakeControlSlot() { --control_slots_; }

  // A send is complete: gives back the bytes of the ring that it had, which may
  // be none.
  void OnSent(uint32_t ring_bytes);
  void OnControlSent() { ++control_slots_; }
  bool all_sent() const {
    return slots_ == data_slots_ && control_slots_ == kControlSlots;
  }

 private:
  const uint32_t ring_;
  uint32_t begin_ = 0;  // of the free bytes of the ring
  uint32_t free_;
  const uint16_t data_slots_;
  uint16_t slots_;
  uint16_t control_slots_ = kControlSlots;
  uint16_t next_ = 0;   // number of the next message of data
  uint16_t limit_ = 0;  // of the first that may not be sent
  Buffer target_;
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_SEND_WINDOW_H_
