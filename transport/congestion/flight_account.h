// What one queue pair has in flight, and how much of its path it may use
// (docs/design/loss-and-congestion.md, "Dead peers").
//
// All queue pairs to one address share the window of a Path. A queue pair whose
// peer is silent must not keep that window from the others: what it has in
// flight does not count there, and is limited to a *share* (Path::share). Peers
// often die together. So a queue pair that begins to send after another one has
// fallen silent is limited to its share, too, until its peer answers: otherwise
// dead peers would be found one after the other, each after a full window
// (sim/dead_peer_test).
#ifndef TRANSPORT_CONGESTION_FLIGHT_ACCOUNT_H_
#define TRANSPORT_CONGESTION_FLIGHT_ACCOUNT_H_

#include <algorithm>
#include <cstdint>

#include "transport/congestion/path.h"

namespace transport {

// Bytes are as Path counts them. Each call is given the same path.
class FlightAccount {
 public:
  uint64_t bytes() const { return bytes_; }  // in flight
  // The peer has answered since the last silence on the path.
  bool IsCurrent(const Path& path) const {
    return silences_seen_ == path.silences();
  }
  bool LimitedToShare() const { return allowance_ != Allowance::kWindow; }

  // Whether the share permits `cost` more. It always permits one packet.
  // `retransmits`: see kMinWhenRetransmitting.
  bool ShareAllows(const Path& path, uint64_t cost, uint64_t packet_cost,
                   bool retransmits) const {
    return bytes_ == 0 || cost <= ShareLeft(path, packet_cost, retransmits);
  }
  // Whether the path's window permits `cost` more, whatever the share.
  bool WindowAllows(const Path& path, uint64_t cost) const {
    if (allowance_ != Allowance::kShareAlone) return path.MaySend(cost);
    return bytes_ != 0 || path.MaySendUnanswered(cost);
  }
  // How many packets of `packet_cost` both allow.
  uint64_t PacketsAllowed(const Path& path, uint64_t packet_cost,
                          bool retransmits) const {
    if (!LimitedToShare()) return path.MaySendPackets(packet_cost);
    const uint64_t share =
        ShareLeft(path, packet_cost, retransmits) / packet_cost;
    if (allowance_ != Allowance::kShareAlone) {
      return std::min(share, path.MaySendPackets(packet_cost));
    }
    return WindowAllows(path, packet_cost) ? share : 0;
  }

  // `bytes` are in flight now. Part of each packet: not worth a call.
  void Set(Path* path, uint64_t bytes) {
    if (bytes == bytes_) return;
    if (allowance_ == Allowance::kShareAlone) {
      bytes > bytes_ ? path->OnSentUnanswered(bytes - bytes_)
                     : path->OnGoneUnanswered(bytes_ - bytes);
    } else if (bytes > bytes_) {
      path->OnSent(bytes - bytes_);
    } else {
      path->OnGone(bytes_ - bytes);
    }
    bytes_ = bytes;
  }
  // Nothing is in flight, and something may be sent. `idle`: nothing waits for
  // an answer, either.
  void Begin(const Path& path, bool idle);
  // The peer answers.
  void OnAnswer(Path* path);
  void FallSilent(Path* path);
  // Nothing is in flight any more; `path` may be null if nothing was.
  void Leave(Path* path);

 private:
  // Several retransmitted packets, and their answers, may be lost: with a share
  // of one packet, each loss would take a probe.
  static constexpr uint64_t kMinWhenRetransmitting = Path::kMinWindow;

  enum class Allowance : uint8_t {
    kWindow,  // counts in the path's window, its only limit
    // Counts there, and is limited to a share: another queue pair has fallen
    // silent since the last answer.
    kShareOfWindow,
    // Counts in the share alone: the peer is silent, or has not answered yet.
    kShareAlone,
  };

  uint64_t ShareLeft(const Path& path, uint64_t packet_cost,
                     bool retransmits) const {
    uint64_t share = std::max(path.share(), packet_cost);
    if (retransmits) share = std::max(share, kMinWhenRetransmitting);
    return share > bytes_ ? share - bytes_ : 0;
  }

  Allowance allowance_ = Allowance::kShareAlone;
  // Path::silences at the last answer; 0 when silent.
  uint32_t silences_seen_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_CONGESTION_FLIGHT_ACCOUNT_H_
