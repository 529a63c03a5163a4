// The UDP source port of a connected peer. Its address alone does not name it:
// whoever has a socket on that host can send from there.
//
// Devices keep one port for a connection, for requests and responses alike, as
// long as it lasts. So:
//
// - The first packet that is expected pins its port: the request that is next,
//   or a response to something outstanding.
// - What comes from another port is dropped. A change is believed only after
//   the pinned port was silent for kSilence, and only with packets that are
//   expected: the first claims the change and is dropped, too, one that comes
//   kSilence later is believed if the pinned port was silent until then. Who
//   got no core for long finds in its socket what has come meanwhile: its peer
//   was not silent, whatever comes first.
// - A packet that is not expected begins the silence anew, and doubles it, up
//   to kSilence << kMaxRefused: while the peer is idle, somebody who guesses
//   PSNs has so few guesses.
// - An unreliable connection takes what is not expected, too, and expects then
//   what would follow. What its peer begins with (QueuePair::IsBeginning) pins
//   its port once, whoever was taken for the peer before.
// - A new path (RTR, or another address vector in SQD) forgets the port.
#ifndef TRANSPORT_QP_PEER_PORT_H_
#define TRANSPORT_QP_PEER_PORT_H_

#include <cstdint>

#include "transport/base/types.h"

namespace transport {

// Which port is pinned is known to the endpoint (Origin::kPeerPort); this is
// about when it may be another one.
class PeerPort {
 public:
  // Two of them are shorter than the seven retries of 67 ms that peers usually
  // have: one that changes its port gets through before it gives up.
  static constexpr Time kSilence = 100 * kMillisecond;
  static constexpr uint8_t kMaxRefused = 7;  // 12.8 s

  bool known() const { return state_.known; }
  // Another port than the pinned one may be the peer's, if its packet is
  // expected.
  bool MayChange(Time now) const { return now - heard_ >= silence(); }

  // A packet came from the pinned port, or one from another port that is pinned
  // thereby.
  void Heard(Time now) {
    heard_ = now;
    state_ = {.refused = 0, .claimed = false, .known = true};
  }
  // MayChange, and a packet from `port` is expected. Whether it is believed.
  bool Claim(uint16_t port, Time now) {
    if (state_.claimed && other_ == port) {
      return now - heard_ >= silence() + kSilence;
    }
    other_ = port;
    state_.claimed = true;
    heard_ = now - silence();  // as if for so long, and no longer
    return false;
  }
  // A packet from another port might have been the peer's, and was not.
  void Refuse(Time now) {
    heard_ = now;
    state_.claimed = false;
    if (state_.refused < kMaxRefused) ++state_.refused;
  }
  void Forget() { *this = PeerPort(); }

  // Packets that came before the first expected one, from one port at a time.
  // True if `port` is another one than before.
  bool Precede(uint16_t port) {
    if (other_ == port) return false;
    other_ = port;
    return true;
  }

 private:
  struct State {
    uint8_t refused : 3;  // packets, while the pinned port is silent
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
