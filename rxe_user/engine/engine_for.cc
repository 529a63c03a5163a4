// The engine that programs use: with slots of the port broker and UDP sockets.
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "rxe_user/base/nat_routes.h"
#include "rxe_user/base/public_addresses.h"
#include "rxe_user/base/settings.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/devices/netdev.h"
#include "rxe_user/engine/engine_registry.h"
#include "rxe_user/faults/fault_port.h"
#include "rxe_user/faults/process_faults.h"
#include "rxe_user/observe/process_files.h"
#include "rxe_user/ports/memory_port.h"
#include "rxe_user/ports/socket_io.h"

namespace rxe_user {
namespace {

// The current addresses of the device's interface. Where the kernel reports
// none, those of the device when it was opened.
std::vector<LocalAddress> AddressesOf(const Device& device) {
  const absl::StatusOr<std::optional<Interface>> interface =
      ReadInterface(device.ifindex);
  if (!interface.ok() || !interface->has_value() ||
      (*interface)->name != device.netdev || (*interface)->addresses.empty()) {
    return device.gids;
  }
  std::vector<LocalAddress> addresses = (*interface)->addresses;
  for (LocalAddress& address : addresses) address = Known(address);
  return addresses;
}

// The port of sockets, wrapped in a port for faults if there are rules, or else
// in one for shared memory.
absl::StatusOr<std::unique_ptr<Port>> CreatePort() {
  absl::StatusOr<std::unique_ptr<Port>> port = CreateSocketPort();
  ProcessFaults* const faults = ProcessFaults::Find();
  if (!port.ok()) return port;
  if (faults != nullptr) return FaultPort::Create(*std::move(port), faults);
  // A recording shows packets as on the wire, with ICRCs.
  if (!SameHostMemory() || NatMode() || ProcessObserver() != nullptr) {
    return port;
  }
  // Where memory files or eventfds are refused, all packets go by UDP.
  absl::StatusOr<std::unique_ptr<Port>> memory = MemoryPort::Create(
      *std::move(port), IsOn("RXE_USER_TEST_RINGS")
                            ? MemoryLinks::SelfTraffic::kRingsAtOnce
                            : MemoryLinks::SelfTraffic::kUdp);
  return memory.ok() ? std::move(memory) : CreateSocketPort();
}

}  // namespace

std::shared_ptr<Engine> Engine::For(std::shared_ptr<const Device> device) {
  return FindOrMakeEngine(std::move(device),
                          {Slot::Acquire, CreatePort, LaneCount(), AddressesOf,
                           ProcessObserver, ProcessTally});
}

}  // namespace rxe_user
