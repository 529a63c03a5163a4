// rdma_get_devices(3), and the lookup of the device that has an address.
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
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/only_one.h"
#include "rxe_user/base/public_addresses.h"
#include "rxe_user/devices/netdev.h"
#include "verbs_api/libibverbs/interface.h"
#include "verbs_api/librdmacm/abi.h"
#include "wire/address.h"

namespace librdmacm {
namespace {

using rxe_user::Interface;

struct Opened {
  ibv_device* device = nullptr;
  uint32_t interface = 0;  // its index when it was opened
  ibv_context* verbs = nullptr;
  ibv_pd* pd = nullptr;
  ibv_xrcd* xrcd = nullptr;
  bool gone = false;        // the interface no longer exists
  bool handed_out = false;  // by rdma_get_devices: stays open
};

struct Devices {
  rxe_user::ForkRenewedMutex mutex;  // guards all
  // The process that opened them. The contexts of a parent are useless after
  // fork().
  pid_t owner = 0;
  // Ids hold shares of these. If an interface was deleted and created again,
  // its device is opened again; the old context closes with its last share.
  std::list<std::shared_ptr<Opened>> opened;
  // The interfaces as of the last lookup that failed. They tell where to look
  // first.
  std::vector<Interface> interfaces;
};

Devices& All() { return rxe_user::OnlyOne<Devices>(); }

// Forgets inherited devices in a child of fork() without touching them: a
// thread of the parent may have been changing them. `devices.mutex` is held.
void ForgetInherited(Devices& devices) {
  if (devices.owner == getpid()) return;
  new (&devices.opened) decltype(devices.opened);
  new (&devices.interfaces) decltype(devices.interfaces);
  devices.owner = getpid();
}

// Returns false if an application still uses one of the domains; retry later.
bool Close(Opened& opened) {
  if (opened.pd != nullptr && ibv_dealloc_pd(opened.pd) != 0) return false;
  opened.pd = nullptr;
  if (opened.xrcd != nullptr && ibv_close_xrcd(opened.xrcd) != 0) return false;
  opened.xrcd = nullptr;
  if (opened.verbs != nullptr) ibv_close_device(opened.verbs);
  return true;
}

// Closes devices whose interface is gone and that have no shares.
// `devices.mutex` is held, so no id gets a share meanwhile.
void CloseGone(Devices& devices) {
  std::erase_if(devices.opened, [](const std::shared_ptr<Opened>& opened) {
    return opened->gone && !opened->handed_out && opened.use_count() == 1 &&
           Close(*opened);
  });
}

// `devices.mutex` is held.
Opened& Of(Devices& devices, ibv_device* device) {
  const uint32_t interface = rxe_user_interface_of(device);
  for (const std::shared_ptr<Opened>& opened : devices.opened) {
    if (opened->device == device && opened->interface == interface &&
        !opened->gone) {
      return *opened;
    }
  }
  return *devices.opened.emplace_back(std::make_shared<Opened>(
      Opened{.device = device, .interface = interface}));
}

// Opens the devices in the list whose interface satisfies `wanted`. Reading the
// list is slow. Empty, with errno, if there are none. `devices.mutex` is held.
template <typename Wanted>
std::vector<Opened*> Open(Devices& devices, Wanted&& wanted) {
  int count = 0;
  const std::unique_ptr<ibv_device*, decltype(&ibv_free_device_list)> list(
      ibv_get_device_list(&count), &ibv_free_device_list);
  std::vector<Opened*> out;
  if (list == nullptr) {
    if (errno == ENOMEM) throw std::bad_alloc();
    return out;
  }
  for (int i = 0; i < count; ++i) {
    if (!wanted(rxe_user_interface_of(list.get()[i]))) continue;
    Opened& opened = Of(devices, list.get()[i]);
    if (opened.verbs == nullptr) {
      opened.verbs = ibv_open_device(list.get()[i]);
      // ENOMEM does not mean that the device is missing.
      if (opened.verbs == nullptr && errno == ENOMEM) throw std::bad_alloc();
    }
    if (opened.verbs != nullptr) out.push_back(&opened);
  }
  if (count == 0) errno = ENODEV;
  return out;
}

// Null, with errno, if no device matches. `devices.mutex` is held.
Opened* Find(Devices& devices, const ibv_context* verbs) {
  ForgetInherited(devices);
  for (const std::shared_ptr<Opened>& opened : devices.opened) {
    if (opened->verbs == verbs) return opened.get();
  }
  errno = EINVAL;
  return nullptr;
}

bool IsThere(uint32_t interface) {
  char name[IF_NAMESIZE];
  return if_indextoname(interface, name) != nullptr;
}

// Whether `interfaces` has the address on the interface with this index.
bool Has(const std::vector<Interface>& interfaces, uint32_t index,
         const rxe_user::LocalAddress& known) {
  const rxe_user::LocalAddress local = rxe_user::Bound(known);
  const auto found =
      std::find_if(interfaces.begin(), interfaces.end(),
                   [&](const Interface& i) { return i.index == index; });
  return found != interfaces.end() &&
         (local.scope_id == 0 || local.scope_id == found->index) &&
         std::any_of(found->addresses.begin(), found->addresses.end(),
                     [&](const rxe_user::LocalAddress& a) {
                       return a.address == local.address;
                     });
}

// Absent if `opened` does not have the address.
std::optional<DeviceAddress> FindOn(const std::shared_ptr<Opened>& opened,
                                    const rxe_user::LocalAddress& local) {
  ibv_context* const verbs = opened->verbs;
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
        wire::IpAddress::FromGid(entry.gid.raw) == local.address) {
      return DeviceAddress{.verbs = verbs,
                           .gid_index = static_cast<uint8_t>(entry.gid_index),
                           .interface = entry.ndev_ifindex,
                           .share = opened};
    }
  }
  return std::nullopt;
}

// Asks only the open device of the interface that has the address: each query
// reads all interfaces. `devices.mutex` is held.
std::optional<DeviceAddress> FindOpened(const Devices& devices,
                                        const rxe_user::LocalAddress& local) {
  for (const std::shared_ptr<Opened>& opened : devices.opened) {
    if (opened->gone || !Has(devices.interfaces, opened->interface, local) ||
        !IsThere(opened->interface)) {
      continue;
    }
    if (auto found = FindOn(opened, local)) return found;
  }
  return std::nullopt;
}

// Keeps the old list on failure. `devices.mutex` is held.
void RefreshInterfaces(Devices& devices) {
  absl::StatusOr<std::vector<Interface>> now = rxe_user::ReadInterfaces();
  if (rxe_user::ErrnoOf(now.status()) == ENOMEM) throw std::bad_alloc();
  if (!now.ok()) return;
  devices.interfaces = *std::move(now);
  for (const std::shared_ptr<Opened>& opened : devices.opened) {
    opened->gone |= std::none_of(
        devices.interfaces.begin(), devices.interfaces.end(),
        [&](const Interface& i) { return i.index == opened->interface; });
  }
  CloseGone(devices);
}

}  // namespace

std::optional<DeviceAddress> FindDevice(const rxe_user::LocalAddress& local) {
  Devices& devices = All();
  std::lock_guard<rxe_user::ForkRenewedMutex> lock(devices.mutex);
  ForgetInherited(devices);
  // The address is usually where it was before.
  if (auto found = FindOpened(devices, local)) return found;
  RefreshInterfaces(devices);
  if (auto found = FindOpened(devices, local)) return found;
  Open(devices, [&](uint32_t interface) {
    return Has(devices.interfaces, interface, local);
  });
  return FindOpened(devices, local);
}

void OnInterfaceGone(uint32_t interface) {
  Devices& devices = All();
  std::lock_guard<rxe_user::ForkRenewedMutex> lock(devices.mutex);
  ForgetInherited(devices);
  for (const std::shared_ptr<Opened>& opened : devices.opened) {
    opened->gone |= opened->interface == interface;
  }
  CloseGone(devices);
}

void ReleaseDevice(std::shared_ptr<const void> share) {
  if (share == nullptr) return;
  Devices& devices = All();
  std::lock_guard<rxe_user::ForkRenewedMutex> lock(devices.mutex);
  ForgetInherited(devices);
  share.reset();
  CloseGone(devices);
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
    // A domain without a file is private to this process.
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
    Devices& devices = All();
    std::lock_guard<rxe_user::ForkRenewedMutex> lock(devices.mutex);
    ForgetInherited(devices);
    const std::vector<Opened*> all =
        Open(devices, [](uint32_t /*interface*/) { return true; });
    if (all.empty()) return nullptr;
    auto** const list = new ibv_context*[all.size() + 1];
    for (size_t i = 0; i < all.size(); ++i) {
      all[i]->handed_out = true;
      list[i] = all[i]->verbs;
    }
    list[all.size()] = nullptr;
    if (num_devices != nullptr) *num_devices = static_cast<int>(all.size());
    return list;
  });
}

CM_EXPORT void rdma_free_devices(ibv_context** list) { delete[] list; }

}  // namespace librdmacm
