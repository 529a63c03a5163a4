#include "rxe_user/objects/context.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/nat_routes.h"
#include "rxe_user/base/only_one.h"
#include "rxe_user/base/public_addresses.h"
#include "rxe_user/base/warn_once.h"
#include "rxe_user/devices/netdev.h"
#include "rxe_user/devices/usable_devices.h"
#include "rxe_user/faults/faulted_memory.h"
#include "rxe_user/objects/limits.h"
#include "wire/headers.h"

namespace rxe_user {

namespace {

// How often to read the interface while changes are not reported. It takes some
// 0.1 ms, or a few ms where other processes' sockets must be searched.
constexpr transport::Time kRereadInterval = 10 * transport::kMillisecond;

bool Has(const std::vector<LocalAddress>& all, const LocalAddress& address) {
  return std::ranges::find(all, address.address, &LocalAddress::address) !=
         all.end();
}

// The state of `before` when it is no longer a device. An interface that is
// only down keeps its addresses, since they return with it: IPv6 addresses are
// gone meanwhile, and would lose their indexes.
absl::StatusOr<std::shared_ptr<const Device>> RereadAbsent(
    const Device& before) {
  const absl::StatusOr<std::optional<Interface>> read =
      ReadInterface(before.ifindex);
  if (!read.ok()) return read.status();
  Device absent = before;
  absent.up = false;
  const std::optional<Interface>& now = *read;
  if (!now.has_value() || now->name != before.netdev) {
    absent.gids.clear();
  } else if (now->up) {
    std::erase_if(absent.gids, [&](const LocalAddress& g) {
      return !Has(now->addresses, Bound(g));
    });
  }
  return std::make_shared<const Device>(std::move(absent));
}

// The current state of device `before`. Checks the port of new addresses only:
// at the old ones our own sockets hold it, and the sockets of a process that is
// being killed have no owner for a moment.
absl::StatusOr<std::shared_ptr<const Device>> Reread(const Device& before) {
  const absl::StatusOr<std::shared_ptr<const Device>> read = ReadDevice(before);
  if (!read.ok()) return read.status();
  if (*read == nullptr) return RereadAbsent(before);
  Device found = **read, fresh = **read;
  std::erase_if(found.gids,
                [&](const LocalAddress& g) { return !Has(before.gids, g); });
  std::erase_if(fresh.gids,
                [&](const LocalAddress& g) { return Has(before.gids, g); });
  if (!fresh.gids.empty()) {
    const absl::StatusOr<Devices> usable =
        KeepUsable({std::make_shared<const Device>(std::move(fresh))});
    if (!usable.ok()) return usable.status();
    for (const std::shared_ptr<const Device>& device : *usable) {
      found.gids.insert(found.gids.end(), device->gids.begin(),
                        device->gids.end());
    }
  }
  if (found.gids.empty()) return RereadAbsent(before);
  return std::make_shared<const Device>(std::move(found));
}

struct Spaces {
  ForkSafeMutex mutex;
  std::unordered_map<const Engine*, std::weak_ptr<DeviceSpace>> of;
};

}  // namespace

std::shared_ptr<DeviceSpace> DeviceSpace::For(std::shared_ptr<Engine> engine) {
  Spaces& all = OnlyOne<Spaces>();
  const std::lock_guard<ForkSafeMutex> lock(all.mutex);
  std::erase_if(all.of, [](const auto& s) { return s.second.expired(); });
  // A space keeps its engine alive, so an address is not reused meanwhile.
  std::weak_ptr<DeviceSpace>& known = all.of[engine.get()];
  std::shared_ptr<DeviceSpace> space = known.lock();
  if (space == nullptr) {
    space = std::make_shared<DeviceSpace>(std::move(engine));
    known = space;
  }
  return space;
}

void DeviceSpace::FollowFaults(ProcessFaults& faults) {
  std::call_once(faulted_once_, [&] {
    faulted_ = std::make_unique<FaultedMemory>(faults, memory());
  });
}

Context::Context(std::shared_ptr<const Device> device)
    : device_(std::move(device)),
      space_(DeviceSpace::For(Engine::For(device_))) {}

std::shared_ptr<const Device> Context::device() {
  std::lock_guard<std::mutex> lock(device_mutex_);
  if (!MayHaveChanged()) return device_;
  const ProcessFaults* const faults = ProcessFaults::Current();
  const bool is_down = faults != nullptr && faults->link_is_down();
  // On failure the device is unchanged, and read again at the next call.
  absl::Cleanup reread_later = [this] { DeviceChanged(); };
  const auto now = Reread(*device_);
  next_read_ = Lane::Now() + kRereadInterval;
  if (!now.ok()) return device_;
  std::shared_ptr<const Device> fresh = *now;
  if (is_down) {
    Device down = *fresh;
    down.up = false;
    fresh = std::make_shared<const Device>(std::move(down));
  }
  device_ = WithStableGids(*device_, *fresh);
  std::move(reread_later).Cancel();
  return device_;
}

bool Context::MayHaveChanged() {
  return stale_.exchange(false, std::memory_order_acq_rel) ||
         (!engine().reports_link_changes() && Lane::Now() >= next_read_);
}

std::shared_ptr<const Device> WithStableGids(const Device& before,
                                             const Device& now) {
  Device merged = now;
  merged.gids = before.gids;
  std::vector<LocalAddress> fresh = now.gids;
  for (LocalAddress& gid : merged.gids) {
    const auto it =
        std::ranges::find(fresh, gid.address, &LocalAddress::address);
    if (it == fresh.end()) {
      gid = LocalAddress{};
    } else {
      fresh.erase(it);
    }
  }
  for (const LocalAddress& gid : fresh) {
    auto hole = std::ranges::find_if(merged.gids, [](const LocalAddress& g) {
      return g.address.is_unspecified();
    });
    if (hole != merged.gids.end()) {
      *hole = gid;
    } else {
      merged.gids.push_back(gid);
    }
  }
  return std::make_shared<const Device>(std::move(merged));
}

void Context::WaitForLanes() {
  for (int i = 0; i < engine().lane_count(); ++i) {
    Lane::Guard guard(engine().lane(i));
  }
}

void Context::ExecuteArrived() {
  // Posts that this process has batched to itself count as arrived, too.
  for (int i = 0; i < engine().lane_count(); ++i) {
    Lane::Guard guard(engine().lane(i));
    engine().lane(i).Transmit(Lane::Now());
  }
  for (int i = 0; i < engine().lane_count(); ++i) {
    Lane::Guard guard(engine().lane(i));
    engine().lane(i).Receive(Lane::Now());
  }
}

bool Context::TakeDeviceMemory(uint64_t bytes) {
  uint64_t used = device_memory_.load();
  do {
    if (bytes > kMaxDeviceMemory - used) return false;
  } while (!device_memory_.compare_exchange_weak(used, used + bytes));
  return true;
}

int Context::ResolveAddress(transport::AddressVector* av) {
  const std::shared_ptr<const Device> now = device();
  if (av->gid_index >= now->gids.size()) return EINVAL;
  const wire::IpAddress& source = now->gids[av->gid_index].address;
  if (av->destination.is_unspecified() ||
      av->destination.is_v4() != source.is_v4()) {
    return EINVAL;
  }
  NotePeer(av->destination);
  // Multicast packets stay on the link unless more is requested.
  if (av->destination.is_multicast() && av->hop_limit == 0) av->hop_limit = 1;
  return ResolveSource(av);
}

int Context::ResolveSource(transport::AddressVector* av) {
  const std::shared_ptr<const Device> now = device();
  if (av->gid_index >= now->gids.size()) return EINVAL;
  av->source = now->gids[av->gid_index].address;
  if (av->source.is_unspecified()) return EINVAL;
  // Programs set 0 or 1 and mean "any distance"; the kernel uses the route's
  // value as well.
  if (!av->destination.is_multicast() && av->hop_limit <= 1) {
    av->hop_limit = wire::kDefaultHopLimit;
  }
  if (absl::Status status = engine().OpenAddress(av->source); !status.ok()) {
    return ReportedErrno(status);
  }
  return 0;
}

int Context::ResolvePort(uint32_t local_qpn, uint32_t remote_qpn,
                         transport::AddressVector* av) {
  const absl::StatusOr<uint16_t> source_port =
      engine().SourcePort(av->source, av->flow_label, local_qpn, remote_qpn);
  if (!source_port.ok()) return ReportedErrno(source_port.status());
  av->source_port = *source_port;
  return 0;
}

int ReportedErrno(const absl::Status& status) {
  if (status.ok()) return 0;
  WarnOnce(std::string(status.message()));
  if (const int error = ErrnoOf(status)) return error;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return EINVAL;
    case absl::StatusCode::kPermissionDenied:
      return EACCES;
    case absl::StatusCode::kResourceExhausted:
      return ENOMEM;
    case absl::StatusCode::kUnavailable:
      return EADDRINUSE;
    case absl::StatusCode::kNotFound:
      return EADDRNOTAVAIL;
    case absl::StatusCode::kDeadlineExceeded:
      return ETIMEDOUT;
    case absl::StatusCode::kFailedPrecondition:  // after fork
      return ENODEV;
    default:
      return EIO;
  }
}

}  // namespace rxe_user
