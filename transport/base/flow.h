// A flow: the addresses and ports shared by a queue pair's packets.
#ifndef TRANSPORT_BASE_FLOW_H_
#define TRANSPORT_BASE_FLOW_H_

#include <cstdint>

#include "transport/base/types.h"
#include "wire/icrc.h"

namespace transport {

// The ECN bits of a traffic class, and the code point ECT(0), which lets
// routers mark packets (RFC 3168).
inline constexpr uint8_t kEcnBits = 3;
inline constexpr uint8_t kEcnCapable = 2;

// Addresses and ports of a flow's packets, and the ICRC prepared for them. A
// queue pair owns one from RTR on.
struct Flow {
  explicit Flow(const AddressVector& av);
  // Sends to `via`, the peer's translated address. The ICRC still covers the
  // peer's own address. Port 0: not translated.
  void SetVia(const Via& via);
  // Changes the UDP source port. Not after SetVia.
  void SetSourcePort(uint16_t port);

  AddressVector av;
  // Saves memory per queue pair: the port uses the padding of the IcrcFlow.
  [[no_unique_address]] wire::IcrcFlow icrc;
  uint16_t destination_port;
  // The peer's queue pair, if there is only one; else 0. A port may choose the
  // medium by it.
  uint32_t peer_qpn = 0;
};

}  // namespace transport

#endif  // TRANSPORT_BASE_FLOW_H_
