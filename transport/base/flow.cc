#include "transport/base/flow.h"

#include "wire/packet.h"

namespace transport {

Flow::Flow(const AddressVector& av)
    : av(av),
      icrc(av.source, av.destination, av.source_port, wire::kRoceUdpPort) {}

}  // namespace transport
