// The UDP source port of a connected peer. The address alone does not identify
// the peer: any socket on that host can send from it.
//
// A device keeps one port for requests and responses of a connection. So:
//
// - The first expected packet (the next request, or a response to something
//   outstanding) pins its port.
// - Packets from other ports are dropped. A new port is accepted only after the
//   pinned one was silent for kSilence, and only by expected packets. The first
//   one claims the change and is dropped; one that arrives at least kSilence
//   later is accepted if the pinned port stayed silent. The delay matters after
//   this process was descheduled: the pinned port's packets may still be in the
//   socket.
// - A packet from another port that is not expected restarts the silence and
//   doubles it, up to kSilence << kMaxRefused. This limits an attacker who
//   guesses PSNs while the peer is idle.
// - UC also receives packets that are not expected, and then expects their
//   successors. The first packet of its peer (QueuePair::IsBeginning) pins the
//   peer's port once, even if another port was pinned.
// - A new path (RTR, or a new address vector in SQD) forgets the port.
#ifndef TRANSPORT_QP_PEER_PORT_H_
#define TRANSPORT_QP_PEER_PORT_H_

#include <cstdint>

#include "transport/base/types.h"

namespace transport {

// The endpoint knows the pinned port (Origin::kPeerPort). This class decides
// when it may change.
class PeerPort {
 public:
  // Twice this is less than seven retries of 67 ms, a common setting: a peer
  // that changes its port gets through before it gives up.
  static constexpr Time kSilence = 100 * kMillisecond;
  static constexpr uint8_t kMaxRefused = 7;  // 12.8 s

  bool known() const { return state_.known; }
  // Whether an expected packet from another port may be the peer's.
  bool MayChange(Time now) const { return now - heard_ >= silence(); }

  // A packet arrived from the pinned port, or from a port that it pins.
  void Heard(Time now) {
    heard_ = now;
    state_ = {.refused = 0, .claimed = false, .known = true};
  }
  // Requires MayChange, and an expected packet from `port`. True if it is
  // accepted.
  bool Claim(uint16_t port, Time now) {
    if (state_.claimed && other_ == port) {
      return now - heard_ >= silence() + kSilence;
    }
    other_ = port;
    state_.claimed = true;
    heard_ = now - silence();  // exactly the silence that MayChange needs
    return false;
  }
  // A packet from another port was not an expected one.
  void Refuse(Time now) {
    heard_ = now;
    state_.claimed = false;
    if (state_.refused < kMaxRefused) ++state_.refused;
  }
  void Forget() { *this = PeerPort(); }

  // A packet from `port` before the first expected one. True if the port has
  // changed.
  bool NoteEarlyPort(uint16_t port) {
    if (other_ == port) return false;
    other_ = port;
    return true;
  }

 private:
  struct State {
    uint8_t refused : 3;  // unexpected packets from other ports
    bool claimed : 1;     // by `other_`
    bool known : 1;
  };
  Time silence() const { return kSilence << state_.refused; }

  Time heard_ = 0;
  uint16_t other_ = 0;
  State state_ = {};
};

}  // namespace transport

#endif  // TRANSPORT_QP_PEER_PORT_H_
