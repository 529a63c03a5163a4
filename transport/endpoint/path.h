// The way to one destination address: how much may be in flight to it
// (docs/design/loss-and-congestion.md). Queue pairs to one destination
// share its Path.
#ifndef TRANSPORT_ENDPOINT_PATH_H_
#define TRANSPORT_ENDPOINT_PATH_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "transport/base/types.h"
#include "transport/endpoint/dcqcn.h"
#include "transport/endpoint/response_pace.h"

namespace transport {

// Congestion window in bytes in flight, READ responses that were asked for
// included. Starts within what default receive buffers hold, grows while
// nothing is lost, and shrinks on loss and on congestion notification; after
// one of these it grows as DCQCN says.
//
// One queue pair whose peer is silent must not keep the window from others. So
// only what has a peer that answers counts in it; what has none (yet, or any
// more) counts apart, and each queue pair may have a share of that.
//
// Every packet counts as its payload plus kPacketOverhead, since a socket's
// receive buffer (212,992 bytes by default, doubled by SO_RCVBUF) is charged
// for what the kernel allocates: some 768 bytes for the smallest datagram,
// some 2 KiB for one of 1 KiB.
class Path {
 public:
  static constexpr uint64_t kPacketOverhead = 256;
  // 128 KiB are 30 packets of 4 KiB or 400 of 64 bytes: a default receive
  // buffer holds them.
  static constexpr uint64_t kInitialWindow = 128 * 1024;
  static constexpr uint64_t kLeastWindow = 16 * 1024;
  // Raw UDP_SEGMENT on loopback is as fast with 480 KB in flight as with more;
  // beyond 1 MiB there are only losses to be had from buffers of 416 KiB.
  static constexpr uint64_t kGreatestWindow = 1024 * 1024;
  // On a path where nobody has answered yet, queue pairs send their first
  // packets until so much is in flight: one of 4 KiB for each of 90.
  static constexpr uint64_t kMostWithUnanswered = 3 * kInitialWindow;

  // --- Getters.
  uint64_t window() const { return window_; }                      // bytes
  uint64_t in_flight() const { return in_flight_ + unanswered_; }  // bytes
  // What the window has left, in bytes.
  uint64_t room() const {
    return window_ > in_flight_ ? window_ - in_flight_ : 0;
  }
  // What one queue pair of all that share the path may have in flight without
  // an answer. It may always have one packet.
  uint64_t share() const {
    return window_ / static_cast<uint64_t>(std::max(users_, 1));
  }
  // Changes when a queue pair whose peer has answered falls silent, or the
  // window goes to its least: each other one is to be answered once more before
  // it has more than its share. Never 0.
  uint32_t silences() const { return silences_; }
  bool answered() const { return last_answer_ >= 0; }  // a peer, ever
  // Whether anything is in flight to peers that do not answer.
  bool has_unanswered() const { return unanswered_ > 0; }
  // Whether the peer of any queue pair has answered after `time`.
  bool AnsweredSince(Time time) const { return last_answer_ > time; }
  // Whether something is known to have been lost after `time`: a peer that
  // answers misses it.
  bool LostSince(Time time) const { return last_loss_ > time; }
  bool has_lost() const { return last_loss_ >= 0; }  // anything, ever
  // One packet may be in flight, however small the window.
  bool MaySend(uint64_t bytes) const {
    return in_flight_ == 0 || in_flight_ + bytes <= window_;
  }
  // How many packets of `bytes` may be sent now, one behind the other.
  uint64_t MaySendPackets(uint64_t bytes) const {
    const uint64_t fit = room() / bytes;
    return fit == 0 && in_flight_ == 0 ? 1 : fit;
  }
  // Whether a queue pair may send its first `bytes` while nobody has answered.
  bool MaySendUnanswered(uint64_t bytes) const {
    return in_flight() + bytes <= std::max(window_, kMostWithUnanswered);
  }

  // --- Without acknowledgements (UC) nobody tells when bytes leave the
  // network. They are sent at a rate instead: a window in each kPaceInterval,
  // burst by burst. Congestion notification and others' losses shrink it with
  // the window; what is sent without either lets it grow, up to kInitialWindow,
  // which receive buffers hold.
  static constexpr Time kPaceInterval = 100 * kMicrosecond;
  bool MaySendUnacknowledged(Time now) const { return now >= paced_until_; }
  Time paced_until() const { return paced_until_; }
  void OnSentUnacknowledged(uint64_t bytes, Time now);

  // --- READ responses are what the peer has asked for: the window does not
  // hold them back, but CNPs do.
  ResponsePace& responses() { return responses_; }
  const ResponsePace& responses() const { return responses_; }

  Time smoothed_rtt() const { return smoothed_rtt_; }  // ns; 0 = no sample yet
  // What the network itself holds: its rate, as measured, times its least
  // round trip. In bytes.
  uint64_t round_trip_bytes() const {
    return bytes_per_ms_ * static_cast<uint64_t>(base_rtt_) / kMillisecond;
  }
  // How long after the last sign of life an unanswered tail is probed (RFC
  // 6298's timeout, with a floor of a millisecond).
  Time ProbeTimeout() const;
  // The same for what is known or likely to be lost, on a path that has lost
  // something just now: only one packet is sent, so it need not be so late as
  // to allow for a peer that waits for a core. kNever on other paths.
  Time EarlyProbeTimeout(Time now) const;

  // Whether bytes have left the network since the last call, or there is a
  // pause: those who wait for the window may have room, now or after it.
  bool TakeOpened() { return std::exchange(opened_, held_ != 0); }

  // --- A window of less than a packet is one packet, and a pause behind it.
  // What has left the network then goes on to count in the window until
  // EndPause returns false before `paused_until`, unless the window has grown
  // to hold a packet. It is no longer than at a rate of 1 Mb/s: round trips may
  // have been long for reasons other than the network.
  static constexpr Time kLeastRateByte = 8 * kMicrosecond;
  bool paused() const { return held_ != 0; }
  uint64_t held() const { return held_; }  // bytes of in_flight()
  Time paused_until() const { return paused_until_; }
  bool EndPause(Time now);

  // --- Inputs. Bytes include kPacketOverhead for every packet.
  void Join() { ++users_; }               // a queue pair
  bool Leave() { return --users_ == 0; }  // whether it was the last
  void OnSent(uint64_t bytes) { in_flight_ += bytes; }
  // `bytes` left the network: acknowledged, given up or to be sent again.
  void OnGone(uint64_t bytes);
  // The same for a queue pair whose peer does not answer.
  void OnSentUnanswered(uint64_t bytes) { unanswered_ += bytes; }
  void OnGoneUnanswered(uint64_t bytes);
  // A queue pair with `bytes` in flight has fallen silent. `news`: it had been
  // answered since the last silence.
  void OnSilence(uint64_t bytes, bool news);
  // It is answered: what it has in flight counts in the window.
  void OnAnswer(uint64_t bytes);
  void OnAcknowledged(uint64_t bytes, Time now);  // after OnGone
  // The same for what nobody sends again (UC): the window grows up to
  // `greatest`, which the receive buffer holds, and not until there is a loss.
  void OnAnswered(uint64_t bytes, uint64_t greatest, Time now);
  void OnRttSample(Time rtt, Time now);
  // There was progress after so many probes, which gives no sample: nobody
  // knows what was answered. Until there is one, timeouts stay as long as they
  // had become (RFC 6298, 5.5 to 5.7), or a slow peer would never give one.
  void OnProbesAnswered(int probes);
  // `bytes` are known to have been lost, of a peer that answers.
  void OnLost(uint64_t bytes);
  // At most one reduction per round trip.
  void OnLoss(Time now);  // of a peer that answers
  // What DCQCN allows one receiver to send: one in 50 us, which may come half
  // of that early. True if it counts; more do not, whoever sends them.
  static constexpr Time kNotificationInterval = 50 * kMicrosecond;
  bool OnCongestionNotification(Time now);
  // A timeout, while nobody was answered: the window goes back to its least.
  void OnTimeout(Time now);
  // The last timeout was too early, or not the path's: the window is what it
  // was before the first in a row, unless there was another reduction since.
  void UndoTimeout();

 private:
  // Shrinks the window to `window`, unless it has just been shrunk.
  void Reduce(uint64_t window, Time now);
  void CountSilence();
  void MeasureRate(Time now);
  void GrowByDcqcn(uint64_t bytes, Time now);
  void Grow(uint64_t bytes, Time now);  // `bytes` were acknowledged
  Time Interval(uint64_t bytes) const;
  void Pause(uint64_t bytes, Time now);
  // What a loss leaves of the window at least, in bytes.
  uint64_t LeastAfterLoss() const;

  // Slow start ends here until a loss has taught better.
  uint64_t threshold_ = 384 * 1024;
  uint64_t window_ = kInitialWindow;
  uint64_t in_flight_ = 0;   // of queue pairs that are answered
  uint64_t unanswered_ = 0;  // of others
  int users_ = 0;
  uint32_t silences_ = 1;
  Time last_answer_ = -1;
  Time last_loss_ = -1;
  uint64_t window_before_timeout_ = 0;  // 0: nothing to undo
  uint64_t threshold_before_timeout_ = 0;
  Time smoothed_rtt_ = 0;
  Time rtt_variation_ = 0;
  Time base_rtt_ = 0;        // 0: no sample
  Time base_rtt_until_ = 0;  // then it is measured anew
  // Bytes that were acknowledged since rate_since_, and how many were in an
  // interval before that, smoothed.
  uint64_t rate_bytes_ = 0;
  Time rate_since_ = 0;
  uint64_t bytes_per_ms_ = 0;
  // How much was lost of how much, lately.
  uint64_t lost_bytes_ = 0;
  uint64_t acknowledged_bytes_ = 0;
  int backoff_ = 0;  // doublings
  bool opened_ = false;
  Time recovery_until_ = 0;  // no reduction before
  // When the next notification is due, of those that come as fast as they may.
  Time next_notification_ = 0;
  Dcqcn dcqcn_;
  ResponsePace responses_;
  Time paced_until_ = 0;
  uint64_t held_ = 0;  // bytes of in_flight_ that are not: a pause
  Time paused_until_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_PATH_H_
