// Which message of a queue pair a packet belongs to: `msg=` and `wr_id=`.
#ifndef TRANSPORT_FAULTS_MESSAGES_H_
#define TRANSPORT_FAULTS_MESSAGES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "wire/psn.h"

namespace transport::faults {

struct Message {
  uint32_t first_psn = 0;
  uint64_t number = 0;            // from 1
  std::optional<uint64_t> wr_id;  // absent: not known
};

// The messages of one direction of a queue pair, numbered as their first
// packets come. Remembers the last kRemembered. May throw bad_alloc.
class Messages {
 public:
  // A work request was posted that sends a message. The n-th message is that of
  // the n-th post.
  void OnPosted(uint64_t wr_id) {
    if (posted_.size() < kMostPosted) posted_.push_back(wr_id);
  }
  // The last `count` of these were refused.
  void OnRefused(size_t count) {
    posted_.resize(posted_.size() - std::min(count, posted_.size()));
  }
  // A request passes. `starts`: it is the first of its message. One that was
  // seen before changes nothing.
  void OnRequest(uint32_t psn, bool starts) {
    if (has_seen_ && wire::PsnDiff(psn, highest_) <= 0) return;
    has_seen_ = true;
    highest_ = psn;
    if (!starts) return;
    Message message = {.first_psn = psn, .number = ++count_, .wr_id = {}};
    if (!posted_.empty()) {
      message.wr_id = posted_.front();
      posted_.pop_front();
    }
    messages_.push_back(message);
    if (messages_.size() > kRemembered) messages_.pop_front();
  }
  // The message of a request, or of the answer to one. Null: not known. Valid
  // until the next OnRequest.
  const Message* Find(uint32_t psn) const {
    for (auto at = messages_.rbegin(); at != messages_.rend(); ++at) {
      if (wire::PsnDiff(psn, at->first_psn) >= 0) return &*at;
    }
    return nullptr;
  }

 private:
  static constexpr size_t kRemembered = 4096;
  // More than a send queue has.
  static constexpr size_t kMostPosted = size_t{1} << 17;

  std::deque<uint64_t> posted_;
  std::deque<Message> messages_;
  uint64_t count_ = 0;
  uint32_t highest_ = 0;
  bool has_seen_ = false;
};

}  // namespace transport::faults

#endif  // TRANSPORT_FAULTS_MESSAGES_H_
