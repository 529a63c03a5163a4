// The engine of real life: with the port broker's slot and real sockets.
#include <vector>

#include "absl/status/statusor.h"
#include "rxe_user/base/public_addresses.h"
#include "rxe_user/base/settings.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/devices/netdev.h"
#include "rxe_user/engine/engine_registry.h"
#include "rxe_user/observe/capture.h"
#include "rxe_user/ports/udp_port.h"

namespace rxe_user {
namespace {

// Where the kernel does not tell of any, those that it had.
std::vector<LocalAddress> AddressesOf(const Device& device) {
  const absl::StatusOr<std::vector<Interface>> interfaces = ReadInterfaces();
  if (!interfaces.ok()) return device.gids;
  for (const Interface& interface : *interfaces) {
    if (interface.index == device.ifindex && interface.name == device.netdev &&
        !interface.addresses.empty()) {
      std::vector<LocalAddress> addresses = interface.addresses;
      for (LocalAddress& address : addresses) address = Known(address);
      return addresses;
    }
  }
  return device.gids;
}

}  // namespace

std::shared_ptr<Engine> Engine::For(std::shared_ptr<const Device> device) {
  return FindOrMakeEngine(std::move(device),
                          {Slot::Acquire, UdpPort::Create, LaneCount(),
                           AddressesOf, ProcessCapture});
}

}  // namespace rxe_user
