// The UDP source port of a connected peer. Its address alone does not name it:
// whoever has a socket on that host can send from there.
//
// Devices keep one port for a connection, for requests and responses alike, as
// long as it lasts. So:
//
// - The first packet that is expected pins its port: the request that is next,
//   or a response to something outstanding.
// - What comes from another port is dropped. A change is believed only after
//   the pinned port was silent (no packet within the window) for kSilence, and
//   only with a packet that is expected. One that is not begins the silence
//   anew, and doubles it, up to kSilence << kMaxRefused: while the peer is
//   idle, somebody who guesses PSNs has so few guesses.
// - A new path (RTR, or another address vector in SQD) forgets the port.
#ifndef TRANSPORT_QP_PEER_PORT_H_
#define TRANSPORT_QP_PEER_PORT_H_

#include <algorithm>
#include <cstdint>

#include "transport/base/types.h"

namespace transport {

class PeerPort {
 public:
  // Shorter than the seven retries of 67 ms that peers usually have: one that
  // changes its port gets through before it gives up.
  static constexpr Time kSilence = 100 * kMillisecond;
  static constexpr uint8_t kMaxRefused = 7;  // 12.8 s

  bool known() const { return pinned_ != kNone; }
  bool Is(uint16_t port) const { return pinned_ == port; }
  // Another port than the pinned one may be the peer's, if its packet is
  // expected.
  bool MayChange(Time now) const {
    return now - heard_ >= kSilence << std::min(refused_, kMaxRefused);
  }

  void Pin(uint16_t port, Time now) {
    pinned_ = port;
    Heard(now);
  }
  // A packet from the pinned port was within the window.
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

  uint32_t pinned_ = kNone;
  uint32_t preceding_ = kNone;
  Time heard_ = 0;
  uint8_t refused_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_QP_PEER_PORT_H_
