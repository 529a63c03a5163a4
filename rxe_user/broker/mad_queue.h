// MADs that a process has not read yet. Their number is limited; some space is
// reserved for messages of connections, so that a flood of requests cannot use
// it.
#ifndef RXE_USER_BROKER_MAD_QUEUE_H_
#define RXE_USER_BROKER_MAD_QUEUE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

#include "rxe_user/broker/protocol.h"
#include "transport/cm/mad_packet.h"
#include "wire/address.h"

namespace rxe_user::broker {

class MadQueue {
 public:
  static constexpr size_t kMax = 2048;
  explicit MadQueue(size_t most = kMax) : most_(most) {}

  struct Entry {
    StrayHead head;
    std::array<uint8_t, transport::cm::kMadPacketSize> bytes;
    wire::IpAddress source;
    bool initial = false;
  };

  // False if it does not fit.
  bool Push(const Entry& entry) {
    if (entries_.size() >= most_) return false;
    if (entry.initial) {
      // Limits for unanswered requests: in total, and from one address.
      if (initial_ >= most_ * 3 / 4) return false;
      size_t& of_source = initial_of_[entry.source];
      if (of_source >= most_ / 2) return false;
      ++of_source;
      ++initial_;
    }
    entries_.push_back(entry);
    return true;
  }
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  const Entry& front() const { return entries_.front(); }
  void Clear() { *this = MadQueue(most_); }
  void Pop() {
    const Entry& entry = entries_.front();
    if (entry.initial) {
      --initial_;
      const auto of_source = initial_of_.find(entry.source);
      if (--of_source->second == 0) initial_of_.erase(of_source);
    }
    entries_.pop_front();
  }

 private:
  size_t most_;
  std::deque<Entry> entries_;
  size_t initial_ = 0;
  std::map<wire::IpAddress, size_t> initial_of_;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_MAD_QUEUE_H_
