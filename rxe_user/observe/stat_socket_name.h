// The names of stat sockets, for server and client.
#ifndef RXE_USER_OBSERVE_STAT_SOCKET_NAME_H_
#define RXE_USER_OBSERVE_STAT_SOCKET_NAME_H_

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

namespace rxe_user {

inline constexpr char kStatSocketPrefix[] = "rxe_user-stat-";

// An address in the abstract namespace.
struct AbstractAddress {
  explicit AbstractAddress(const std::string& name) {
    un.sun_family = AF_UNIX;
    const size_t bytes = std::min(name.size(), sizeof(un.sun_path) - 1);
    std::memcpy(un.sun_path + 1, name.data(), bytes);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&un); }
  sockaddr_un un{};
  socklen_t size;
};

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_STAT_SOCKET_NAME_H_
