// The way to one destination address: how much may be in flight to it
// (DESIGN, decision 9). Queue pairs to one destination share its Path.
#ifndef TRANSPORT_PATH_H_
#define TRANSPORT_PATH_H_

#include <cstdint>

#include "transport/types.h"

namespace transport {

// Congestion window in bytes over payload-carrying packets in flight, READ
// response bytes that were asked for included. Starts within what default
// receive buffers hold, grows while nothing is lost, and shrinks on loss and
// on congestion notification.
class Path {
 public:
  // --- Getters.
  uint64_t window() const { return window_; }        // bytes
  uint64_t in_flight() const { return in_flight_; }  // bytes
  // One packet may always be in flight, however small the window.
  bool MaySend(uint64_t bytes) const {
    return in_flight_ == 0 || in_flight_ + bytes <= window_;
  }
  Time smoothed_rtt() const { return smoothed_rtt_; }  // ns; 0 = no sample yet
  // How long after the last sign of life an unanswered tail is probed.
  Time ProbeTimeout() const;

  // --- Inputs.
  void OnSent(uint64_t bytes) { in_flight_ += bytes; }
  // `bytes` left the network: acknowledged, given up or to be sent again.
  void OnGone(uint64_t bytes);
  void OnAcknowledged(uint64_t bytes, Time now);  // after OnGone
  void OnRttSample(Time rtt);
  // At most one reduction per round trip.
  void OnLoss(Time now);
  void OnCongestionNotification(Time now);
  // A timeout: the window goes back to its least.
  void OnTimeout(Time now);

 private:
  uint64_t window_ = 0;
  uint64_t threshold_ = 0;
  uint64_t in_flight_ = 0;
  Time smoothed_rtt_ = 0;
  Time rtt_variation_ = 0;
  Time recovery_until_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_PATH_H_
