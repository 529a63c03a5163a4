#include "rxe_user/testing/net_namespace.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace rxe_user {
namespace {

bool WriteFile(const char* path, const std::string& text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool ok = ::write(fd, text.data(), text.size()) ==
                  static_cast<ssize_t>(text.size());
  ::close(fd);
  return ok;
}

}  // namespace

bool SetLoopback(bool up) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  ifreq ifr{};
  std::strcpy(ifr.ifr_name, "lo");
  bool ok = ::ioctl(fd, SIOCGIFFLAGS, &ifr) == 0;
  if (up) {
    ifr.ifr_flags |= IFF_UP;
  } else {
    ifr.ifr_flags = static_cast<short>(ifr.ifr_flags & ~IFF_UP);
  }
  ok = ok && ::ioctl(fd, SIOCSIFFLAGS, &ifr) == 0;
  ::close(fd);
  return ok;
}

bool SetLoopbackMtu(int mtu) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  ifreq ifr{};
  std::strcpy(ifr.ifr_name, "lo");
  ifr.ifr_mtu = mtu;
  const bool ok = ::ioctl(fd, SIOCSIFMTU, &ifr) == 0;
  ::close(fd);
  return ok;
}

bool SetLoopbackAddress(const char* address, bool there) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  ifreq ifr{};
  std::strcpy(ifr.ifr_name, "lo:1");  // a label, which identifies the address
  bool ok;
  if (there) {
    sockaddr_in ip{};
    ip.sin_family = AF_INET;
    ok = ::inet_pton(AF_INET, address, &ip.sin_addr) == 1;
    std::memcpy(&ifr.ifr_addr, &ip, sizeof(ip));
    ok = ok && ::ioctl(fd, SIOCSIFADDR, &ifr) == 0;
  } else {
    ok = ::ioctl(fd, SIOCGIFFLAGS, &ifr) == 0;
    ifr.ifr_flags = static_cast<short>(ifr.ifr_flags & ~IFF_UP);
    ok = ok && ::ioctl(fd, SIOCSIFFLAGS, &ifr) == 0;
  }
  ::close(fd);
  return ok;
}

bool SetRouteTo(const char* address, Route route) {
  struct {
    nlmsghdr header{};
    rtmsg message{};
    struct {
      rtattr header = {sizeof(rtattr) + sizeof(in_addr), RTA_DST};
      in_addr value{};
    } destination;
    struct {
      rtattr header = {sizeof(rtattr) + sizeof(uint32_t), RTA_OIF};
      uint32_t value = 0;
      rtattr source_header = {sizeof(rtattr) + sizeof(in_addr), RTA_PREFSRC};
      in_addr source{};
    } local;
  } request;
  if (::inet_pton(AF_INET, address, &request.destination.value) != 1) {
    return false;
  }
  request.local.value = ::if_nametoindex("lo");
  request.local.source = request.destination.value;
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = RTM_NEWROUTE;
  request.header.nlmsg_flags =
      NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
  request.message.rtm_family = AF_INET;
  request.message.rtm_dst_len = 32;
  request.message.rtm_table = RT_TABLE_LOCAL;
  // As the kernel's own route, which is removed with the address.
  request.message.rtm_protocol = RTPROT_KERNEL;
  if (route == Route::kLocal) {
    request.message.rtm_type = RTN_LOCAL;
    request.message.rtm_scope = RT_SCOPE_HOST;
  } else {
    request.message.rtm_type = route == Route::kUnreachable  ? RTN_UNREACHABLE
                               : route == Route::kProhibited ? RTN_PROHIBIT
                                                             : RTN_BLACKHOLE;
    // These routes have no interface.
    request.header.nlmsg_len -= sizeof(request.local);
  }
  const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) return false;
  struct {
    nlmsghdr header{};
    nlmsgerr error{};
    char rest[256];
  } answer;
  const bool ok =
      ::send(fd, &request, request.header.nlmsg_len, 0) ==
          static_cast<ssize_t>(request.header.nlmsg_len) &&
      ::recv(fd, &answer, sizeof(answer), 0) >=
          static_cast<ssize_t>(sizeof(answer.header) + sizeof(answer.error)) &&
      answer.header.nlmsg_type == NLMSG_ERROR && answer.error.error == 0;
  ::close(fd);
  return ok;
}

bool EnterFreshNetNamespace() {
  if (::unshare(CLONE_NEWNET) != 0) {
    const unsigned uid = ::getuid();
    const unsigned gid = ::getgid();
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
    WriteFile("/proc/self/setgroups", "deny");
    WriteFile("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1");
    WriteFile("/proc/self/gid_map", "0 " + std::to_string(gid) + " 1");
  }
  return SetLoopback(true);
}

bool HaveIpv6() {
  const int fd = ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const bool ok =
      ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  ::close(fd);
  return ok;
}

}  // namespace rxe_user
