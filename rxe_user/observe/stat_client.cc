#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>
#include <tuple>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "rxe_user/base/close_elsewhere.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/observe/report_text.h"
#include "rxe_user/observe/stat_socket.h"
#include "rxe_user/observe/stat_socket_name.h"

namespace rxe_user {
namespace {

constexpr timeval kPatience = {1, 0};

// A socket's name and the numbers in it.
struct Name {
  long pid;
  long index;
  std::string text;
};

// Any process may have made any name.
bool ParseName(std::string_view text, Name* name) {
  name->text = text;
  const std::string_view prefix = kStatSocketPrefix;
  if (!text.starts_with(prefix)) return false;
  const char* const end = text.data() + text.size();
  const auto pid = std::from_chars(text.data() + prefix.size(), end, name->pid);
  if (pid.ec != std::errc() || pid.ptr == end || *pid.ptr != '-') return false;
  const auto index = std::from_chars(pid.ptr + 1, end, name->index);
  return index.ec == std::errc() && index.ptr == end && name->pid > 0 &&
         name->index >= 0;
}

// The descriptor that comes with the one message; -1 if none does.
int ReceiveDescriptor(int socket) {
  char byte;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) <= 0) return -1;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET ||
      header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return -1;
  }
  int fd;
  std::copy_n(CMSG_DATA(header), sizeof(fd), reinterpret_cast<char*>(&fd));
  return fd;
}

// Only of a file in memory, which cannot make the reader wait.
bool ReadMemoryFile(int file, std::string* text) {
  struct stat s {};
  if (::fcntl(file, F_GET_SEALS) < 0 || ::fstat(file, &s) != 0 ||
      s.st_size < 0 || static_cast<size_t>(s.st_size) > kMaxReportText) {
    return false;
  }
  text->resize(static_cast<size_t>(s.st_size));
  for (size_t done = 0; done < text->size();) {
    const ssize_t got = ::pread(file, text->data() + done, text->size() - done,
                                static_cast<off_t>(done));
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListStatSockets() {
  std::ifstream sockets("/proc/net/unix");
  if (!sockets) {
    return absl::FailedPreconditionError(
        "cannot read /proc/net/unix, which lists the sockets of processes");
  }
  std::vector<Name> found;
  for (std::string line; std::getline(sockets, line);) {
    const size_t at = line.rfind(" @");
    Name name;
    if (at == std::string::npos ||
        !ParseName(std::string_view(line).substr(at + 2), &name)) {
      continue;
    }
    found.push_back(std::move(name));
  }
  // A socket that is connected bears its listener's name as well.
  const auto key = [](const Name& n) { return std::tie(n.pid, n.index); };
  std::ranges::sort(found, {}, key);
  const auto same = [](const Name& a, const Name& b) {
    return a.text == b.text;
  };
  found.erase(std::unique(found.begin(), found.end(), same), found.end());
  std::vector<std::string> names;
  for (Name& name : found) names.push_back(std::move(name.text));
  return names;
}

absl::StatusOr<StatReply> AskForReport(const std::string& name) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return ErrnoStatus(errno, "socket");
  // Of connect, too.
  for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO}) {
    (void)::setsockopt(socket.get(), SOL_SOCKET, option, &kPatience,
                       sizeof(kPatience));
  }
  const AbstractAddress address(name);
  if (::connect(socket.get(), address.get(), address.size) != 0) {
    if (errno == EAGAIN) {
      return absl::DeadlineExceededError("it does not answer");
    }
    return absl::NotFoundError("it has ended");
  }
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return ErrnoStatus(errno, "SO_PEERCRED");
  }
  UniqueFd file;
  const absl::Cleanup close = [&] {
    if (peer.uid == ::geteuid()) return;
    (void)CloseElsewhere(file);
    (void)CloseElsewhere(socket);
  };
  if (peer.uid != ::geteuid() && ::geteuid() != 0) {
    return absl::PermissionDeniedError("it is another user's");
  }
  StatReply reply;
  reply.pid = peer.pid;
  errno = 0;
  file.Reset(ReceiveDescriptor(socket.get()));
  if (file.get() < 0) {
    if (errno == EAGAIN) {
      return absl::DeadlineExceededError("it does not answer");
    }
    return absl::PermissionDeniedError("it refuses to answer");
  }
  if (!ReadMemoryFile(file.get(), &reply.text)) {
    return absl::InternalError("it answers with what is no report");
  }
  return reply;
}

}  // namespace rxe_user
