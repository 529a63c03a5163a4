#include "transport/base/flow.h"

#include "wire/packet.h"

namespace transport {

Flow::Flow(const AddressVector& av)
    : av(av),
      icrc(av.source, av.destination, av.source_port, wire::kRoceUdpPort) {
  GoBy({});
}

void Flow::GoBy(const Via& via) {
  const bool translated = via.port != 0;
  remote = translated ? via.address : av.destination;
  remote_port = translated ? via.port : wire::kRoceUdpPort;
}

}  // namespace transport
