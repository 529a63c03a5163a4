// The round trip of a path, and the timeouts that follow from it (RFC 6298).
#ifndef TRANSPORT_CONGESTION_ROUND_TRIP_H_
#define TRANSPORT_CONGESTION_ROUND_TRIP_H_

#include "transport/base/types.h"

namespace transport {

// All times are ns.
class RoundTrip {
 public:
  Time smoothed() const { return smoothed_; }  // 0: no sample yet
  // The shortest of the last kBaseLife: the round trip without queues, as far
  // as is known. 0: no sample yet.
  Time base() const { return base_; }
  // How long after the last sign of life an unanswered tail is probed. At least
  // a millisecond: a peer in software may wait for a core.
  Time ProbeTimeout() const;
  // The same for a probe of one packet that is likely to be lost. kNever: no
  // sample yet.
  Time EarlyProbeTimeout() const;

  void OnSample(Time rtt, Time now);
  // There was progress after this many probes, which gives no sample: it is
  // unknown which packet was answered. Until there is a sample, timeouts stay
  // as long as they had become (RFC 6298, 5.5 to 5.7). Otherwise a peer that is
  // slower than the first timeout would be probed for ever, and never give a
  // sample (RequesterLossTest.ASlowPeerIsNotProbedForEver).
  void OnProbesAnswered(int probes);

 private:
  Time smoothed_ = 0;
  Time variation_ = 0;
  Time base_ = 0;
  Time base_until_ = 0;  // then it is measured anew
  int backoff_ = 0;      // doublings
};

}  // namespace transport

#endif  // TRANSPORT_CONGESTION_ROUND_TRIP_H_
