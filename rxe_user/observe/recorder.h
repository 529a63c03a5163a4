// The flight recorder: the last rare events (transport/base/rare_event.h) of a
// lane's queue pairs, in a ring of fixed size. It is always on: good packets do
// not touch it, and memory that was never written costs nothing.
#ifndef RXE_USER_OBSERVE_RECORDER_H_
#define RXE_USER_OBSERVE_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/base/rare_event.h"

namespace rxe_user {

// An event, or several equal ones in a row.
struct RecordedEvent {
  transport::RareEvent event;  // the first
  transport::Time last = 0;    // time of the last
  uint32_t count = 1;
};

// Guarded by the lane's lock.
class Recorder {
 public:
  static constexpr size_t kBytes = 32 * 1024;
  static constexpr size_t kEvents = kBytes / sizeof(RecordedEvent);

  Recorder() { ring_.reserve(kEvents); }

  // Adds `event`, or counts it with one of the last kLookBack that is equal
  // apart from time and PSN: so a loop of RNR NAKs or retransmissions does not
  // displace its beginning. If the ring is full, the oldest event is lost.
  void Add(const transport::RareEvent& event);
  // Oldest first.
  std::vector<RecordedEvent> Events() const;
  // Events that were displaced.
  uint64_t lost() const { return added_ <= kEvents ? 0 : added_ - kEvents; }

 private:
  static constexpr size_t kLookBack = 8;
  RecordedEvent& At(uint64_t number) { return ring_[number % kEvents]; }

  std::vector<RecordedEvent> ring_;  // grows to kEvents, without allocating
  uint64_t added_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_RECORDER_H_
