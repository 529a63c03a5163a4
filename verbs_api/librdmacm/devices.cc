// rdma_get_devices(3), and which device an address is of.
#include "verbs_api/librdmacm/devices.h"

#include <fcntl.h>
#include <net/if.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <memory>
#include <mutex>
#include <new>

#include "rxe_user/base/fork_guard.h"
#include "verbs_api/librdmacm/abi.h"
#include "wire/address.h"

namespace librdmacm {
namespace {

struct Opened {
  ibv_device* device = nullptr;
  int interface = 0;  // its index when it was opened
  ibv_context* verbs = nullptr;
  ibv_pd* pd = nullptr;
  ibv_xrcd* xrcd = nullptr;
};

// Never destroyed: threads may still be there when the process ends.
struct Devices {
  rxe_user::ForkRenewedMutex mutex;  // guards all
  // Whose the contexts are: those of the parent are of no use after fork().
  pid_t owner = 0;
  // One whose interface is made anew is opened again; the former context stays
  // with those who have it.
  std::list<Opened> opened;
};

Devices& All() {
  static auto* const devices = new Devices;
  return *devices;
}

// Leaves what a child of fork() has inherited as it is: another thread of the
// parent may have been changing it. `devices.mutex` is held.
void ForgetInherited(Devices& devices) {
  if (devices.owner == getpid()) return;
  new (&devices.opened) decltype(devices.opened);
  devices.owner = getpid();
}

// `devices.mutex` is held.
Opened& Of(Devices& devices, ibv_device* device) {
  const int interface = ibv_get_device_index(device);
  for (Opened& opened : devices.opened) {
    if (opened.device == device && opened.interface == interface) return opened;
  }
  return devices.opened.emplace_back(
      Opened{.device = device, .interface = interface});
}

// Reads the list of devices, which takes its time, and opens the new ones.
// `devices.mutex` is held.
std::vector<ibv_context*> Open(Devices& devices) {
  ForgetInherited(devices);
  int count = 0;
  const std::unique_ptr<ibv_device*, decltype(&ibv_free_device_list)> list(
      ibv_get_device_list(&count), &ibv_free_device_list);
  std::vector<ibv_context*> out;
  if (list == nullptr) {
    if (errno == ENOMEM) throw std::bad_alloc();
    return out;
  }
  for (int i = 0; i < count; ++i) {
    Opened& opened = Of(devices, list.get()[i]);
    if (opened.verbs == nullptr) {
      opened.verbs = ibv_open_device(list.get()[i]);
      // That is no device less.
      if (opened.verbs == nullptr && errno == ENOMEM) throw std::bad_alloc();
    }
    if (opened.verbs != nullptr) out.push_back(opened.verbs);
  }
  if (count == 0) errno = ENODEV;
  return out;
}

// Null, with errno, if it is none of them. `devices.mutex` is held.
Opened* Find(Devices& devices, const ibv_context* verbs) {
  ForgetInherited(devices);
  for (Opened& opened : devices.opened) {
    if (opened.verbs == verbs) return &opened;
  }
  errno = EINVAL;
  return nullptr;
}

bool IsThere(uint32_t interface) {
  char name[IF_NAMESIZE];
  return if_indextoname(interface, name) != nullptr;
}

// Absent if `verbs` has it not, or had it of an interface that is no more.
std::optional<DeviceAddress> FindOn(ibv_context* verbs,
                                    const rxe_user::LocalAddress& local) {
  ibv_port_attr port;
  if (verbs == nullptr) return std::nullopt;
  const int error = ibv_query_port(verbs, kPort, &port);
  if (error == ENOMEM) throw std::bad_alloc();
  if (error != 0) return std::nullopt;
  std::vector<ibv_gid_entry> table(port.gid_tbl_len);
  const ssize_t count =
      ibv_query_gid_table(verbs, table.data(), table.size(), 0);
  if (count == -ENOMEM) throw std::bad_alloc();
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = table[i];
    if (entry.port_num == kPort && entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
        wire::IpAddress::FromGid(entry.gid.raw) == local.address &&
        (local.scope_id == 0 || entry.ndev_ifindex == local.scope_id) &&
        IsThere(entry.ndev_ifindex)) {
      return DeviceAddress{.verbs = verbs,
                           .gid_index = static_cast<uint8_t>(entry.gid_index),
                           .interface = entry.ndev_ifindex};
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<ibv_context*> OpenDevices() {
  Devices& devices = All();
  std::lock_guard<rxe_user::ForkRenewedMutex> lock(devices.mutex);
  return Open(devices);
}

std::optional<DeviceAddress> FindDevice(const rxe_user::LocalAddress& local) {
  Devices& devices = All();
  std::lock_guard<rxe_user::ForkRenewedMutex> lock(devices.mutex);
  ForgetInherited(devices);
  // Most often it is one that is open already.
  for (const Opened& opened : devices.opened) {
    if (const auto found = FindOn(opened.verbs, local)) return found;
  }
  for (ibv_context* verbs : Open(devices)) {
    if (const auto found = FindOn(verbs, local)) return found;
  }
  return std::nullopt;
}

ibv_pd* DefaultPd(ibv_context* verbs) {
  Devices& devices = All();
  std::lock_guard<rxe_user::ForkRenewedMutex> lock(devices.mutex);
  Opened* const opened = Find(devices, verbs);
  if (opened == nullptr) return nullptr;
  if (opened->pd == nullptr) opened->pd = ibv_alloc_pd(verbs);
  return opened->pd;
}

ibv_xrcd* DefaultXrcd(ibv_context* verbs) {
  Devices& devices = All();
  std::lock_guard<rxe_user::ForkRenewedMutex> lock(devices.mutex);
  Opened* const opened = Find(devices, verbs);
  if (opened == nullptr) return nullptr;
  if (opened->xrcd == nullptr) {
    // Of no file: this process's alone.
    ibv_xrcd_init_attr attr = {};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = -1;
    attr.oflags = O_CREAT;
    opened->xrcd = ibv_open_xrcd(verbs, &attr);
  }
  return opened->xrcd;
}

CM_EXPORT ibv_context** rdma_get_devices(int* num_devices) {
  if (num_devices != nullptr) *num_devices = 0;
  return PointerCall([&]() -> ibv_context** {
    const std::vector<ibv_context*> contexts = OpenDevices();
    if (contexts.empty()) return nullptr;
    auto** list = new ibv_context*[contexts.size() + 1];
    std::copy(contexts.begin(), contexts.end(), list);
    list[contexts.size()] = nullptr;
    if (num_devices != nullptr) {
      *num_devices = static_cast<int>(contexts.size());
    }
    return list;
  });
}

CM_EXPORT void rdma_free_devices(ibv_context** list) { delete[] list; }

}  // namespace librdmacm
