#include "rxe_user/broker/slot.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/public_addresses.h"
#include "rxe_user/broker/connection.h"
#include "rxe_user/broker/exclusive_slot.h"
#include "rxe_user/broker/public_slot.h"
#include "rxe_user/broker/shared_slot.h"
#include "rxe_user/broker/steering_trial.h"
#include "rxe_user/broker/udp.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

// A busy machine may delay a broker for a long time.
constexpr int64_t kAcquireMs = 30'000;

}  // namespace

absl::StatusOr<std::unique_ptr<Slot>> Slot::Acquire() {
  broker::Failure failure{};
  UniqueFd starting;
  absl::StatusOr<broker::Session> session = broker::Connect(
      0, -1, kAcquireMs, broker::Start::kIfNeeded, starting, failure);
  if (session.ok()) {
    absl::StatusOr<std::unique_ptr<Slot>> slot =
        broker::SharedSlot::Make(*std::move(session));
    if (!slot.ok()) return slot.status();
    return broker::WithPublicAddresses(*std::move(slot));
  }
  if (failure != broker::Failure::kNoBroker) return session.status();
  return broker::WithPublicAddresses(
      broker::MakeExclusiveSlot(std::string(session.status().message())));
}

absl::StatusOr<std::vector<PortUse>> ProbePorts(
    std::span<const LocalAddress> addresses) {
  // Before the broker is sought: one that starts in between would have sockets
  // in the list, and they would be taken for another program's.
  const auto sockets = broker::ListPortSockets();
  ucred who;
  const absl::Status broker = broker::FindBroker(&who);
  if (!broker.ok() && !absl::IsNotFound(broker)) return broker;
  std::vector<PortUse> uses;
  for (const LocalAddress& known : addresses) {
    const LocalAddress local = Bound(known);
    const auto bind = [&local](uint16_t port) {
      return broker::BindUdp(local, port, broker::Sharing::kExclusive).valid()
                 ? 0
                 : errno;
    };
    PortUse& use = uses.emplace_back();
    // Check whether the address can be bound at all.
    int error = bind(0);
    if (error == 0 && sockets.has_value()) {
      use.foreign_holder = broker::ForeignHolder(*sockets, local.address,
                                                 broker.ok() ? &who : nullptr);
      // Some sockets do not conflict, such as those bound to a device.
      if (!use.foreign_holder.empty()) error = bind(wire::kRoceUdpPort);
    } else if (error == 0 && !broker.ok()) {
      error = bind(wire::kRoceUdpPort);
      if (error == EADDRINUSE) use.foreign_holder = "another socket";
    }
    if (error == EMFILE || error == ENFILE) {
      return ErrnoStatus(error, "cannot check UDP port 4791");
    }
    if (error == 0) use.foreign_holder.clear();
    if (error == EADDRINUSE) {
      use.error = PortTakenLine(local.ToString(), use.foreign_holder);
    } else if (error != 0) {
      use.foreign_holder.clear();
      use.error = "cannot bind UDP port 4791 of " + local.ToString() + ": " +
                  std::strerror(error);
    }
  }
  return uses;
}

absl::Status PortSharing() {
  ucred who;
  const absl::Status broker = broker::FindBroker(&who);
  return absl::IsNotFound(broker) ? broker::TrySteering() : broker;
}

std::string PortTakenLine(const std::string& addresses,
                          const std::string& holder) {
  return broker::PortTakenText(addresses, holder);
}

}  // namespace rxe_user
