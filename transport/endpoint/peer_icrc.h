// What is remembered of a peer to verify the ICRC of its packets (docs/
// architecture.md, "The IP identification").
#ifndef TRANSPORT_ENDPOINT_PEER_ICRC_H_
#define TRANSPORT_ENDPOINT_PEER_ICRC_H_

#include <cstdint>
#include <optional>

#include "transport/base/types.h"
#include "transport/endpoint/datagram.h"
#include "wire/icrc.h"

namespace transport {

// Of one peer: all datagrams have the same addresses. See wire::VerifyAnyId.
// Anybody can send a datagram with a good ICRC, so verifying one changes
// nothing here: Learn does, of those that the queue pair has believed.
class PeerIcrc {
 public:
  // The IP identification for which the ICRC is right, if the peer may have
  // used it.
  std::optional<uint16_t> Verify(const Datagram& datagram, Time now) const;
  // The same of a peer that nothing is remembered of.
  static std::optional<uint16_t> VerifyUnknown(const Datagram& datagram);
  // `datagram` is the peer's; `id`: what Verify has found.
  void Learn(const Datagram& datagram, uint16_t id, Time now);
  // The addresses change.
  void Reset() { flow_.reset(); }

 private:
  std::optional<wire::IcrcFlow> flow_;  // for source_port_; none: no peer yet
  uint16_t source_port_ = 0;
  uint16_t last_ip_id_ = 0;
  Time last_ip_id_time_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_PEER_ICRC_H_
