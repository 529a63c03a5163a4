#include "rxe_user/broker/message.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "rxe_user/base/high_fd.h"

namespace rxe_user::broker {

std::optional<Header> Message::header() const {
  Header h;
  if (size_ < sizeof(h)) return std::nullopt;
  std::memcpy(&h, bytes_.data(), sizeof(h));
  if (h.magic != kMagic) return std::nullopt;
  return h;
}

std::optional<Message::StrayView> Message::AsStray() const {
  StrayView v;
  if (size_ < sizeof(v.head)) return std::nullopt;
  std::memcpy(&v.head, bytes_.data(), sizeof(v.head));
  const Header& h = v.head.header;
  if (h.magic != kMagic || h.version != kProtocolVersion ||
      h.type != Type::kStray || v.head.length != size_ - sizeof(v.head)) {
    return std::nullopt;
  }
  v.bytes = std::span(bytes_).subspan(sizeof(v.head), v.head.length);
  return v;
}

Message::Outcome Message::Receive(int socket, Fds fds) {
  for (UniqueFd& fd : fds_) fd.Reset();
  size_ = 0;
  iovec iov{bytes_.data(), bytes_.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxMessageFds)];
  msghdr m{};
  m.msg_iov = &iov;
  m.msg_iovlen = 1;
  if (fds == Fds::kTake) {
    m.msg_control = control;
    m.msg_controllen = sizeof(control);
  }
  ssize_t n;
  do {
    n = recvmsg(socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    return Outcome::kNothing;
  }
  if (n < 0) return Outcome::kClosed;
  // Also for an empty record, which looks like the end of the connection.
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      if (i < fds_.size()) {
        fds_[i].Reset(MoveHigh(fd));
      } else {
        close(fd);
      }
    }
  }
  if (n == 0 || (m.msg_flags & MSG_TRUNC)) return Outcome::kClosed;
  lost_fds_ = (m.msg_flags & MSG_CTRUNC) != 0;
  size_ = static_cast<size_t>(n);
  return Outcome::kMessage;
}

bool SendRecord(int socket, std::span<const std::span<const uint8_t>> parts,
                std::initializer_list<int> fds) {
  std::array<iovec, 2> iov;
  if (parts.size() > iov.size()) return false;
  for (size_t i = 0; i < parts.size(); ++i) {
    iov[i] = {const_cast<uint8_t*>(parts[i].data()), parts[i].size()};
  }
  std::array<int, kMaxMessageFds> sent;
  size_t count = 0;
  for (int fd : fds) {
    if (fd >= 0 && count < sent.size()) sent[count++] = fd;
  }
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxMessageFds)] = {};
  msghdr m{};
  m.msg_iov = iov.data();
  m.msg_iovlen = parts.size();
  if (count > 0) {
    m.msg_control = control;
    m.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * count);
    std::memcpy(CMSG_DATA(c), sent.data(), sizeof(int) * count);
  }
  ssize_t n;
  do {
    n = sendmsg(socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return n >= 0;
}

Text MakeText(std::string_view s) {
  Text t;
  const size_t n = std::min(s.size(), sizeof(t.text) - 1);
  std::memcpy(t.text, s.data(), n);
  t.text[n] = 0;
  return t;
}

std::string_view TextOf(const Text& text) {
  return {text.text, strnlen(text.text, sizeof(text.text))};
}

}  // namespace rxe_user::broker
