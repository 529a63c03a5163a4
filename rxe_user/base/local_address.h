// An address of this machine, with the interface that gives a link-local one
// its meaning.
#ifndef RXE_USER_BASE_LOCAL_ADDRESS_H_
#define RXE_USER_BASE_LOCAL_ADDRESS_H_

#include <compare>
#include <cstdint>
#include <string>
#include <type_traits>

#include "wire/address.h"

namespace rxe_user {

struct LocalAddress {
  wire::IpAddress address;  // IPv4 mapped: the 16 bytes of a GID
  uint32_t scope_id = 0;    // interface index of link-local IPv6, else 0

  // "192.0.2.1", "fe80::1%eth0".
  std::string ToString() const;
  auto operator<=>(const LocalAddress&) const = default;
};
// It stands in messages and files as it lies in memory.
static_assert(std::is_trivially_copyable_v<LocalAddress> &&
              sizeof(LocalAddress) == 20);

// fe80::/10.
bool IsLinkLocal(const wire::IpAddress& address);

// The one way to say `local`: an interface stands with a link-local address
// only.
LocalAddress Normalized(const LocalAddress& local);

// `address` as it is on the interface `ifindex`.
LocalAddress OnInterface(const wire::IpAddress& address, uint32_t ifindex);

}  // namespace rxe_user

#endif  // RXE_USER_BASE_LOCAL_ADDRESS_H_
