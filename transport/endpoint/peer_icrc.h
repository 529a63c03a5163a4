// What is remembered of a peer to verify the ICRC of its packets (docs/
// design/transport.md, "The IP identification").
#ifndef TRANSPORT_ENDPOINT_PEER_ICRC_H_
#define TRANSPORT_ENDPOINT_PEER_ICRC_H_

#include <cstdint>
#include <optional>

#include "transport/base/types.h"
#include "transport/endpoint/datagram.h"
#include "wire/icrc.h"

namespace transport {

// Of one peer: all datagrams have the same addresses. See wire::VerifyAnyId.
// Anybody can send a datagram with a good ICRC, so what is found out of one is
// remembered (Learn, BelieveAfterAll) only when the queue pair believes it.
class PeerIcrc {
 public:
  // The UDP source port of what was learned last.
  bool Knows(uint16_t port) const { return source_port_ == port; }
  // Whether the ICRC is right for an IP identification that the peer may have
  // used: a datagram from the port that is known, or from another one.
  bool Verify(const Datagram& datagram, Time now);
  bool VerifyOther(const Datagram& datagram);
  // The same of a peer that nothing is remembered of.
  static bool VerifyUnknown(const Datagram& datagram);
  // Verify has just said no, of what would be one that the peer sends now.
  // Whether it is good all the same: it is far, as kFarToBelieve in a row were.
  bool BelieveAfterAll();
  // The datagram that was verified last is the peer's.
  void Learn(const Datagram& datagram, Time now) {
    if (!Knows(datagram.source_port)) AdoptFrom(datagram);
    if (far_ != 0) [[unlikely]] {
      NoteNear();
    }
    last_ip_id_time_ = now;
    // One that was overtaken does not take the window back.
    if (static_cast<uint16_t>(last_ip_id_ - found_) > kOvertaken) {
      last_ip_id_ = found_;
    }
  }
  // A datagram is the peer's whose ICRC was right for `flow`, with the IP
  // identification `ip_id`: something between translates addresses.
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
  // By how many packets one may be overtaken and its IP ID still be believed:
  // twice what a peer puts into bursts. wire::VerifyAnyId alone allows for 64.
  static constexpr uint16_t kOvertaken = 512;
  // Far: some IP ID makes it good, but not one near the peer's last. So many of
  // them, without one that is near or bad in between, are of a peer whose IDs
  // follow no order: then any is believed. By chance one damaged packet in 2^16
  // is far, so that happens once in 2^48.
  static constexpr uint8_t kFarToBelieve = 3;
  // So many in a row that are near are of a peer that counts.
  static constexpr uint8_t kNearToCount = 8;

  void AdoptFrom(const Datagram& datagram);
  void Adopt(const wire::IcrcFlow& flow, uint16_t port);
  // An ID that is not the segment's index. Not inline: most are.
  [[gnu::noinline]] bool IsBelieved(std::optional<uint16_t> id, Time now);
  bool IsNear(uint32_t forward_window) const;
  [[gnu::noinline]] void NoteNear();

  uint32_t source_port_ = kNoPort;
  uint16_t last_ip_id_ = 0;
  uint16_t found_ = 0;  // of the datagram that was verified last
  Time last_ip_id_time_ = 0;
  std::optional<wire::IcrcFlow> flow_;  // for source_port_
  bool is_far_ = false;                 // what Verify has said no of last
  uint8_t far_ = 0;                     // up to kFarToBelieve
  uint8_t near_ = 0;                    // in a row, while any ID is believed
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_PEER_ICRC_H_
