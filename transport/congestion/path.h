// The path to one destination address: how much may be in flight to it
// (docs/design/loss-and-congestion.md). Queue pairs to one destination share
// its Path, which is made of parts with one job each:
//   PathFlight            what is in flight
//   RoundTrip             how long a round trip takes
//   AnswerOrder           how far the peers have got
//   DeliveryRate          how much the network delivers, and loses
//   CongestionController  the window
//   ResponsePace          the rate of READ responses
#ifndef TRANSPORT_CONGESTION_PATH_H_
#define TRANSPORT_CONGESTION_PATH_H_

#include <algorithm>
#include <cstdint>

#include "transport/base/types.h"
#include "transport/congestion/answer_order.h"
#include "transport/congestion/congestion_controller.h"
#include "transport/congestion/dcqcn.h"
#include "transport/congestion/delivery_rate.h"
#include "transport/congestion/path_flight.h"
#include "transport/congestion/response_pace.h"
#include "transport/congestion/round_trip.h"

namespace transport {

// The window counts bytes in flight, including READ responses that were
// requested.
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
  static constexpr uint64_t kInitialWindow =
      CongestionController::kInitialWindow;
  static constexpr uint64_t kMinWindow = CongestionController::kMinWindow;
  // Raw UDP_SEGMENT on loopback is as fast with 480 KB in flight as with more;
  // beyond 1 MiB, buffers of 416 KiB only lose packets.
  static constexpr uint64_t kMaxWindow = CongestionController::kMaxWindow;
  // On a path where no peer has answered yet, queue pairs send their first
  // packets until this much is in flight: 90 queue pairs can send one packet of
  // 4 KiB each.
  static constexpr uint64_t kMaxWithUnanswered = 3 * kInitialWindow;

  // --- Getters.
  uint64_t window() const { return controller_.window(); }  // bytes
  uint64_t in_flight() const {                              // bytes
    return flight_.answered() + flight_.unanswered();
  }
  // What the window has left, in bytes.
  uint64_t room() const {
    return window() > flight_.answered() ? window() - flight_.answered() : 0;
  }
  // What one of the queue pairs that share the path may have in flight without
  // an answer. It may always have one packet.
  uint64_t share() const {
    return window() / static_cast<uint64_t>(std::max(users_, 1));
  }
  // Changes when a queue pair whose peer has answered falls silent, or the
  // window falls to its minimum: each other queue pair is then limited to its
  // share until it is answered once more. Never 0.
  uint32_t silences() const { return silences_; }
  bool answered() const { return last_answer_ >= 0; }  // a peer, ever
  // Whether anything is in flight to peers that do not answer.
  bool has_unanswered() const { return flight_.unanswered() > 0; }
  // Whether the peer of any queue pair has answered after `time`.
  bool AnsweredSince(Time time) const { return last_answer_ > time; }
  // Whether a packet is known to have been lost after `time`: a peer that
  // answers misses it.
  bool LostSince(Time time) const { return last_loss_ > time; }
  bool has_lost() const { return last_loss_ >= 0; }  // anything, ever
  // One packet may be in flight, however small the window.
  bool MaySend(uint64_t bytes) const {
    return flight_.answered() == 0 || flight_.answered() + bytes <= window();
  }
  // How many packets of `bytes` may be sent now, one behind the other.
  uint64_t MaySendPackets(uint64_t bytes) const {
    const uint64_t fit = room() / bytes;
    return fit == 0 && flight_.answered() == 0 ? 1 : fit;
  }
  // Whether a queue pair may send its first `bytes` while no peer has answered.
  bool MaySendUnanswered(uint64_t bytes) const {
    return in_flight() + bytes <= std::max(window(), kMaxWithUnanswered);
  }

  // --- Without acknowledgements (UC) nothing tells when bytes leave the
  // network. They are sent at a rate instead: a window in each kPaceInterval,
  // burst by burst. Congestion notifications and the losses of others shrink
  // the rate with the window; while there are none, sending lets the window
  // grow, up to kInitialWindow, which receive buffers hold.
  static constexpr Time kPaceInterval = 100 * kMicrosecond;
  bool MaySendUnacknowledged(Time now) const { return now >= paced_until_; }
  Time paced_until() const { return paced_until_; }
  void OnSentUnacknowledged(uint64_t bytes, Time now);

  // --- READ responses are sent because the peer requested them: the window
  // does not hold them back, but CNPs do.
  ResponsePace& responses() { return responses_; }
  const ResponsePace& responses() const { return responses_; }

  Time smoothed_rtt() const { return rtt_.smoothed(); }  // ns; 0: no sample yet
  // What the network itself holds: its measured rate times its shortest round
  // trip. In bytes.
  uint64_t round_trip_bytes() const { return rate_.BytesIn(rtt_.base()); }
  // How long after the last sign of life an unanswered tail is probed.
  Time ProbeTimeout() const { return rtt_.ProbeTimeout(); }
  // Since when the peer's queue pair has not answered what was sent at `sent`.
  Time SilentSince(uint32_t dest_qpn, Time sent) const {
    return order_.SilentSince(dest_qpn, sent);
  }
  // The same for a packet that is known or likely to be lost, on a path with
  // recent loss. Only one packet is sent, so it may be sooner. kNever on other
  // paths: there, silence is a peer that has not been scheduled.
  Time EarlyProbeTimeout(Time now) const {
    return last_loss_ < 0 || now - last_loss_ > kLossIsRecent
               ? kNever
               : rtt_.EarlyProbeTimeout();
  }

  // Whether bytes have left the network since the last call, or there is a
  // pause: queue pairs that wait for the window may find it open, now or later.
  bool TakeOpened() { return flight_.TakeOpened(); }

  // --- A window of less than a packet is one packet, and a pause behind it.
  // Without the pause a path would send at least one packet in each round trip,
  // and hundreds of senders to one receiver would fill its queue
  // (PathTest.AWindowOfLessThanAPacketIsAPacketAndAPause). Bytes that have left
  // the network still count in the window until EndPause returns true. A pause
  // is no longer than at a rate of 1 Mb/s: round trips may have been long for
  // reasons other than the network
  // (PathTest.APauseIsNotLongerThanAtTheMinimumRate).
  static constexpr Time kMinRateByte = 8 * kMicrosecond;
  bool paused() const { return flight_.held() != 0; }
  uint64_t held() const { return flight_.held(); }  // bytes of in_flight()
  Time paused_until() const { return flight_.paused_until(); }
  // Ends the pause at paused_until(), or when the window has grown to hold a
  // packet.
  bool EndPause(Time now);

  // --- Inputs. Bytes include kPacketOverhead for every packet.
  void Join() { ++users_; }               // a queue pair
  bool Leave() { return --users_ == 0; }  // whether it was the last
  void OnSent(uint64_t bytes) { flight_.OnSent(bytes); }
  // `bytes` left the network: acknowledged, given up or to be retransmitted.
  void OnGone(uint64_t bytes) { flight_.OnGone(bytes); }
  // The same for a queue pair whose peer does not answer.
  void OnSentUnanswered(uint64_t bytes) { flight_.OnSentUnanswered(bytes); }
  void OnGoneUnanswered(uint64_t bytes) { flight_.OnGoneUnanswered(bytes); }
  // A queue pair with `bytes` in flight has fallen silent. `news`: it had been
  // answered since the last silence.
  void OnSilence(uint64_t bytes, bool news) {
    flight_.OnSilence(bytes);
    if (news) CountSilence();
  }
  // The peer of a queue pair that counted apart has answered, for the first
  // time or again. Its `bytes` in flight count in the window from now on.
  void OnAnswer(uint64_t bytes) { flight_.OnAnswer(bytes); }
  void OnAcknowledged(uint64_t bytes, Time now);  // after OnGone
  // The same for packets that are never retransmitted (UC): the window stops
  // growing at `max_window`, which the receive buffer holds, not only at a
  // loss.
  void OnAnswered(uint64_t bytes, uint64_t max_window, Time now);
  void OnRttSample(Time rtt, Time now) { rtt_.OnSample(rtt, now); }
  // The peer's queue pair has answered what was sent at `sent`. That is a
  // sample, too.
  void OnOrderedAnswer(uint32_t dest_qpn, Time sent, Time now) {
    rtt_.OnSample(now - sent, now);
    order_.OnAnswer(dest_qpn, sent, now);
  }
  void OnProbesAnswered(int probes) { rtt_.OnProbesAnswered(probes); }
  // `bytes` are known to have been lost, of a peer that answers.
  void OnLost(uint64_t bytes) { rate_.OnLost(bytes); }
  // At most one reduction per round trip.
  void OnLoss(Time now);  // of a peer that answers
  static constexpr Time kNotificationInterval = Dcqcn::kNotificationInterval;
  bool OnCongestionNotification(Time now) {
    return controller_.OnNotification(smoothed_rtt(), now);
  }
  // A timeout during which no peer answered, or packets were lost: the window
  // falls to its minimum.
  void OnTimeout(Time now) {
    controller_.OnTimeout(smoothed_rtt(), now);
    CountSilence();
  }
  void UndoTimeout() { controller_.UndoTimeout(); }

 private:
  static constexpr Time kLossIsRecent = 100 * kMillisecond;

  void CountSilence() {
    if (++silences_ == 0) silences_ = 1;
  }
  void Pause(uint64_t bytes, Time now);
  // The smallest window that a loss leaves, in bytes.
  uint64_t MinWindowAfterLoss() const;

  CongestionController controller_;
  PathFlight flight_;
  RoundTrip rtt_;
  AnswerOrder order_;
  DeliveryRate rate_;
  ResponsePace responses_;
  int users_ = 0;
  uint32_t silences_ = 1;
  Time last_answer_ = -1;
  Time last_loss_ = -1;
  Time paced_until_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_CONGESTION_PATH_H_
