// The round trip of a path, and the timeouts that follow from it (RFC 6298).
#ifndef TRANSPORT_CONGESTION_ROUND_TRIP_H_
#define TRANSPORT_CONGESTION_ROUND_TRIP_H_

#include "transport/base/types.h"

namespace transport {

// All times are ns.
class RoundTrip {
 public:
  Time smoothed() const { return smoothed_; }  // 0: no sample yet
  // The least of the last kBaseLife, without queues as far as can be told. 0:
  // no sample yet.
  Time base() const { return base_; }
  // After the last sign of life an unanswered tail is probed. At least a
  // millisecond: a peer in software may wait for a core.
  Time ProbeTimeout() const;
  // For a probe of one packet that is likely to be lost. kNever: no sample yet.
  Time EarlyProbeTimeout() const;

  void OnSample(Time rtt, Time now);
  // There was progress after this many probes, which gives no sample: nobody
  // knows which packet was answered. Until there is a sample, timeouts stay as
  // long as they had become (RFC 6298, 5.5 to 5.7). Otherwise a peer that is
  // slower than the first timeout is probed for ever, and never gives a sample
  // (RequesterLossTest.ASlowPeerIsNotProbedForEver).
  void OnProbesAnswered(int probes);
  // Of a packet that was retransmitted, an answer came `least` after the last
  // time that it was sent: the round trip took that long or longer, whichever
  // was answered. If that is longer than the timeout, the peer, or we
  // ourselves, waited for a core: for some seconds no probe comes before twice
  // that time. A smoothed round trip does not show it, since most answers are
  // fast and slow ones give no sample
  // (RequesterLossTest.ALateAnswerDelaysLaterProbes, sim/overload_test).
  void OnLateAnswer(Time least, Time now);

 private:
  Time MeasuredTimeout() const;

  Time smoothed_ = 0;
  Time variation_ = 0;
  Time base_ = 0;
  Time base_until_ = 0;  // then it is measured anew
  int backoff_ = 0;      // doublings
  // The longest round trip that outlasted the timeout; halved at intervals.
  Time late_ = 0;
  Time late_until_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_CONGESTION_ROUND_TRIP_H_
