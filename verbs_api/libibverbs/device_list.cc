// ibv_get_device_list(3) and the queries that work on an unopened device.
#include <endian.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "absl/cleanup/cleanup.h"
#include "rxe_user/base/only_one.h"
#include "rxe_user/base/warn_once.h"
#include "rxe_user/devices/device.h"
#include "rxe_user/devices/usable_devices.h"
#include "rxe_user/objects/context.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/interface.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {
namespace {

// One device for each name that was ever listed.
struct Devices {
  std::mutex mutex;  // guards all
  std::map<std::string, Device*> by_name;
  std::unordered_set<const ibv_device*> all;
  std::unordered_set<size_t> numbers;
};
Devices& AllDevices() { return rxe_user::OnlyOne<Devices>(); }

// Not inline: GCC 12 would warn that bytes are read beyond a short string.
[[gnu::noinline]] void SetText(char* field, size_t size,
                               const std::string& text) {
  std::memset(field, 0, size);
  std::memcpy(field, text.data(), std::min(size - 1, text.size()));
}

// Adds `name`, which is listed for the first time. `index` is its position
// among the devices. Programs see the device under this number in /sys and /dev
// (tools/view), unless an earlier device has that number. The lock of `devices`
// is held.
Device* Add(Devices& devices, const std::string& name, size_t index) {
  while (!devices.numbers.insert(index).second) ++index;
  std::unique_ptr<Device> device(new Device{});
  device->node_type = IBV_NODE_CA;
  device->transport_type = IBV_TRANSPORT_IB;
  SetText(device->name, sizeof(device->name), name);
  const std::string uverbs = "uverbs" + std::to_string(index);
  SetText(device->dev_name, sizeof(device->dev_name), uverbs);
  SetText(device->dev_path, sizeof(device->dev_path),
          "/sys/class/infiniband_verbs/" + uverbs);
  SetText(device->ibdev_path, sizeof(device->ibdev_path),
          "/sys/class/infiniband/" + name);
  devices.all.insert(device.get());
  absl::Cleanup forget = [&] { devices.all.erase(device.get()); };
  devices.by_name.emplace(name, device.get());
  std::move(forget).Cancel();
  return device.release();
}

Device* Show(std::shared_ptr<const rxe_user::Device> snapshot, size_t index) {
  Devices& devices = AllDevices();
  std::lock_guard<std::mutex> lock(devices.mutex);
  const auto known = devices.by_name.find(snapshot->name);
  Device* const device = known != devices.by_name.end()
                             ? known->second
                             : Add(devices, snapshot->name, index);
  std::lock_guard<std::mutex> device_lock(device->mutex);
  device->snapshot = std::move(snapshot);
  return device;
}

}  // namespace

void LockDevicesForFork() {
  Devices& devices = AllDevices();
  devices.mutex.lock();
  for (const auto& [name, device] : devices.by_name) device->mutex.lock();
}

void UnlockDevicesAfterFork() {
  Devices& devices = AllDevices();
  for (const auto& [name, device] : devices.by_name) device->mutex.unlock();
  devices.mutex.unlock();
}

VERBS_EXPORT ibv_device** ibv_get_device_list(int* num_devices) {
  if (num_devices != nullptr) *num_devices = 0;
  return PointerCall([&]() -> ibv_device** {
    absl::StatusOr<rxe_user::Devices> present = rxe_user::ListDevices();
    if (present.ok() && present->empty()) {
      rxe_user::WarnOnce(rxe_user::NoDeviceText());
    }
    if (present.ok()) present = rxe_user::KeepUsable(*present);
    if (!present.ok()) return Fail(rxe_user::ReportedErrno(present.status()));
    std::vector<Device*> devices;
    for (const auto& device : *present) {
      devices.push_back(Show(device, devices.size()));
    }
    auto** list = new ibv_device*[devices.size() + 1];
    std::copy(devices.begin(), devices.end(), list);
    list[devices.size()] = nullptr;
    if (num_devices != nullptr) {
      *num_devices = static_cast<int>(devices.size());
    }
    return list;
  });
}

VERBS_EXPORT void ibv_free_device_list(ibv_device** list) { delete[] list; }

std::shared_ptr<const rxe_user::Device> FindDevice(ibv_device* device) {
  Devices& devices = AllDevices();
  std::lock_guard<std::mutex> lock(devices.mutex);
  if (!devices.all.contains(device)) return nullptr;
  Device* ours = static_cast<Device*>(device);
  std::lock_guard<std::mutex> device_lock(ours->mutex);
  return ours->snapshot;
}

VERBS_EXPORT const char* ibv_get_device_name(ibv_device* device) {
  return FindDevice(device) == nullptr ? nullptr : device->name;
}

// The index would be that of RDMA netlink, which does not know our devices.
// Programs that pass it an index (UCX) would treat its refusal as an error.
VERBS_EXPORT int ibv_get_device_index(ibv_device* /*device*/) { return -1; }

VERBS_EXPORT unsigned rxe_user_interface_of(ibv_device* device) {
  const auto found = FindDevice(device);
  return found == nullptr ? 0 : found->ifindex;
}

VERBS_EXPORT __be64 ibv_get_device_guid(ibv_device* device) {
  const auto found = FindDevice(device);
  return found == nullptr ? 0 : htobe64(found->guid);
}

}  // namespace verbs_api
