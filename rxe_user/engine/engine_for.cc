// The engine of real life: with the port broker's slot and real sockets.
#include "rxe_user/base/settings.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/engine/engine_registry.h"
#include "rxe_user/ports/udp_port.h"

namespace rxe_user {

std::shared_ptr<Engine> Engine::For(std::shared_ptr<const Device> device) {
  return FindOrMakeEngine(std::move(device),
                          {Slot::Acquire, UdpPort::Create, LaneCount()});
}

}  // namespace rxe_user
