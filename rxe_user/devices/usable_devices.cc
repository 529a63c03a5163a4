#include "rxe_user/devices/usable_devices.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/warn_once.h"
#include "rxe_user/broker/slot.h"

namespace rxe_user {
namespace {

// Addresses whose port is taken.
struct Taken {
  std::string holder;
  std::vector<std::string> addresses;
};

void AddTaken(const std::string& holder, const std::string& address,
              std::vector<Taken>* taken) {
  auto found = std::ranges::find(*taken, holder, &Taken::holder);
  if (found == taken->end()) found = taken->insert(found, {holder, {}});
  found->addresses.push_back(address);
}

}  // namespace

absl::StatusOr<Devices> KeepUsable(const Devices& devices) {
  std::vector<LocalAddress> addresses;
  for (const auto& device : devices) {
    addresses.insert(addresses.end(), device->gids.begin(), device->gids.end());
  }
  const auto uses = ProbePorts(addresses);
  if (!uses.ok() && ErrnoOf(uses.status()) != 0) return uses.status();
  if (!uses.ok()) {
    WarnOnce(std::string(uses.status().message()));
    return Devices();
  }

  Devices usable;
  std::vector<Taken> taken;
  auto use = uses->begin();
  for (const auto& device : devices) {
    Device kept = *device;
    bool any = false;
    std::string error;
    for (LocalAddress& gid : kept.gids) {
      if (!use->foreign_holder.empty()) {
        AddTaken(use->foreign_holder, gid.address.ToString(), &taken);
        gid = LocalAddress{};
      } else if (!use->error.empty()) {
        // Perhaps temporary, such as an IPv6 address under duplicate address
        // detection.
        error = use->error;
      } else {
        any = true;
      }
      ++use;
    }
    if (any) {
      usable.push_back(std::make_shared<const Device>(std::move(kept)));
    } else if (!error.empty()) {
      WarnOnce(error);
    }
  }
  for (const auto& [holder, addresses] : taken) {
    WarnOnce(PortTakenLine(absl::StrJoin(addresses, ", "), holder));
  }
  return usable;
}

}  // namespace rxe_user
