#include "rxe_user/objects/context.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/warn_once.h"
#include "rxe_user/devices/usable_devices.h"
#include "wire/headers.h"

namespace rxe_user {

namespace {

absl::StatusOr<Devices> ListUsableDevices() {
  const absl::StatusOr<Devices> present = ListDevices();
  return present.ok() ? KeepUsable(*present) : present;
}

}  // namespace

Context::Context(std::shared_ptr<const Device> device)
    : device_(std::move(device)), engine_(Engine::For(device_)) {}

std::shared_ptr<const Device> Context::device() {
  std::lock_guard<std::mutex> lock(device_mutex_);
  if (stale_.exchange(false, std::memory_order_acq_rel)) {
    const absl::StatusOr<Devices> present = ListUsableDevices();
    if (!present.ok()) {  // it stays as it was, and is looked at again
      stale_.store(true, std::memory_order_release);
      return device_;
    }
    bool found = false;
    for (const std::shared_ptr<const Device>& now : *present) {
      if (now->netdev != device_->netdev || now->name != device_->name) {
        continue;
      }
      device_ = WithStableGids(*device_, *now);
      found = true;
      break;
    }
    if (!found) {  // not listed: down, or without an address
      Device down = *device_;
      down.up = false;
      device_ = std::make_shared<const Device>(std::move(down));
    }
  }
  return device_;
}

std::shared_ptr<const Device> WithStableGids(const Device& before,
                                             const Device& now) {
  Device merged = now;
  merged.gids = before.gids;
  std::vector<LocalAddress> fresh = now.gids;
  for (LocalAddress& gid : merged.gids) {
    auto it = std::find_if(
        fresh.begin(), fresh.end(),
        [&](const LocalAddress& f) { return f.address == gid.address; });
    if (it == fresh.end()) {
      gid = LocalAddress{};
    } else {
      fresh.erase(it);
    }
  }
  for (const LocalAddress& gid : fresh) {
    auto hole = std::find_if(
        merged.gids.begin(), merged.gids.end(),
        [](const LocalAddress& g) { return g.address.is_unspecified(); });
    if (hole != merged.gids.end()) {
      *hole = gid;
    } else {
      merged.gids.push_back(gid);
    }
  }
  return std::make_shared<const Device>(std::move(merged));
}

void Context::WaitForLanes() {
  for (int i = 0; i < engine_->lane_count(); ++i) {
    Lane::Guard guard(engine_->lane(i));
  }
}

int Context::ResolveAddress(transport::AddressVector* av) {
  const std::shared_ptr<const Device> now = device();
  if (av->gid_index >= now->gids.size()) return EINVAL;
  av->source = now->gids[av->gid_index].address;
  if (av->source.is_unspecified() || av->destination.is_unspecified() ||
      av->destination.is_v4() != av->source.is_v4()) {
    return EINVAL;
  }
  // Programs give 0 or 1 here and mean "as far as it takes": the kernel, too,
  // puts the route's value in its place.
  if (av->hop_limit <= 1) av->hop_limit = wire::kDefaultHopLimit;
  if (absl::Status status = engine_->OpenAddress(av->source); !status.ok()) {
    return ReportedErrno(status);
  }
  return 0;
}

int Context::ResolvePath(uint32_t local_qpn, uint32_t remote_qpn,
                         transport::AddressVector* av) {
  if (const int error = ResolveAddress(av)) return error;
  const absl::StatusOr<uint16_t> source_port =
      engine_->SourcePort(av->source, av->flow_label, local_qpn, remote_qpn);
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
    case absl::StatusCode::kFailedPrecondition:  // after fork
      return ENODEV;
    default:
      return EIO;
  }
}

}  // namespace rxe_user
