// Public addresses: other hosts know this host by them, but they are not
// addresses of an interface. A translator maps each to one address of an
// interface (a cloud's public address, `docker -p`). They are a device's GIDs,
// and ICRCs are computed with them. Sockets and routes use the interface's
// address; everything else uses the public one.
#ifndef RXE_USER_BASE_PUBLIC_ADDRESSES_H_
#define RXE_USER_BASE_PUBLIC_ADDRESSES_H_

#include <vector>

#include "rxe_user/base/local_address.h"
#include "wire/address.h"

namespace rxe_user {

struct PublicAddress {
  wire::IpAddress known;  // the address that other hosts use
  wire::IpAddress bound;  // the interface's address

  bool operator==(const PublicAddress&) const = default;
};

// Adds the addresses of the process's devices (ListDevices). Replaces entries
// that share one of these addresses, and keeps the others, since contexts of a
// device that is down still need them. Thread: any.
void AddPublicAddresses(const std::vector<PublicAddress>& addresses);

// The interface's address for `known`, and the public address for `bound`.
// Returns the argument if it is not translated. Costs one load if none is.
// Thread: any.
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
