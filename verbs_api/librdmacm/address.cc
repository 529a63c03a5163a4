// rdma_bind_addr(3), rdma_resolve_addr(3).
#include "verbs_api/librdmacm/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cerrno>
#include <new>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "verbs_api/librdmacm/source_address.h"
#include "wire/headers.h"

namespace librdmacm {
namespace {

// Reserves the port of `source`. Port 0 is replaced by a free one.
int Reserve(Id& id, EndpointAddress* source) {
  const rxe_user::ServiceOptions options = {
      .service_id = wire::RdmaServiceId(id.port_space(), source->port),
      .local = source->local(),
      .ipv6_only = id.options.ipv6_only,
      .reuse = id.options.reuse_address,
      .choose_port = source->port == 0};
  rxe_user::ServiceHandle handle = 0;
  uint64_t service_id = 0;
  if (const int error = id.service->Reserve(options, &handle, &service_id)) {
    return error;
  }
  source->port = static_cast<uint16_t>(service_id);
  std::lock_guard<std::mutex> lock(id.mutex);
  id.reserved = handle;
  return 0;
}

// Finds the device of a local address. Returns 0 or an errno value: ENODEV if
// the address is this host's but no device has it.
int FindDeviceOf(const EndpointAddress& address, DeviceAddress* device) {
  const std::optional<DeviceAddress> found = FindDevice(address.local());
  if (found.has_value()) {
    *device = *found;
    return 0;
  }
  const int error = CheckLocal(address);
  return error != 0 ? error : ENODEV;
}

// An AF_IB address may name a port space; it must be that of the id.
bool IsOfPortSpace(const Id& id, const EndpointAddress& address) {
  return address.port_space == 0 || address.port_space == id.port_space();
}

// An AF_IB socket address also shows the port space.
EndpointAddress WithPortSpace(const Id& id, EndpointAddress address) {
  if (address.family == AF_IB) address.port_space = id.port_space();
  return address;
}

bool IsLoopback(const wire::IpAddress& address) {
  return address.is_v4()
             ? address.bytes[12] == 127
             : address == wire::IpAddress::FromGid(in6addr_loopback.s6_addr);
}

// The address to bind for `address`. An address of the loopback interface means
// the same as the unspecified address, unless a device has it. The kernel's
// rdma_cm does the same: libfabric binds to "localhost" and accepts any device.
EndpointAddress BindAddressFor(const EndpointAddress& address) {
  if (!IsLoopback(address.address) || FindDevice(address.local())) {
    return address;
  }
  EndpointAddress any = address;
  any.address = address.family == AF_INET ? wire::IpAddress::FromV4(0)
                                          : wire::IpAddress();
  return any;
}

// Whether `id` is in `state`. For calls that `calls` serializes.
bool IsIn(Id& id, IdState state) {
  std::lock_guard<std::mutex> lock(id.mutex);
  return id.state == state;
}

// The last part of rdma_resolve_addr: waits until the neighbor for `remote` is
// resolved.
int AwaitNeighbor(Id& id, const rxe_user::LocalAddress& local,
                  const wire::IpAddress& remote, int timeout_ms) {
  // The undo must not allocate.
  absl::Cleanup undo = [&id] {
    std::lock_guard<std::mutex> lock(id.mutex);
    id.source = std::exchange(id.address_resolution, {})->source;
    id.state = IdState::kBound;
  };
  rxe_user::NeighborWait wait = 0;
  const int error = id.service->AwaitNeighbor(local, remote, timeout_ms,
                                              id.shared_from_this(), &wait);
  if (error != 0) return error;
  std::move(undo).Cancel();
  if (wait == 0) {
    id.OnNeighbor(0);
    return 0;
  }
  std::lock_guard<std::mutex> lock(id.mutex);
  if (id.address_resolution.has_value()) id.address_resolution->wait = wait;
  return 0;
}

int Resolve(Id& id, const sockaddr* source_address,
            const sockaddr* destination_address, int timeout_ms) {
  EndpointAddress destination;
  if (const int error = FromSockaddr(destination_address, &destination)) {
    return error;
  }
  if (!IsOfPortSpace(id, destination)) return EINVAL;
  // As in rdma-core, an address without a family means that none was given.
  if (IsIn(id, IdState::kIdle) && source_address != nullptr &&
      source_address->sa_family != AF_UNSPEC) {
    EndpointAddress wanted;
    if (const int error = FromSockaddr(source_address, &wanted)) return error;
    if (wanted.family != destination.family) return EINVAL;
    if (const int error = Bind(id, wanted)) return error;
  }
  const bool bound = IsIn(id, IdState::kBound);
  if (!bound && !IsIn(id, IdState::kIdle)) return EINVAL;
  EndpointAddress wanted = BindAddressFor(id.source);
  if (!bound) wanted.family = destination.family;
  if (wanted.family != destination.family) return EINVAL;

  // A link-local GID does not name its interface.
  if (destination.family == AF_IB) destination.scope_id = wanted.scope_id;
  EndpointAddress source;
  if (const int error = FindSource(destination, wanted, &source)) return error;
  // Like connect(2): the unspecified address means this host. So does the rest
  // of 127/8, but the id keeps showing the given address.
  EndpointAddress reached = destination;
  if (BindAddressFor(destination).is_wildcard()) {
    reached.address = source.address;
    reached.scope_id = source.scope_id;
    if (destination.is_wildcard()) destination = reached;
  }
  const std::optional<DeviceAddress> device = FindDevice(source.local());
  source.port = wanted.port;
  if (!bound) {
    if (const int error = Reserve(id, &source)) return error;
  }
  std::unique_lock<std::mutex> lock(id.mutex);
  // The id is bound even if a later step fails.
  if (!bound) {
    id.state = IdState::kBound;
    id.source = source;
  }
  if (!device.has_value()) {
    id.source = source;
    id.Push(RDMA_CM_EVENT_ADDR_ERROR, -ENODEV);
    return 0;
  }
  // Another destination may need another source address.
  if (bound) wanted = id.source;
  wanted.port = source.port;
  AddressResolution resolution = {
      .event = id.NewEvent(RDMA_CM_EVENT_ADDR_RESOLVED), .source = wanted};
  SetSource(id, source, *device);
  SetDestination(id, reached);
  // rdma_get_peer_addr(3) returns this address.
  ToSockaddr(WithPortSpace(id, destination), &id.part.route.addr.dst_storage);
  id.address_resolution = std::move(resolution);
  id.state = IdState::kResolvingAddr;
  lock.unlock();
  return AwaitNeighbor(id, source.local(), reached.address, timeout_ms);
}

// Returns the port in network byte order.
__be16 Port(const sockaddr& address) {
  EndpointAddress endpoint;
  if (FromSockaddr(&address, &endpoint) != 0) return 0;
  return htons(endpoint.port);
}

}  // namespace

void SetSource(Id& id, const EndpointAddress& source,
               const DeviceAddress& device) {
  id.source = source;
  ToSockaddr(WithPortSpace(id, source), &id.part.route.addr.src_storage);
  if (device.verbs == nullptr) return;
  if (id.part.verbs != device.verbs) id.part.pd = nullptr;
  id.part.verbs = device.verbs;
  id.device = device.share;
  id.interface = device.interface;
  id.part.port_num = kPort;
  // Must exist before the queue pair: programs register memory in it.
  if (id.part.pd == nullptr) id.part.pd = DefaultPd(device.verbs);
  if (id.part.pd == nullptr && errno == ENOMEM) throw std::bad_alloc();
  id.attributes.gid_index = device.gid_index;
  rdma_ib_addr& gids = id.part.route.addr.addr.ibaddr;
  gids.sgid = GidOf(source.address);
  gids.pkey = htons(wire::kDefaultPkey);
}

void SetDestination(Id& id, const EndpointAddress& destination) {
  id.destination = destination;
  ToSockaddr(WithPortSpace(id, destination), &id.part.route.addr.dst_storage);
  id.attributes.remote_gid = destination.address;
  id.part.route.addr.addr.ibaddr.dgid = GidOf(destination.address);
}

int Bind(Id& id, const EndpointAddress& named) {
  if (!IsIn(id, IdState::kIdle)) return EINVAL;
  const EndpointAddress address = AsKnown(named);
  if (!IsOfPortSpace(id, address)) return EINVAL;
  EndpointAddress bind_address = BindAddressFor(address);
  DeviceAddress device;
  if (!bind_address.is_wildcard()) {
    if (const int error = FindDeviceOf(bind_address, &device)) return error;
  }
  if (const int error = Reserve(id, &bind_address)) return error;
  EndpointAddress source = address;
  source.port = bind_address.port;
  if (source.family == AF_IB) source.scope_id = device.interface;
  absl::Cleanup undo = [&id] {
    (void)id.service->Release(std::exchange(id.reserved, 0));
  };
  std::lock_guard<std::mutex> lock(id.mutex);
  SetSource(id, source, device);
  id.state = IdState::kBound;
  std::move(undo).Cancel();
  return 0;
}

void Id::OnNeighbor(int error) {
  std::lock_guard<std::mutex> lock(mutex);
  // The id may have been destroyed meanwhile.
  if (!address_resolution.has_value()) return;
  AddressResolution resolution = *std::move(address_resolution);
  address_resolution.reset();
  if (error != 0) {
    source = resolution.source;
    resolution.event->SetType(RDMA_CM_EVENT_ADDR_ERROR);
    resolution.event->part.status = -error;
  }
  state = error != 0 ? IdState::kBound : IdState::kAddrResolved;
  Push(std::move(resolution.event));
}

CM_EXPORT int rdma_bind_addr(rdma_cm_id* pointer, sockaddr* addr) {
  return IdCall(pointer, [&](Id& id) -> int {
    EndpointAddress address;
    if (const int error = FromSockaddr(addr, &address)) return error;
    return Bind(id, address);
  });
}

// The timeout limits ARP or NDP for the next hop, if the kernel does not know
// it yet. As in the kernel, a negative timeout is no limit.
CM_EXPORT int rdma_resolve_addr(rdma_cm_id* pointer, sockaddr* source,
                                sockaddr* destination, int timeout_ms) {
  return CompleteCall(pointer, WaitingCall::kResolveAddr, [&](Id& id) {
    return Resolve(id, source, destination, timeout_ms);
  });
}

CM_EXPORT __be16 rdma_get_src_port(rdma_cm_id* id) {
  return id == nullptr ? 0 : Port(id->route.addr.src_addr);
}

CM_EXPORT __be16 rdma_get_dst_port(rdma_cm_id* id) {
  return id == nullptr ? 0 : Port(id->route.addr.dst_addr);
}

}  // namespace librdmacm
