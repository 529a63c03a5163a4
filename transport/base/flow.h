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

// The addresses and ports that every packet of a flow carries, with the part
// of the ICRC that they determine. A queue pair owns one from RTR on.
struct Flow {
  explicit Flow(const AddressVector& av);
  AddressVector av;
  wire::IcrcFlow icrc;
};

}  // namespace transport

#endif  // TRANSPORT_BASE_FLOW_H_
