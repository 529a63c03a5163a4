// Requests that arrived before a process listens. Programs agree through one
// connection to make a second one, and the active end may be faster (perftest
// -R). So a request without a listener is held for a moment before it is
// refused; a process that starts listening meanwhile gets it.
#ifndef RXE_USER_BROKER_EARLY_REQUESTS_H_
#define RXE_USER_BROKER_EARLY_REQUESTS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "rxe_user/base/local_address.h"
#include "transport/base/types.h"
#include "transport/cm/mad_packet.h"
#include "transport/cm/types.h"
#include "wire/address.h"

namespace rxe_user::broker {

class EarlyRequests {
 public:
  static constexpr transport::Time kHoldFor = 100 * transport::kMillisecond;
  // Further requests are refused at once.
  static constexpr size_t kMax = 256;

  struct Entry {
    LocalAddress local;
    wire::IpAddress source;
    uint16_t source_port = 0;
    uint64_t service_id = 0;
    std::array<uint8_t, transport::cm::kMadPacketSize> bytes{};
    transport::cm::Mad refusal{};  // the answer that refuses it
    transport::Time deadline = 0;
  };

  // False if the queue is full.
  bool Push(const Entry& entry, transport::Time now) {
    if (entries_.size() >= kMax) return false;
    entries_.push_back(entry);
    entries_.back().deadline = now + kHoldFor;
    return true;
  }
  // Absent if empty.
  std::optional<transport::Time> NextDeadline() const {
    if (entries_.empty()) return std::nullopt;
    return entries_.front().deadline;
  }
  // Removes and returns the oldest entry that is due.
  std::optional<Entry> PopDue(transport::Time now) {
    if (entries_.empty() || entries_.front().deadline > now) {
      return std::nullopt;
    }
    const Entry entry = entries_.front();
    entries_.pop_front();
    return entry;
  }
  // Removes the entries for which `takes` returns true, since they now have a
  // listener.
  void Offer(const std::function<bool(const Entry&)>& takes) {
    std::erase_if(entries_, takes);
  }

 private:
  std::deque<Entry> entries_;  // by deadline
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_EARLY_REQUESTS_H_
