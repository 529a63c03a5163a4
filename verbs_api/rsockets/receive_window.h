// What one end of a stream has received, and what it lets the peer send.
#ifndef VERBS_API_RSOCKETS_RECEIVE_WINDOW_H_
#define VERBS_API_RSOCKETS_RECEIVE_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace rsockets {

// A ring of bytes in two halves. The peer fills one, which it was given, while
// the other one is read; it is given the next half when as much was read.
//
// Thread: with the lock of its owner.
class ReceiveWindow {
 public:
  // `ring`: bytes, an even number. `credits`: messages that may wait to be
  // read.
  ReceiveWindow(uint32_t ring, uint16_t credits);

  // The peer has written `length` more bytes. False if it was not allowed to.
  [[nodiscard]] bool OnData(uint32_t length);

  // Bytes that wait to be read.
  uint32_t available() const { return available_; }
  // The piece at `skip` bytes (< available()) into them that is in one part.
  struct Piece {
    uint32_t offset;
    uint32_t length;
  };
  Piece At(uint32_t skip) const;
  // They were read: `length` <= available().
  void Consume(uint32_t length);

  // The peer should hear of what was read meanwhile.
  bool OwesCredits() const;
  struct Grant {
    uint32_t credits;  // data of the message of credits
    // Where the half of the ring begins that the peer gets, if it gets one.
    std::optional<uint32_t> half;
  };
  // What to say; it is taken as said.
  Grant TakeGrant();

  uint32_t half() const { return ring_ / 2; }

 private:
  // After so many messages the peer hears that they were read.
  uint16_t GrantStep() const {
    return static_cast<uint16_t>(credits_ > 1 ? credits_ / 2 : 1);
  }

  const uint32_t ring_;
  const uint16_t credits_;
  // Lengths of the messages that wait, a ring; of the first what is left.
  std::vector<uint32_t> messages_;
  size_t first_message_ = 0;
  size_t message_count_ = 0;

  uint32_t begin_ = 0;      // offset of the first byte that waits
  uint32_t available_ = 0;  // bytes
  uint32_t granted_;        // bytes that the peer may still write
  uint32_t free_;           // bytes that it may be given
  uint32_t next_half_;      // offset
  uint16_t read_ = 0;       // messages
  uint16_t next_grant_;     // `read_` at which it hears of it
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_RECEIVE_WINDOW_H_
