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

// The addresses and ports that every packet of a flow carries, with the part of
// the ICRC that they determine. A queue pair owns one from RTR on.
struct Flow {
  explicit Flow(const AddressVector& av);
  // Packets go to `via`, where something between translates addresses; the ICRC
  // stays for the peer's own address. Port 0: nothing changes.
  void GoBy(const Via& via);

  AddressVector av;
  // Memory of each queue pair: the port is in the padding of the ICRC's part.
  [[no_unique_address]] wire::IcrcFlow icrc;
  uint16_t destination_port;
};

}  // namespace transport

#endif  // TRANSPORT_BASE_FLOW_H_
