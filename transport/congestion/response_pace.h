// How fast READ responses go to one destination that has asked for less by
// CNPs: at a rate, which DCQCN (dcqcn.h) lowers and raises again. The window of
// the path cannot do that: what is on its way here was asked for by the peer,
// and nobody acknowledges it.
//
// Until there is a CNP it is off, and responses go out as fast as they are
// asked for.
#ifndef TRANSPORT_CONGESTION_RESPONSE_PACE_H_
#define TRANSPORT_CONGESTION_RESPONSE_PACE_H_

#include <cstdint>

#include "transport/base/types.h"
#include "transport/congestion/dcqcn.h"

namespace transport {

class ResponsePace {
 public:
  // A rate is the bytes of so long.
  static constexpr Time kInterval = 100 * kMicrosecond;
  // What the first CNP finds: 10 Gb/s. When it has come back to this, it is
  // off.
  static constexpr uint64_t kFullRate = 128 * 1024;
  // 5 Mb/s, but never less than a packet in kMostPause: the peer's time-out,
  // which each response puts off, and its probes are to be later.
  static constexpr uint64_t kLeastRate = 64;
  static constexpr Time kMostPause = 2 * kMillisecond;
  // What goes out at once is a packet, or so long's worth of them, and as much
  // again if the timer was late: at 10 Gb/s less than switches begin to mark
  // at.
  static constexpr Time kBurst = 25 * kMicrosecond;

  bool on() const { return rate_ != 0; }
  // While it is on: whether a response may go out, as the first of a burst or
  // behind others; and when the next burst may.
  bool MayBegin(Time now) const { return now >= free_at_; }
  bool MayGoOn(Time now) const { return now + kBurst > free_at_; }
  // For one of the queue pairs that wait for it: they come one after the other,
  // and each time in another order, or the first would always be the same.
  Time TurnOf(uint32_t qpn) const;
  uint64_t rate() const { return rate_; }  // 0: off

  // --- Inputs.
  // A CNP, for somebody who has sent responses since the last one.
  void OnNotification(Time now);
  // A response has to wait: only a rate that was used up may grow.
  void OnHeld() { held_ = true; }
  // A response of `bytes` in a burst; harmless when it is off by now.
  void OnSent(uint64_t bytes, Time now);

 private:
  Dcqcn dcqcn_;
  uint64_t rate_ = 0;
  Time gap_ = 0;  // behind the last packet
  Time free_at_ = 0;
  Time notified_ = 0;  // rate_ was lowered
  bool held_ = false;
};

}  // namespace transport

#endif  // TRANSPORT_CONGESTION_RESPONSE_PACE_H_
