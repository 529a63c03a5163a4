// When a requester considers packets lost: gaps that the peer reports, and
// three timers on what is outstanding (IBA vol. 1, 9.9.2.1;
// docs/design/loss-and-congestion.md).
//
// - The *probe* fires some round trips after the last progress (RFC 6298's
//   timeout, Path::ProbeTimeout) and doubles each time. The first one
//   retransmits one packet; later ones retransmit everything. Probes spend no
//   retry. Without them a lost tail, or a lost NAK, waits for the ACK timeout
//   (sim/loss_test, LostTail). A peer that still answers earlier packets is not
//   probed (LossDetectorTest.AProbeWaitsForItsTurn).
// - The *early probe* fires before it on a path with recent loss, at most
//   kMaxEarlyProbes times: it retransmits one packet, the missing one or the
//   last one. Without it a lost retransmission costs a probe timeout, which is
//   at least a millisecond (RequesterLossTest.EarlyProbesOnAPathThatLoses).
// - The *ACK timeout* is the queue pair's own, and the only one that spends
//   retry_cnt.
#ifndef TRANSPORT_RC_LOSS_DETECTOR_H_
#define TRANSPORT_RC_LOSS_DETECTOR_H_

#include <algorithm>
#include <cstdint>

#include "transport/base/types.h"
#include "transport/congestion/path.h"
#include "transport/rc/send_sequence.h"

namespace transport {

// In sequence numbers of the requester. The timers run while something is
// outstanding.
class LossDetector {
 public:
  enum class Verdict : uint8_t { kNothing, kAckTimeout, kProbe, kEarlyProbe };
  // What deadlines depend on, beyond the detector's own state.
  struct Conditions {
    uint64_t una = 0;
    Time ack_timeout = 0;  // ns; 0: none
    uint32_t qpn = 0;
    uint32_t dest_qpn = 0;
    // The peer is not silent, and no failure is pending.
    bool may_probe_early = false;
  };

  // --- Timers.
  Time Deadline(const Path& path, const Conditions& conditions) const {
    const Time deadline =
        std::min(AckDeadline(conditions), ProbeDeadline(path, conditions));
    if (!path.has_lost()) return deadline;
    return std::min(deadline, EarlyProbeDeadline(path, conditions));
  }
  // The first one that has expired, in the order of Verdict.
  Verdict Judge(const Path& path, const Conditions& conditions, Time now) const;
  // Since when the ACK timeout runs; kNever: it does not.
  Time since() const { return timeout_base_; }
  uint8_t probes() const { return probes_; }  // since the last progress

  void OnSent(Time now) {
    if (timeout_base_ == kNever) timeout_base_ = now;
    if (probe_base_ == kNever) probe_base_ = now;
  }
  // una has moved: probes are counted anew.
  void ForgetProbes() { probes_ = early_probes_ = 0; }
  // una has moved, and something is outstanding.
  void RestartTimers(Time now) { timeout_base_ = probe_base_ = now; }
  // An answer without progress: the peer is alive, so the probe is put off. How
  // long the peer may leave a packet unanswered is limited by the ACK timeout.
  void OnSignOfLife(Time now) { probe_base_ = now; }
  // The timers are off until something is sent.
  void StopTimers() { timeout_base_ = probe_base_ = kNever; }
  // An RNR NAK: the requester waits, and the peer is alive.
  void OnNotReady() {
    StopTimers();
    probes_ = 0;
  }
  void OnProbe(Time now) {
    if (probes_ < kMaxBackoff) ++probes_;
    probe_base_ = now;
  }
  void OnEarlyProbe(uint64_t una, Time now) {
    ++early_probes_;
    if (GapIsKnown(una)) gap_time_ = now;
  }

  // --- Gaps.
  // A packet is known to be missing at `una`.
  bool GapIsKnown(uint64_t una) const { return gap_seq_ == una; }
  // A report within a round trip of the last one is of the same loss: packets
  // that were in flight at the first one trigger the same report. Without this
  // each of many reports retransmits everything
  // (RequesterNakTest.RepeatedNaksOfOneRoundTripAreOne).
  bool JustHandled(const Path& path, Time now) const;
  // The peer reports a gap at `una`. True if that costs a retry: the same gap
  // was reported before, and there is no ACK timeout. With an ACK timeout
  // reports cost nothing: they come a round trip apart, and would use up in
  // milliseconds the retries that are to last for retry_cnt timeouts
  // (RequesterLossTest.NaksWithoutProgressEndInTheTimeout). Reports less than a
  // probe timeout apart cost nothing either: the packets of one long answer
  // that has lost its beginning show the gap again and again, until the missing
  // part has been requested and arrives
  // (RequesterLossTest.ALongAnswerIsNotManyGaps).
  bool OnGap(const Path& path, uint64_t una, bool has_ack_timeout, Time now);
  // Something of [una, max) was lost. False if it belongs to a flight that has
  // lost something before: the window shrinks once for all gaps of one flight
  // (RequesterNakTest.TheWindowShrinksOncePerFlight).
  bool IsNewFlight(uint64_t una, uint64_t max) {
    if (una < lost_until_) return false;
    lost_until_ = max;
    return true;
  }

  // The path's window fell to its minimum because of this queue pair, and there
  // was no progress since.
  bool timed_out = false;

 private:
  static constexpr uint8_t kMaxBackoff = 16;  // doublings
  static constexpr int kMaxEarlyProbes = 2;
  // Between probes of a queue pair that has no ACK timeout.
  static constexpr Time kMaxProbeInterval = kSecond;
  // From this many probes in a row on, intervals differ between queue pairs.
  static constexpr uint8_t kSpreadProbes = 3;

  Time AckDeadline(const Conditions& conditions) const {
    if (conditions.ack_timeout == 0 || timeout_base_ == kNever) return kNever;
    return timeout_base_ + conditions.ack_timeout;
  }
  // Once the interval exceeds the ACK timeout, that expires first, and
  // retransmits as a probe does.
  Time ProbeDeadline(const Path& path, const Conditions& conditions) const {
    if (probe_base_ == kNever) return kNever;
    Time interval = path.ProbeTimeout() << probes_;
    // Queue pairs that fell silent together must not retransmit together: their
    // packets would be lost together again.
    if (probes_ >= kSpreadProbes) {
      const uint32_t part = conditions.qpn * 0x9e3779b1u >> 26;  // of 128
      interval -= interval / 128 * part;
    }
    if (conditions.ack_timeout == 0) {
      interval = std::min(interval, kMaxProbeInterval);
    }
    return path.SilentSince(conditions.dest_qpn, probe_base_) + interval;
  }
  Time EarlyProbeDeadline(const Path& path, const Conditions& conditions) const;

  uint8_t probes_ = 0;
  uint8_t early_probes_ = 0;
  Time timeout_base_ = kNever;      // since when the ACK timeout runs
  Time probe_base_ = kNever;        // and the probe
  uint64_t gap_seq_ = kNoSequence;  // una when a gap was last reported
  Time gap_time_ = 0;               // when it was, or was probed for
  Time gap_counted_ = 0;            // when it last cost a retry, or was found
  uint64_t lost_until_ = 0;         // max when loss last shrank the window
};

}  // namespace transport

#endif  // TRANSPORT_RC_LOSS_DETECTOR_H_
