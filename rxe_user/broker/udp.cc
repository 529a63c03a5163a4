#include "rxe_user/broker/udp.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "rxe_user/base/users.h"
#include "wire/packet.h"

namespace rxe_user::broker {
namespace {

int IntOption(int fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  return getsockopt(fd, level, name, &value, &size) == 0 ? value : -1;
}

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

// Also true where the kernel does not tell (before Linux 5.14).
bool InOurNamespace(int fd) {
  const UniqueFd own(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  uint64_t its = 0;
  uint64_t ours = 0;
  socklen_t size = sizeof(its);
  if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &its, &size) != 0) {
    return true;
  }
  size = sizeof(ours);
  return getsockopt(own.get(), SOL_SOCKET, SO_NETNS_COOKIE, &ours, &size) ==
             0 &&
         its == ours;
}

}  // namespace

SocketAddress ToSocketAddress(const LocalAddress& local, uint16_t port) {
  SocketAddress out;
  if (local.address.is_v4()) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    a.sin_addr.s_addr = local.address.v4_be();
    std::memcpy(&out.storage, &a, sizeof(a));
    out.size = sizeof(a);
  } else {
    sockaddr_in6 a{};
    a.sin6_family = AF_INET6;
    a.sin6_port = htons(port);
    a.sin6_scope_id = local.scope_id;
    std::memcpy(&a.sin6_addr, local.address.bytes.data(), sizeof(a.sin6_addr));
    std::memcpy(&out.storage, &a, sizeof(a));
    out.size = sizeof(a);
  }
  return out;
}

SocketAddress BrokerAddress() {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  // After a zero byte: an abstract name.
  std::memcpy(name.sun_path + 1, kSocketName.data(), kSocketName.size());
  SocketAddress out;
  std::memcpy(&out.storage, &name, sizeof(name));
  out.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                    kSocketName.size());
  return out;
}

UniqueFd BindUdp(const LocalAddress& local, uint16_t port, Sharing sharing) {
  const int family = local.address.is_v4() ? AF_INET : AF_INET6;
  UniqueFd fd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fd;
  const int one = 1;
  // Peers may omit the UDP checksum over IPv6, as RoCE allows, since packets
  // have an ICRC.
  if (family == AF_INET6) {
    (void)setsockopt(fd.get(), IPPROTO_UDP, UDP_NO_CHECK6_RX, &one,
                     sizeof(one));
  }
  const SocketAddress a = ToSocketAddress(local, port);
  if ((family == AF_INET6 && setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY,
                                        &one, sizeof(one)) != 0) ||
      (sharing == Sharing::kReusePort &&
       setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) !=
           0) ||
      bind(fd.get(), a.get(), a.size) != 0) {
    const int error = errno;
    fd.Reset();
    errno = error;
  }
  return fd;
}

bool IsOurs(int fd) {
  // The inode of a socket or memory file belongs to its creator. Only the owner
  // or the administrator can change that.
  struct stat file;
  return fstat(fd, &file) == 0 && IsOwnUser(file.st_uid);
}

bool IsSocketOrMemory(int fd) {
  return IntOption(fd, SOL_SOCKET, SO_TYPE) >= 0 || fcntl(fd, F_GET_SEALS) >= 0;
}

bool LockFilter(int fd) {
  const int one = 1;
  return setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &one, sizeof(one)) == 0;
}

bool IsGroupSocket(int fd, const LocalAddress& local) {
  if (!IsOurs(fd) || !InOurNamespace(fd)) return false;
  if (IntOption(fd, SOL_SOCKET, SO_TYPE) != SOCK_DGRAM ||
      IntOption(fd, SOL_SOCKET, SO_PROTOCOL) != IPPROTO_UDP ||
      IntOption(fd, SOL_SOCKET, SO_REUSEPORT) != 1) {
    return false;
  }
  SocketAddress bound;
  bound.size = sizeof(bound.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound.storage),
                  &bound.size) != 0) {
    return false;
  }
  const SocketAddress expected = ToSocketAddress(local, wire::kRoceUdpPort);
  return bound.size == expected.size &&
         std::memcmp(&bound.storage, &expected.storage, bound.size) == 0;
}

uint64_t SocketCookie(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie
                                                                    : 0;
}

int Drain(int fd, int limit) {
  char byte;
  int count = 0;
  while (count < limit && recv(fd, &byte, 1, MSG_DONTWAIT | MSG_TRUNC) >= 0) {
    ++count;
  }
  return count;
}

}  // namespace rxe_user::broker
