#include "verbs_api/librdmacm/source_address.h"

#include <sys/socket.h>

#include <cerrno>

#include "rxe_user/base/public_addresses.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/devices/device.h"

namespace librdmacm {
namespace {

int Bind(int fd, EndpointAddress address) {
  address.port = 0;
  address.address = rxe_user::BoundAddress(address.address);
  sockaddr_storage storage;
  ToSockaddr(address, &storage);
  return bind(fd, reinterpret_cast<sockaddr*>(&storage),
              SockaddrLength(address.family)) == 0
             ? 0
             : errno;
}

rxe_user::UniqueFd UdpSocket(sa_family_t family) {
  return rxe_user::UniqueFd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

// Whether `group` has link-local scope but no interface. The routes for all
// multicast then decide.
bool NamesNoInterface(const EndpointAddress& group) {
  constexpr uint8_t kLinkLocal = 2;
  return group.address.is_multicast() && !group.address.is_v4() &&
         group.scope_id == 0 && (group.address.bytes[1] & 0xf) <= kLinkLocal;
}
EndpointAddress OfGlobalScope(EndpointAddress group) {
  constexpr uint8_t kGlobal = 0xe;
  group.address.bytes[1] |= kGlobal;
  return group;
}

int AskRoutes(const EndpointAddress& destination, const EndpointAddress& wanted,
              EndpointAddress* source) {
  const rxe_user::UniqueFd fd = UdpSocket(destination.family);
  if (!fd.valid()) return errno;
  if (!wanted.is_wildcard()) {
    if (const int error = Bind(fd.get(), wanted)) return error;
  }
  EndpointAddress there =
      NamesNoInterface(destination) ? OfGlobalScope(destination) : destination;
  // connect(2) needs a port, but sends nothing.
  if (there.port == 0) there.port = 1;
  sockaddr_storage storage;
  ToSockaddr(there, &storage);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&storage),
              SockaddrLength(there.family)) != 0) {
    return errno;
  }
  socklen_t length = sizeof(storage);
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &length) !=
      0) {
    return errno;
  }
  if (const int error =
          FromSockaddr(reinterpret_cast<sockaddr*>(&storage), source)) {
    return error;
  }
  source->port = 0;
  *source = AsKnown(*source);
  return 0;
}

}  // namespace

EndpointAddress AsKnown(EndpointAddress local) {
  rxe_user::ReadPublicAddresses();
  local.address = rxe_user::KnownAddress(local.address);
  return local;
}

int FindSource(const EndpointAddress& destination,
               const EndpointAddress& wanted, EndpointAddress* source) {
  if (destination.address.is_multicast() && !wanted.is_wildcard()) {
    // The caller's source address decides how the group is reached.
    *source = wanted;
    source->port = 0;
    return 0;
  }
  const int error = AskRoutes(destination.OfIp(), wanted.OfIp(), source);
  if (destination.family == AF_IB) source->family = AF_IB;
  return error;
}

int CheckLocal(const EndpointAddress& address) {
  const EndpointAddress ip = address.OfIp();
  const rxe_user::UniqueFd fd = UdpSocket(ip.family);
  return fd.valid() ? Bind(fd.get(), ip) : errno;
}

}  // namespace librdmacm
