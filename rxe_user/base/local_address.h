// An address of this machine, with the interface if it is link-local.
#ifndef RXE_USER_BASE_LOCAL_ADDRESS_H_
#define RXE_USER_BASE_LOCAL_ADDRESS_H_

#include <compare>
#include <cstdint>
#include <string>
#include <type_traits>

#include "wire/address.h"

namespace rxe_user {

struct LocalAddress {
  wire::IpAddress address;  // IPv4-mapped: the 16 bytes of a GID
  uint32_t scope_id = 0;    // interface index if link-local, else 0

  // "192.0.2.1", "fe80::1%eth0".
  std::string ToString() const;
  auto operator<=>(const LocalAddress&) const = default;
};
// Copied into messages and files as raw bytes.
static_assert(std::is_trivially_copyable_v<LocalAddress> &&
              sizeof(LocalAddress) == 20);

// fe80::/10.
bool IsLinkLocal(const wire::IpAddress& address);

// `local` without the interface, unless it is link-local.
LocalAddress Normalized(const LocalAddress& local);

// `address` on the interface `ifindex`.
LocalAddress OnInterface(const wire::IpAddress& address, uint32_t ifindex);

}  // namespace rxe_user

#endif  // RXE_USER_BASE_LOCAL_ADDRESS_H_
