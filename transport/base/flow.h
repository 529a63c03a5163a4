// A flow on the wire.
#ifndef TRANSPORT_BASE_FLOW_H_
#define TRANSPORT_BASE_FLOW_H_

#include <cstdint>

#include "transport/base/types.h"
#include "wire/icrc.h"

namespace transport {

// The bits of a traffic class that say whether routers may mark a packet as one
// that met congestion (RFC 3168), and the code point ECT(0).
inline constexpr uint8_t kEcnBits = 3;
inline constexpr uint8_t kEcnCapable = 2;

// The addresses and ports that the ICRC of every packet of a flow is for, with
// the part of it that they determine, and where the packets go. A queue pair
// owns one from RTR on.
struct Flow {
  explicit Flow(const AddressVector& av);
  // From here on the peer is at `via`; port 0: where it says itself.
  void GoBy(const Via& via);

  AddressVector av;
  wire::IcrcFlow icrc;
  // What the IP and UDP headers name: av.destination and port 4791, unless
  // something between translates them.
  wire::IpAddress remote;
  uint16_t remote_port = 0;
};

}  // namespace transport

#endif  // TRANSPORT_BASE_FLOW_H_
