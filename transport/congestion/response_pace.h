// The rate of READ responses to one destination that sends CNPs: DCQCN
// (dcqcn.h) lowers and raises it. The window of the path cannot limit
// responses, since the peer does not acknowledge them.
//
// Until the first CNP the pace is off, and responses are sent as fast as they
// are requested.
#ifndef TRANSPORT_CONGESTION_RESPONSE_PACE_H_
#define TRANSPORT_CONGESTION_RESPONSE_PACE_H_

#include <cstdint>

#include "transport/base/types.h"
#include "transport/congestion/dcqcn.h"

namespace transport {

class ResponsePace {
 public:
  // Rates are bytes in this time.
  static constexpr Time kInterval = 100 * kMicrosecond;
  // 10 Gb/s: the rate that the first CNP reduces. When the rate is back at
  // this, the pace is off.
  static constexpr uint64_t kFullRate = 128 * 1024;
  // 5 Mb/s, and at least a packet in kMaxPause: each response puts off the
  // peer's timeout and its probes (ReadByHardwareStormTest.NeverTimesOut).
  static constexpr uint64_t kMinRate = 64;
  static constexpr Time kMaxPause = 2 * kMillisecond;
  // A burst is one packet, or what the rate permits in this time, and as much
  // again if the timer was late. At 10 Gb/s that is less than the queue at
  // which switches begin to mark.
  static constexpr Time kBurst = 25 * kMicrosecond;

  bool on() const { return rate_ != 0; }
  // While it is on: whether a response may go out, as the first of a burst
  // (MayBegin) or behind others (MayContinue).
  bool MayBegin(Time now) const { return now >= free_at_; }
  bool MayContinue(Time now) const { return now + kBurst > free_at_; }
  // When a waiting queue pair should try. Queue pairs try one after the other,
  // each time in another order: in a fixed order the first one would take the
  // whole rate (ReadByHardwareQueuePairsTest.ShareTheRateOfTheirPath).
  Time TurnOf(uint32_t qpn) const;
  uint64_t rate() const { return rate_; }  // 0: off

  // --- Inputs.
  // A CNP for a queue pair that has sent responses since the last one.
  void OnNotification(Time now);
  // A response has to wait. Only a rate that was used up grows
  // (ResponderPaceTest.ARateThatIsNotUsedDoesNotGrow).
  void OnHeld() { held_ = true; }
  // A response of `bytes` in a burst. No effect if the pace is off meanwhile.
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
