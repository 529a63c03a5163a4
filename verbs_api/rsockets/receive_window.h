// The receive side of a stream: received data, and what the peer may send.
#ifndef VERBS_API_RSOCKETS_RECEIVE_WINDOW_H_
#define VERBS_API_RSOCKETS_RECEIVE_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace rsockets {

// A ring of bytes in two halves. The peer fills one half while the other is
// read. It gets the other half when that was read completely.
//
// Thread: the lock of its owner is held.
class ReceiveWindow {
 public:
  // `ring`: bytes, an even number. `credits`: messages that may wait to be
  // read.
  ReceiveWindow(uint32_t ring, uint16_t credits);

  // The peer has written `length` more bytes. Returns false if that was not
  // allowed.
  [[nodiscard]] bool OnData(uint32_t length);

  // Bytes that wait to be read.
  uint32_t available() const { return available_; }
  // A contiguous piece, `skip` bytes (< available()) behind the first unread
  // byte.
  struct Piece {
    uint32_t offset;
    uint32_t length;
  };
  Piece At(uint32_t skip) const;
  // `length` <= available() bytes were read.
  void Consume(uint32_t length);

  // Whether a credit message is due.
  bool CreditsDue() const;
  struct Grant {
    uint32_t credits;  // the data of the credit message
    // The offset of the half that the peer gets, if any.
    std::optional<uint32_t> half;
  };
  // The next credit message. It counts as sent.
  Grant TakeGrant();

  uint32_t half() const { return ring_ / 2; }

 private:
  // Credits are due after this many messages were read.
  uint16_t GrantStep() const {
    return static_cast<uint16_t>(credits_ > 1 ? credits_ / 2 : 1);
  }

  const uint32_t ring_;
  const uint16_t credits_;
  // Lengths of the unread messages, a ring. For the first one, what is left of
  // it.
  std::vector<uint32_t> messages_;
  size_t first_message_ = 0;
  size_t message_count_ = 0;

  uint32_t begin_ = 0;      // offset of the first unread byte
  uint32_t available_ = 0;  // bytes
  uint32_t granted_;        // bytes that the peer may still write
  uint32_t free_;           // bytes that can be granted
  uint32_t next_half_;      // offset
  uint16_t read_ = 0;       // messages
  uint16_t next_grant_;     // the value of `read_` at which credits are due
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_RECEIVE_WINDOW_H_
