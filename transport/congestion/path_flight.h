// What all queue pairs that share a path have in flight.
//
// What a queue pair with a silent peer has in flight is counted apart: it must
// not keep the window from the others (FlightAccount).
#ifndef TRANSPORT_CONGESTION_PATH_FLIGHT_H_
#define TRANSPORT_CONGESTION_PATH_FLIGHT_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "transport/base/types.h"

namespace transport {

// In bytes, as Path counts them.
class PathFlight {
 public:
  uint64_t answered() const { return answered_; }      // in the window
  uint64_t unanswered() const { return unanswered_; }  // apart
  // The part of answered() that has left the network, but still counts (Hold).
  uint64_t held() const { return held_; }
  Time paused_until() const { return paused_until_; }

  void OnSent(uint64_t bytes) { answered_ += bytes; }
  void OnGone(uint64_t bytes) {
    answered_ -= std::min(bytes, answered_);
    opened_ = true;
  }
  void OnSentUnanswered(uint64_t bytes) { unanswered_ += bytes; }
  void OnGoneUnanswered(uint64_t bytes) {
    unanswered_ -= std::min(bytes, unanswered_);
    opened_ = true;
  }
  // A queue pair with `bytes` in flight falls silent.
  void OnSilence(uint64_t bytes) {
    OnGone(bytes);
    unanswered_ += bytes;
  }
  // The peer of a queue pair that counted apart has answered, for the first
  // time or again.
  void OnAnswer(uint64_t bytes) {
    unanswered_ -= std::min(bytes, unanswered_);
    answered_ += bytes;
  }
  // Whether bytes have left the network since the last call, or there is a
  // pause: queue pairs that wait for the window may find it open, now or later.
  bool TakeOpened() { return std::exchange(opened_, held_ != 0); }

  // `bytes` have left, but still count for `lasts` more.
  void Hold(uint64_t bytes, Time lasts, Time now) {
    paused_until_ = std::max(now, paused_until_) + lasts;
    answered_ += bytes;
    held_ += bytes;
  }
  void Release(Time now) {
    paused_until_ = std::min(paused_until_, now);
    answered_ -= held_;
    held_ = 0;
  }

 private:
  uint64_t answered_ = 0;
  uint64_t unanswered_ = 0;
  uint64_t held_ = 0;
  Time paused_until_ = 0;
  bool opened_ = false;
};

}  // namespace transport

#endif  // TRANSPORT_CONGESTION_PATH_FLIGHT_H_
