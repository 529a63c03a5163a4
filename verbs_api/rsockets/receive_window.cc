#include "verbs_api/rsockets/receive_window.h"

#include <algorithm>

namespace rsockets {

ReceiveWindow::ReceiveWindow(uint32_t ring, uint16_t credits)
    : ring_(ring),
      credits_(credits),
      messages_(credits),
      granted_(ring / 2),
      free_(ring / 2),
      next_half_(ring / 2),
      next_grant_(GrantStep()) {}

bool ReceiveWindow::OnData(uint32_t length) {
  if (length > granted_ || message_count_ == messages_.size()) return false;
  if (length == 0) {
    ++read_;  // an empty message leaves nothing to read
    return true;
  }
  messages_[(first_message_ + message_count_) % messages_.size()] = length;
  ++message_count_;
  granted_ -= length;
  available_ += length;
  return true;
}

ReceiveWindow::Piece ReceiveWindow::At(uint32_t skip) const {
  const uint32_t offset = (begin_ + skip) % ring_;
  return {offset, std::min(available_ - skip, ring_ - offset)};
}

void ReceiveWindow::Consume(uint32_t length) {
  begin_ = (begin_ + length) % ring_;
  available_ -= length;
  free_ += length;
  while (length > 0) {
    uint32_t& message = messages_[first_message_];
    const uint32_t part = std::min(length, message);
    message -= part;
    length -= part;
    if (message > 0) return;
    first_message_ = (first_message_ + 1) % messages_.size();
    --message_count_;
    ++read_;
  }
}

bool ReceiveWindow::CreditsDue() const {
  return free_ >= half() || static_cast<int16_t>(read_ - next_grant_) >= 0;
}

ReceiveWindow::Grant ReceiveWindow::TakeGrant() {
  Grant grant = {.credits = uint32_t{read_} + credits_, .half = std::nullopt};
  next_grant_ = static_cast<uint16_t>(read_ + GrantStep());
  if (free_ >= half()) {
    grant.half = next_half_;
    free_ -= half();
    granted_ += half();
    next_half_ = next_half_ == 0 ? half() : 0;
  }
  return grant;
}

}  // namespace rsockets
