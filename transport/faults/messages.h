// Which message of a queue pair a packet belongs to: `msg=` and `wr_id=`.
#ifndef TRANSPORT_FAULTS_MESSAGES_H_
#define TRANSPORT_FAULTS_MESSAGES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "wire/psn.h"

namespace transport::faults {

struct Message {
  uint32_t first_psn = 0;
  uint64_t number = 0;            // from 1
  std::optional<uint64_t> wr_id;  // absent: not known
};

// A work request that sends a message.
struct PostedRequest {
  uint64_t wr_id = 0;
  uint64_t read_bytes = 0;  // of a READ; else 0
};

// A request packet.
struct RequestFacts {
  uint32_t psn = 0;
  bool starts = false;   // the first packet of its message
  bool is_read = false;  // a READ request
  uint64_t bytes = 0;    // that a READ asks for
  uint32_t mtu = 1024;   // bytes of payload of a packet

  // The number of PSNs that it takes; for a READ, those of its response.
  uint32_t packets() const {
    return static_cast<uint32_t>(
        std::max<uint64_t>(1, (bytes + mtu - 1) / mtu));
  }
  uint32_t last_psn() const { return wire::PsnAdd(psn, packets() - 1); }
};

// The messages of one direction of a queue pair, numbered as their first
// packets come. Remembers the last kRemembered. May throw bad_alloc.
class Messages {
 public:
  // A work request was posted. The n-th message belongs to the n-th post.
  void OnPosted(const PostedRequest& request) {
    if (unknown_ > 0 || posted_.size() >= kMaxPosted) {
      ++unknown_;
    } else {
      posted_.push_back(request);
    }
  }
  // `count` requests were posted, and not stored for lack of memory. Their
  // messages have no wr_id. Nor do those of later requests, until all messages
  // of these have begun. A long READ among them counts once for each request
  // packet.
  void OnPostedUnknown(size_t count) { unknown_ += count; }
  // The last `count` posted requests were refused.
  void OnRefused(size_t count) {
    const size_t unknown = std::min(count, unknown_);
    unknown_ -= unknown;
    posted_.resize(posted_.size() - std::min(count - unknown, posted_.size()));
  }
  // The posted requests whose messages have not begun were flushed.
  void OnFlushed() {
    posted_.clear();
    unknown_ = 0;
  }
  // The process sends a request packet. A packet that was seen before changes
  // nothing. A long READ has several request packets, and one may ask for parts
  // of others again.
  void OnSent(const RequestFacts& request) {
    const int64_t ahead = Advance(request.last_psn());
    if (ahead <= 0) return;
    if (request.is_read && read_bytes_left_ > 0) {
      const int64_t again = std::max<int64_t>(0, request.packets() - ahead);
      const uint64_t asked =
          request.bytes - static_cast<uint64_t>(again) * request.mtu;
      read_bytes_left_ -= std::min(read_bytes_left_, asked);
      return;
    }
    if (!request.starts) return;
    BeginMessage(request.psn);
    if (posted_.empty()) {
      if (unknown_ > 0) --unknown_;
      return;
    }
    messages_.back().wr_id = posted_.front().wr_id;
    read_bytes_left_ = posted_.front().read_bytes -
                       std::min(posted_.front().read_bytes, request.bytes);
    posted_.pop_front();
  }
  // `psn`: that of the first request that will arrive. Without this call, the
  // first request that is seen counts as the first.
  void StartAt(uint32_t psn) { Advance(wire::PsnAdd(psn, -1)); }
  // A request of RC, XRC or DC arrives. Requests beyond a gap belong to no
  // message until the gap is closed, or more than kRemembered have arrived.
  void OnReceivedInOrder(const RequestFacts& request) {
    if (!has_seen_) StartAt(request.psn);
    const int32_t ahead = wire::PsnDiff(request.psn, highest_);
    if (ahead > 1) {
      if (waiting_.size() < kRemembered) {
        waiting_[request.psn] = request;
        return;
      }
      // The packets that closed the gap were not seen here: count on after the
      // gap.
      waiting_.clear();
      StartAt(request.psn);
    }
    CountRequest(request);
    for (auto next = waiting_.find(wire::PsnAdd(highest_, 1));
         next != waiting_.end();
         next = waiting_.find(wire::PsnAdd(highest_, 1))) {
      CountRequest(next->second);
      waiting_.erase(next);
    }
  }
  // The same for UC, which does not retransmit.
  void OnReceivedOnce(const RequestFacts& request) {
    if (has_seen_ && wire::PsnDiff(request.psn, highest_) <= 0) return;
    CountRequest(request);
  }
  // A datagram arrives, from any sender.
  void OnDatagram(uint32_t psn) {
    has_seen_ = true;
    highest_ = psn;
    messages_.clear();
    BeginMessage(psn);
  }
  // The message of a request, or of the answer to one. Null if it is unknown.
  // Valid until the next request.
  const Message* Find(uint32_t psn) const {
    if (!has_seen_ || wire::PsnDiff(psn, highest_) > 0) return nullptr;
    for (auto at = messages_.rbegin(); at != messages_.rend(); ++at) {
      if (wire::PsnDiff(psn, at->first_psn) >= 0) return &*at;
    }
    return nullptr;
  }

 private:
  static constexpr size_t kRemembered = 4096;
  // More requests than a send queue can hold.
  static constexpr size_t kMaxPosted = size_t{1} << 17;

  // Returns by how many PSNs `last` is ahead of the highest PSN that was seen,
  // and raises that to `last`.
  int64_t Advance(uint32_t last) {
    const int64_t ahead =
        has_seen_ ? int64_t{wire::PsnDiff(last, highest_)} : INT64_MAX;
    if (ahead > 0) highest_ = last;
    has_seen_ = true;
    return ahead;
  }
  void CountRequest(const RequestFacts& request) {
    const bool is_new = !has_seen_ || wire::PsnDiff(request.psn, highest_) > 0;
    Advance(request.last_psn());
    if (is_new && request.starts) BeginMessage(request.psn);
  }
  void BeginMessage(uint32_t psn) {
    messages_.push_back(
        {.first_psn = psn, .number = ++count_, .wr_id = std::nullopt});
    if (messages_.size() > kRemembered) messages_.pop_front();
  }

  std::deque<PostedRequest> posted_;
  size_t unknown_ = 0;  // requests that were posted behind these
  std::deque<Message> messages_;
  std::map<uint32_t, RequestFacts> waiting_;  // beyond a gap, by PSN
  uint64_t read_bytes_left_ = 0;              // of a READ, not yet asked for
  uint64_t count_ = 0;
  uint32_t highest_ = 0;
  bool has_seen_ = false;
};

}  // namespace transport::faults

#endif  // TRANSPORT_FAULTS_MESSAGES_H_
