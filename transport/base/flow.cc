#include "transport/base/flow.h"

#include "wire/packet.h"

namespace transport {

Flow::Flow(const AddressVector& av)
    : av(av),
      icrc(av.source, av.destination, av.source_port, wire::kRoceUdpPort),
      destination_port(wire::kRoceUdpPort) {}

void Flow::SetVia(const Via& via) {
  if (via.port == 0) return;
  av.destination = via.address;
  destination_port = via.port;
}

void Flow::SetSourcePort(uint16_t port) {
  av.source_port = port;
  icrc = wire::IcrcFlow(av.source, av.destination, port, wire::kRoceUdpPort);
}

}  // namespace transport
