// The path to one destination address: how much may be in flight to it
// (docs/design/loss-and-congestion.md). All queue pairs to the destination
// share it.
#ifndef TRANSPORT_ENDPOINT_PATH_H_
#define TRANSPORT_ENDPOINT_PATH_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "transport/base/types.h"
#include "transport/endpoint/dcqcn.h"
#include "transport/endpoint/response_pace.h"

namespace transport {

// The congestion window in bytes, requested READ responses included. It starts
// within default receive buffers, grows without loss, and shrinks on loss and
// on CNPs; after a CNP it grows by DCQCN.
//
// A queue pair whose peer is silent must not take the window from others. So
// only bytes to peers that answer count in the window. Bytes to other peers
// (that have not answered yet, or no longer do) count separately, and each
// queue pair may have a share of that.
//
// A packet counts as its payload plus kPacketOverhead, since the kernel charges
// a socket's receive buffer (212,992 bytes by default, doubled by SO_RCVBUF)
// for its allocations: some 768 bytes for the smallest datagram, some 2 KiB for
// 1 KiB.
class Path {
 public:
  static constexpr uint64_t kPacketOverhead = 256;
  // 30 packets of 4 KiB or 400 of 64 bytes: fits a default receive buffer.
  static constexpr uint64_t kInitialWindow = 128 * 1024;
  static constexpr uint64_t kLeastWindow = 16 * 1024;
  // Raw UDP_SEGMENT on loopback is no faster with more than 480 KB in flight;
  // beyond 1 MiB, receive buffers of 416 KiB only lose packets.
  static constexpr uint64_t kGreatestWindow = 1024 * 1024;
  // Limit for first packets while no peer of the path has answered: 90 queue
  // pairs with 4 KiB each.
  static constexpr uint64_t kMostWithUnanswered = 3 * kInitialWindow;

  // --- Getters.
  uint64_t window() const { return window_; }                      // bytes
  uint64_t in_flight() const { return in_flight_ + unanswered_; }  // bytes
  // Unused window, in bytes.
  uint64_t room() const {
    return window_ > in_flight_ ? window_ - in_flight_ : 0;
  }
  // Bytes that one queue pair may have in flight without an answer. One packet
  // is always allowed.
  uint64_t share() const {
    return window_ / static_cast<uint64_t>(std::max(users_, 1));
  }
  // Changes when a queue pair whose peer had answered falls silent, or when the
  // window drops to its minimum. Each other queue pair is then limited to its
  // share until it is answered once more. Never 0.
  uint32_t silences() const { return silences_; }
  bool answered() const { return last_answer_ >= 0; }  // any peer, ever
  // Whether anything is in flight to peers that do not answer.
  bool has_unanswered() const { return unanswered_ > 0; }
  // Whether any queue pair of the path was answered after `time`.
  bool AnsweredSince(Time time) const { return last_answer_ > time; }
  // Whether a loss after `time` is known: reported by a peer that answers.
  bool LostSince(Time time) const { return last_loss_ > time; }
  bool has_lost() const { return last_loss_ >= 0; }  // ever
  // One packet may always be in flight, however small the window.
  bool MaySend(uint64_t bytes) const {
    return in_flight_ == 0 || in_flight_ + bytes <= window_;
  }
  // How many packets of `bytes` the window permits now.
  uint64_t MaySendPackets(uint64_t bytes) const {
    const uint64_t fit = room() / bytes;
    return fit == 0 && in_flight_ == 0 ? 1 : fit;
  }
  // Whether a queue pair may send its first `bytes` while no peer has answered.
  bool MaySendUnanswered(uint64_t bytes) const {
    return in_flight() + bytes <= std::max(window_, kMostWithUnanswered);
  }

  // --- Without acknowledgements (UC), bytes are not known to leave the
  // network. They are paced instead: one window per kPaceInterval, burst by
  // burst. CNPs and losses of other queue pairs shrink the window; without
  // either it grows up to kInitialWindow, which receive buffers hold.
  static constexpr Time kPaceInterval = 100 * kMicrosecond;
  bool MaySendUnacknowledged(Time now) const { return now >= paced_until_; }
  Time paced_until() const { return paced_until_; }
  void OnSentUnacknowledged(uint64_t bytes, Time now);

  // --- READ responses: limited by CNPs, but not by the window, since the peer
  // has requested them.
  ResponsePace& responses() { return responses_; }
  const ResponsePace& responses() const { return responses_; }

  Time smoothed_rtt() const { return smoothed_rtt_; }  // ns; 0 = no sample yet
  // Bandwidth-delay product in bytes: the measured rate times the minimum round
  // trip.
  uint64_t round_trip_bytes() const {
    return bytes_per_ms_ * static_cast<uint64_t>(base_rtt_) / kMillisecond;
  }
  // Delay from the last packet of a peer to the probe of an unacknowledged
  // tail: the timeout of RFC 6298, but at least a millisecond.
  Time ProbeTimeout() const;
  // The same for packets that are probably lost, on a path with a recent loss.
  // It is shorter: a probe is one packet, and need not allow for a peer that
  // waits for a core. kNever on other paths.
  Time EarlyProbeTimeout(Time now) const;

  // Whether bytes have left the network since the last call, or there is a
  // pause: waiting queue pairs may be able to send, now or after the pause.
  bool TakeOpened() { return std::exchange(opened_, held_ != 0); }

  // --- A window of less than a packet means one packet, then a pause. The
  // packet's bytes still count in the window after it has left the network,
  // until EndPause returns true: at `paused_until`, or when the window has
  // grown to a packet. The pause is at most that of 1 Mb/s, since long round
  // trips may have other causes than the network.
  static constexpr Time kLeastRateByte = 8 * kMicrosecond;
  bool paused() const { return held_ != 0; }
  uint64_t held() const { return held_; }  // bytes of in_flight()
  Time paused_until() const { return paused_until_; }
  bool EndPause(Time now);

  // --- Inputs. Bytes include kPacketOverhead for every packet.
  void Join() { ++users_; }               // a queue pair
  bool Leave() { return --users_ == 0; }  // true: it was the last
  void OnSent(uint64_t bytes) { in_flight_ += bytes; }
  // `bytes` left the network: acknowledged, lost, or to be retransmitted.
  void OnGone(uint64_t bytes);
  // The same for a queue pair whose peer does not answer.
  void OnSentUnanswered(uint64_t bytes) { unanswered_ += bytes; }
  void OnGoneUnanswered(uint64_t bytes);
  // A queue pair with `bytes` in flight has fallen silent. `news`: it had been
  // answered since the last silence.
  void OnSilence(uint64_t bytes, bool news);
  // Its peer answers again: its bytes in flight count in the window.
  void OnAnswer(uint64_t bytes);
  void OnAcknowledged(uint64_t bytes, Time now);  // after OnGone
  // OnAcknowledged for UC, where a loss is not repaired: the window grows at
  // most to `greatest`, which the receive buffer holds, instead of growing
  // until a loss.
  void OnAnswered(uint64_t bytes, uint64_t greatest, Time now);
  void OnRttSample(Time rtt, Time now);
  // Progress after this many probes. It gives no sample, since the packet that
  // was answered is unknown. Until there is a sample, timeouts stay backed off
  // (RFC 6298, 5.5 to 5.7); otherwise a slow peer would never give one.
  void OnProbesAnswered(int probes);
  // `bytes` to a peer that answers are known to be lost.
  void OnLost(uint64_t bytes);
  // Loss at a peer that answers. At most one reduction per round trip.
  void OnLoss(Time now);
  // Minimum interval of the CNPs that count, as DCQCN allows one receiver; one
  // may be early by half of it. True if the CNP counts.
  static constexpr Time kNotificationInterval = 50 * kMicrosecond;
  bool OnCongestionNotification(Time now);
  // A timeout while no queue pair was answered: reduces the window to its
  // minimum.
  void OnTimeout(Time now);
  // The last timeout was too early, or not due to the path: restores the window
  // of before the first timeout in a row, unless it was reduced otherwise
  // since.
  void UndoTimeout();

 private:
  // Shrinks the window to `window`, unless it was reduced within this round
  // trip.
  void Reduce(uint64_t window, Time now);
  void CountSilence();
  void MeasureRate(Time now);
  void GrowByDcqcn(uint64_t bytes, Time now);
  void Grow(uint64_t bytes, Time now);  // `bytes` were acknowledged
  Time Interval(uint64_t bytes) const;
  void Pause(uint64_t bytes, Time now);
  // Lower bound for the window after a loss, in bytes.
  uint64_t LeastAfterLoss() const;

  // End of slow start, until the first loss.
  uint64_t threshold_ = 384 * 1024;
  uint64_t window_ = kInitialWindow;
  uint64_t in_flight_ = 0;   // to peers that answer
  uint64_t unanswered_ = 0;  // to other peers
  int users_ = 0;
  uint32_t silences_ = 1;
  Time last_answer_ = -1;
  Time last_loss_ = -1;
  uint64_t window_before_timeout_ = 0;  // 0: nothing to undo
  uint64_t threshold_before_timeout_ = 0;
  Time smoothed_rtt_ = 0;
  Time rtt_variation_ = 0;
  Time base_rtt_ = 0;        // 0: no sample
  Time base_rtt_until_ = 0;  // measured anew after that
  // Bytes acknowledged since rate_since_, and the smoothed rate of earlier
  // intervals.
  uint64_t rate_bytes_ = 0;
  Time rate_since_ = 0;
  uint64_t bytes_per_ms_ = 0;
  // Recent loss rate: lost bytes and acknowledged bytes.
  uint64_t lost_bytes_ = 0;
  uint64_t acknowledged_bytes_ = 0;
  int backoff_ = 0;  // doublings of the probe timeout
  bool opened_ = false;
  Time recovery_until_ = 0;  // no reduction before this time
  // Earliest next CNP that counts.
  Time next_notification_ = 0;
  Dcqcn dcqcn_;
  ResponsePace responses_;
  Time paced_until_ = 0;
  uint64_t held_ = 0;  // bytes of in_flight_ that have left the network (pause)
  Time paused_until_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_PATH_H_
