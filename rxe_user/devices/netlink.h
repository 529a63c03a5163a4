// rtnetlink through libnl-route: owning pointers to its objects, and its lock.
#ifndef RXE_USER_DEVICES_NETLINK_H_
#define RXE_USER_DEVICES_NETLINK_H_

#include <linux/neighbour.h>
#include <netlink/addr.h>
#include <netlink/cache.h>
#include <netlink/netlink.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/neighbour.h>
#include <netlink/socket.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rxe_user/base/fork_guard.h"
#include "wire/address.h"

namespace rxe_user::netlink {

// Held during every call of libnl. libnl has its own locks, and a child of
// fork() that inherits a held one would hang. Not recursive.
ForkSafeMutex& Lock();

template <auto free>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    free(object);
  }
};
using Socket = std::unique_ptr<nl_sock, Free<nl_socket_free>>;
using Cache = std::unique_ptr<nl_cache, Free<nl_cache_free>>;
using Address = std::unique_ptr<nl_addr, Free<nl_addr_put>>;
using Link = std::unique_ptr<rtnl_link, Free<rtnl_link_put>>;
using Neighbor = std::unique_ptr<rtnl_neigh, Free<rtnl_neigh_put>>;

// States of a neighbor in which the kernel sends to it (NUD_VALID).
inline constexpr int kValidNeighbor = NUD_PERMANENT | NUD_NOARP |
                                      NUD_REACHABLE | NUD_PROBE | NUD_STALE |
                                      NUD_DELAY;

// A connected socket, close-on-exec. `what` is the start of the error text
// (errno_status.h). The lock is held.
absl::StatusOr<Socket> Connect(absl::string_view what);
// A connected socket for events, which follow no request. Nonblocking.
absl::StatusOr<Socket> ConnectForEvents(absl::string_view what);

using OnObject = absl::FunctionRef<void(nl_object*)>;
// Processes the socket's next messages. 0, or a negative libnl error. The lock
// is held.
int Receive(nl_sock* socket, OnObject on_object);

// The status of a failed call, with libnl's text. It has an errno value
// (errno_status.h) only if memory was missing: ENOMEM.
absl::Status ErrorStatus(int error, absl::string_view what);

// Absent unless the address is IPv4 or IPv6.
std::optional<wire::IpAddress> ToIpAddress(nl_addr* address);
Address FromIpAddress(const wire::IpAddress& address);
// Absent unless the address has six bytes.
std::optional<std::array<uint8_t, 6>> ToMac(nl_addr* address);

}  // namespace rxe_user::netlink

#endif  // RXE_USER_DEVICES_NETLINK_H_
