#include "rxe_user/base/descriptor_message.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstring>

#include "rxe_user/base/high_fd.h"

namespace rxe_user {
namespace {

constexpr size_t kControlBytes = CMSG_SPACE(sizeof(int) * kMaxDescriptors);

}  // namespace

bool SendMessage(int socket, std::span<const iovec> parts,
                 std::span<const int> fds) {
  assert(fds.size() <= kMaxDescriptors);
  alignas(cmsghdr) char control[kControlBytes] = {};
  msghdr m{};
  m.msg_iov = const_cast<iovec*>(parts.data());
  m.msg_iovlen = parts.size();
  if (!fds.empty()) {
    m.msg_control = control;
    m.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  ssize_t sent;
  do {
    sent = ::sendmsg(socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

Arrival ReceiveMessage(int socket, std::span<uint8_t> bytes,
                       std::span<UniqueFd> fds, ReceivedMessage* message) {
  assert(fds.size() <= kMaxDescriptors);
  *message = {};
  iovec part = {bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[kControlBytes];
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  if (!fds.empty()) {
    m.msg_control = control;
    m.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
  }
  ssize_t received;
  do {
    received = ::recvmsg(socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) {
    return errno == EAGAIN || errno == EWOULDBLOCK ? Arrival::kNothing
                                                   : Arrival::kClosed;
  }
  message->truncated = (m.msg_flags & MSG_TRUNC) != 0;
  message->lost_descriptors = (m.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    // The padding of CMSG_SPACE may hold one more descriptor.
    for (size_t i = 0; CMSG_LEN(sizeof(int) * (i + 1)) <= c->cmsg_len; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      if (message->descriptors < fds.size()) {
        fds[message->descriptors++].Reset(MoveHigh(fd));
      } else {
        message->lost_descriptors = true;
        ::close(fd);
      }
    }
  }
  message->bytes = static_cast<size_t>(received);
  return received == 0 ? Arrival::kClosed : Arrival::kMessage;
}

}  // namespace rxe_user
