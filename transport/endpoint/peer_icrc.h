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
class PeerIcrc {
 public:
  // Whether the ICRC is right for an IP identification that the peer may have
  // used.
  bool Verify(const Datagram& datagram, Time now);
  // The same of a peer that nothing is remembered of.
  static bool VerifyUnknown(const Datagram& datagram);
  // The addresses change.
  void Reset() { flow_.reset(); }

 private:
  uint16_t source_port_ = 0;
  std::optional<uint16_t> last_ip_id_;
  Time last_ip_id_time_ = 0;
  std::optional<wire::IcrcFlow> flow_;  // for source_port_
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_PEER_ICRC_H_
