// Per-peer state for ICRC verification (docs/design/transport.md, "The IP
// identification").
#ifndef TRANSPORT_ENDPOINT_PEER_ICRC_H_
#define TRANSPORT_ENDPOINT_PEER_ICRC_H_

#include <cstdint>
#include <optional>

#include "transport/base/types.h"
#include "transport/endpoint/datagram.h"
#include "wire/icrc.h"

namespace transport {

// All datagrams of one peer have the same addresses. See wire::VerifyAnyId.
// Anyone can send a datagram with a good ICRC, so an IP ID is remembered
// (Learn, AcceptUnordered) only when the queue pair accepts the packet as its
// peer's.
class PeerIcrc {
 public:
  // Whether `port` is the UDP source port of the last learned datagram.
  bool Knows(uint16_t port) const { return source_port_ == port; }
  // Whether the ICRC of a packet, which has been parsed, is good for an IP ID
  // that the peer may have used. Verify: from the known port; VerifyOther: from
  // another one.
  bool Verify(const Datagram& datagram, Time now);
  bool VerifyOther(const Datagram& datagram);
  // The same for an unknown peer.
  static bool VerifyUnknown(const Datagram& datagram);
  // Call when Verify has returned false for a packet that the peer may send
  // now. True if it is accepted nevertheless: the last kFarForUnordered IDs in
  // a row were far.
  bool AcceptUnordered();
  // The last verified datagram came from the peer.
  void Learn(const Datagram& datagram, Time now) {
    if (!Knows(datagram.source_port)) AdoptFrom(datagram);
    if (far_ != 0) [[unlikely]] {
      NoteNear();
    }
    last_ip_id_time_ = now;
    // A reordered packet does not move the window back.
    if (static_cast<uint16_t>(last_ip_id_ - found_) > kReorderTolerance) {
      last_ip_id_ = found_;
    }
  }
  // A datagram of the peer had an ICRC that is good for `flow` and `ip_id`: its
  // address is translated.
  void LearnTranslated(const wire::IcrcFlow& flow, uint16_t ip_id,
                       const Datagram& datagram, Time now) {
    found_ = ip_id;
    Adopt(flow, datagram.source_port);
    last_ip_id_time_ = now;
  }
  // The addresses change.
  void Reset() { source_port_ = kNoPort; }

 private:
  static constexpr uint32_t kNoPort = 0x10000;
  // Reordering tolerance in packets, twice a burst of our own peers.
  // wire::VerifyAnyId alone tolerates 64.
  static constexpr uint16_t kReorderTolerance = 512;
  // "Far": good with some IP ID, but not with one near the last. This many far
  // packets in a row, without one near or bad in between, indicate a peer with
  // unordered IDs: any ID is accepted then. One damaged packet in 2^16 is far
  // by chance, so this happens once in 2^48.
  static constexpr uint8_t kFarForUnordered = 3;
  // This many near packets in a row indicate a peer that counts.
  static constexpr uint8_t kNearForCounting = 8;

  void AdoptFrom(const Datagram& datagram);
  void Adopt(const wire::IcrcFlow& flow, uint16_t port);
  // For IDs other than the segment index. Not inline: rare.
  [[gnu::noinline]] bool IsAccepted(std::optional<uint16_t> id, Time now);
  bool IsNear(uint32_t forward_window) const;
  [[gnu::noinline]] void NoteNear();

  uint32_t source_port_ = kNoPort;
  uint16_t last_ip_id_ = 0;
  uint16_t found_ = 0;  // ID of the last verified datagram
  Time last_ip_id_time_ = 0;
  std::optional<wire::IcrcFlow> flow_;  // for source_port_
  bool is_far_ = false;  // whether the last rejected datagram was far
  uint8_t far_ = 0;      // far packets in a row, up to kFarForUnordered
  uint8_t near_ = 0;     // near packets in a row, while any ID is accepted
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_PEER_ICRC_H_
