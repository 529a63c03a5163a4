#include "rxe_user/broker/slot.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "rxe_user/broker/connection.h"
#include "rxe_user/broker/lone_slot.h"
#include "rxe_user/broker/shared_slot.h"
#include "rxe_user/broker/udp.h"

namespace rxe_user {
namespace {

constexpr int64_t kAcquireMs = 5000;

}  // namespace

absl::StatusOr<std::unique_ptr<Slot>> Slot::Acquire() {
  broker::Failure failure{};
  absl::StatusOr<broker::Session> session =
      broker::Connect(0, -1, broker::MonotonicMs() + kAcquireMs,
                      broker::Start::kIfNeeded, failure);
  if (session.ok()) return broker::SharedSlot::Make(*std::move(session));
  if (failure != broker::Failure::kNoBroker) return session.status();
  std::fprintf(stderr,
               "rxe_user: %s; so this process has UDP port 4791 to itself, and "
               "no other can use it meanwhile\n",
               std::string(session.status().message()).c_str());
  return broker::MakeLoneSlot();
}

absl::Status PortAvailable(const wire::IpAddress& address, uint32_t scope_id) {
  const absl::Status broker = broker::FindBroker();
  if (!absl::IsNotFound(broker)) return broker;
  const broker::Address where{address, scope_id};
  if (broker::BindUdp(where, broker::kRocePort, broker::Sharing::kExclusive)
          .valid()) {
    return absl::OkStatus();
  }
  if (errno == EADDRINUSE) {
    return absl::UnavailableError(broker::PortTakenText(where));
  }
  return absl::UnavailableError("cannot bind UDP port 4791 of " +
                                where.ToString() + ": " + std::strerror(errno));
}

}  // namespace rxe_user
