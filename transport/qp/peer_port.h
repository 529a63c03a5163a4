// The UDP source port of a connected peer. Its address alone does not name it:
// whoever has a socket on that host can send from there.
//
// Devices keep one port for a connection, for requests and responses alike, as
// long as it lasts. So:
//
// - The first packet that is expected pins its port: the request that is next,
//   or a response to something outstanding.
// - What comes from another port is dropped. A change is believed only after
//   the pinned port was silent for kSilence, and only with a packet that is
//   expected. One that is not begins the silence anew, and doubles it, up to
//   kSilence << kMaxRefused: while the peer is idle, somebody who guesses PSNs
//   has so few guesses.
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
  // Shorter than the seven retries of 67 ms that peers usually have: one that
  // changes its port gets through before it gives up.
  static constexpr Time kSilence = 100 * kMillisecond;
  static constexpr uint8_t kMaxRefused = 7;  // 12.8 s

  bool known() const { return refused_ != kUnknown; }
  // Another port than the pinned one may be the peer's, if its packet is
  // expected.
  bool MayChange(Time now) const {
    return now - heard_ >= kSilence << refused_;
  }

  // A packet came from the pinned port, or one from another port that is pinned
  // thereby.
  void Heard(Time now) {
    heard_ = now;
    refused_ = 0;
  }
  // A packet from another port might have been the peer's, and was not.
  void Refuse(Time now) {
    heard_ = now;
    if (refused_ < kMaxRefused) ++refused_;
  }
  void Forget() { *this = PeerPort(); }

  // Packets that came before the first expected one, from one port at a time.
  // True if `port` is another one than before.
  bool Precede(uint16_t port) {
    if (preceding_ == port) return false;
    preceding_ = port;
    return true;
  }

 private:
  static constexpr uint32_t kNone = 0x10000;
  static constexpr uint8_t kUnknown = 0xff;

  Time heard_ = 0;
  uint32_t preceding_ = kNone;
  // While it is silent; kUnknown: none is pinned.
  uint8_t refused_ = kUnknown;
};

}  // namespace transport

#endif  // TRANSPORT_QP_PEER_PORT_H_
