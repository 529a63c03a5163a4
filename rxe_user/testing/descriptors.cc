#include "rxe_user/testing/descriptors.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>

namespace rxe_user {

bool SendWithDescriptors(int socket, std::span<const uint8_t> bytes,
                         const std::vector<int>& fds) {
  iovec part = {const_cast<uint8_t*>(bytes.data()), bytes.size()};
  std::vector<char> control(CMSG_SPACE(sizeof(int) * fds.size()));
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  if (!fds.empty()) {
    m.msg_control = control.data();
    m.msg_controllen = control.size();
    cmsghdr* const c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(c), fds.data(), sizeof(int) * fds.size());
  }
  return ::sendmsg(socket, &m, MSG_NOSIGNAL) >= 0;
}

UniqueFd SlowToClose() {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(name);
  auto* const address = reinterpret_cast<sockaddr*>(&name);
  if (::bind(listener.get(), address, size) != 0 ||
      ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), address, &size) != 0 ||
      ::connect(fd.get(), address, size) != 0) {
    return {};
  }
  static std::vector<UniqueFd> unread;
  unread.emplace_back(::accept(listener.get(), nullptr, nullptr));
  if (!unread.back().valid()) return {};
  const std::vector<char> bytes(65536);
  while (::send(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  const linger wait = {.l_onoff = 1, .l_linger = 600};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait));
  return fd;
}

}  // namespace rxe_user
