#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rxe_user/base/close_elsewhere.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/users.h"
#include "rxe_user/observe/report_text.h"
#include "rxe_user/observe/stat_socket.h"
#include "rxe_user/observe/stat_socket_name.h"

namespace rxe_user {
namespace {

constexpr size_t kAtOnce = 256;  // each takes a descriptor
// Nothing reports when connect(2) would succeed.
constexpr std::chrono::milliseconds kUntilNextConnect(5);

// A socket's name and the numbers in it.
struct Name {
  long pid;
  long index;
  std::string text;
};

// Any process may have created any name.
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

// The descriptor of the one message; -1 if there is none.
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

// Only a memory file, which cannot block the reader.
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

// Whether all threads of the process are stopped: then it does not answer.
bool IsStopped(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  const size_t at = text.rfind(") ");  // the end of its name
  return at != std::string::npos && at + 2 < text.size() &&
         text[at + 2] == 'T';  // 't', traced: perhaps only one thread
}

// A request to one engine. Does not block.
class Question {
 public:
  explicit Question(const std::string& name)
      : address_(name),
        socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
                         0)) {
    if (socket_.get() < 0) reply_ = ErrnoStatus(errno, "socket");
  }
  Question(Question&&) = default;
  // Descriptors from another user may take long to close.
  ~Question() {
    if (!is_foreign_) return;
    (void)CloseElsewhere(file_);
    (void)CloseElsewhere(socket_);
  }

  bool answered() const { return reply_.has_value(); }
  bool connected() const { return connected_; }
  int fd() const { return socket_.get(); }

  // Call it again if it neither connects nor answers: the backlog is full.
  void Connect() {
    if (::connect(fd(), address_.get(), address_.size) != 0) {
      if (errno != EAGAIN) reply_ = absl::NotFoundError("it has ended");
      return;
    }
    connected_ = true;
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (::getsockopt(fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
      reply_ = ErrnoStatus(errno, "SO_PEERCRED");
      return;
    }
    pid_ = peer.pid;
    is_foreign_ = !IsOwnUser(peer.uid);
    if (is_foreign_ && ::geteuid() != 0) {
      reply_ = absl::PermissionDeniedError("it belongs to another user");
    } else if (pid_ != 0 && IsStopped(pid_)) {
      reply_ = absl::DeadlineExceededError("it is stopped");
    }
  }

  void OnReadable() {
    errno = 0;
    file_.Reset(ReceiveDescriptor(fd()));
    StatReply reply;
    reply.pid = pid_;
    if (file_.get() < 0) {
      if (errno != EAGAIN) {
        reply_ = absl::PermissionDeniedError("it refuses to answer");
      }
    } else if (!ReadMemoryFile(file_.get(), &reply.text)) {
      reply_ = absl::InternalError("its answer is not a report");
    } else {
      reply_ = std::move(reply);
    }
  }

  absl::StatusOr<StatReply> Take() {
    if (!answered()) return absl::DeadlineExceededError("it does not answer");
    return *std::move(reply_);
  }

 private:
  AbstractAddress address_;
  UniqueFd socket_;
  UniqueFd file_;
  pid_t pid_ = 0;
  bool connected_ = false;
  bool is_foreign_ = false;
  std::optional<absl::StatusOr<StatReply>> reply_;
};

std::vector<absl::StatusOr<StatReply>> AskTogether(
    std::span<const std::string> names, std::chrono::milliseconds patience) {
  std::vector<Question> questions;
  questions.reserve(names.size());
  for (const std::string& name : names) questions.emplace_back(name);
  const auto end = std::chrono::steady_clock::now() + patience;
  while (true) {
    std::vector<pollfd> polled;
    std::vector<Question*> asked;
    bool all_connected = true;
    for (Question& question : questions) {
      if (!question.answered() && !question.connected()) question.Connect();
      if (question.answered()) continue;
      all_connected &= question.connected();
      if (!question.connected()) continue;
      polled.push_back({question.fd(), POLLIN, 0});
      asked.push_back(&question);
    }
    if (polled.empty() && all_connected) break;
    auto left = std::chrono::ceil<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) break;
    if (!all_connected) left = std::min(left, kUntilNextConnect);
    if (::poll(polled.data(), polled.size(), static_cast<int>(left.count())) <=
        0) {
      continue;
    }
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents != 0) asked[i]->OnReadable();
    }
  }
  std::vector<absl::StatusOr<StatReply>> replies;
  for (Question& question : questions) replies.push_back(question.Take());
  return replies;
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
  // A connected socket has its listener's name as well.
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

std::vector<absl::StatusOr<StatReply>> AskForReports(
    const std::vector<std::string>& names, std::chrono::milliseconds patience) {
  std::vector<absl::StatusOr<StatReply>> replies;
  for (size_t i = 0; i < names.size(); i += kAtOnce) {
    const size_t end = std::min(names.size(), i + kAtOnce);
    for (auto& reply : AskTogether({&names[i], end - i}, patience)) {
      replies.push_back(std::move(reply));
    }
  }
  return replies;
}

absl::StatusOr<StatReply> AskForReport(const std::string& name) {
  return std::move(AskForReports({name}).front());
}

}  // namespace rxe_user
