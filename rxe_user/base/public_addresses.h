// Addresses by which others know this host, and that none of its interfaces
// has: something between translates each of them to one that an interface has,
// one to one (a cloud's public addresses, `docker -p`). A device has them as
// GIDs, and ICRCs are for them; sockets are bound to the others. Everything but
// sockets and routes knows the public ones only.
#ifndef RXE_USER_BASE_PUBLIC_ADDRESSES_H_
#define RXE_USER_BASE_PUBLIC_ADDRESSES_H_

#include <vector>

#include "rxe_user/base/local_address.h"
#include "wire/address.h"

namespace rxe_user {

struct PublicAddress {
  wire::IpAddress known;  // to others
  wire::IpAddress bound;  // of an interface

  bool operator==(const PublicAddress&) const = default;
};

// Those of devices of the process (ListDevices). An entry with an address of
// one of them is replaced; others stay, since a device that is down keeps its
// contexts. Thread: any.
void AddPublicAddresses(const std::vector<PublicAddress>& addresses);

// The one that an interface has for `known`, and the one that others know for
// `bound`: the same where it is not translated. A load where none is. Thread:
// any.
wire::IpAddress BoundAddress(const wire::IpAddress& known);
wire::IpAddress KnownAddress(const wire::IpAddress& bound);
inline LocalAddress Bound(const LocalAddress& known) {
  return {BoundAddress(known.address), known.scope_id};
}
inline LocalAddress Known(const LocalAddress& bound) {
  return {KnownAddress(bound.address), bound.scope_id};
}

}  // namespace rxe_user

#endif  // RXE_USER_BASE_PUBLIC_ADDRESSES_H_
