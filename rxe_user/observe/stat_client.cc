// The tool's side of stat sockets (stat_socket.h).
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
#include <iterator>
#include <map>
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
// Any user can create tens of thousands of names that do not answer. Waiting
// for them takes at most this long in total, plus kMinPatience for each
// kAtOnce of them, within which a running process answers.
constexpr int kMaxPatiences = 4;
// How long one engine may take to answer a command, and how often it is sent.
constexpr std::chrono::milliseconds kCommandPatience = std::chrono::seconds(5);
constexpr int kMaxSends = 100;
constexpr std::chrono::milliseconds kMinPatience(5);
// Nothing reports when connect(2) would succeed.
constexpr std::chrono::milliseconds kUntilNextConnect(5);

// A socket's name and the numbers in it.
struct Name {
  long pid;
  long index;
  std::string text;
};

// Any process may have created the name.
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

// A copy of the descriptor that the message carries; invalid if it carries
// none, or more than one. The message stays in the socket with its descriptor,
// so closing the copy is never the last close of another user's file.
UniqueFd PeekDescriptor(int socket) {
  char byte;
  iovec data = {&byte, 1};
  // The padding of CMSG_SPACE would hold a second one.
  alignas(cmsghdr) char control[CMSG_LEN(sizeof(int))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_PEEK) <= 0) return {};
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET ||
      header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return {};
  }
  int fd;
  std::copy_n(CMSG_DATA(header), sizeof(fd), reinterpret_cast<char*>(&fd));
  UniqueFd copy(fd);
  if ((message.msg_flags & MSG_CTRUNC) != 0) return {};
  return copy;
}

// The limit, in bytes, of what is read from other users: in total, and for each
// user no more than then remains for all others.
class ForeignQuota {
 public:
  bool Take(uid_t uid, size_t bytes) {
    size_t& taken = taken_[uid];
    if (bytes > left_ || taken + bytes > left_ - bytes) return false;
    taken += bytes;
    left_ -= bytes;
    return true;
  }

 private:
  size_t left_ = kMaxForeignText;
  std::map<uid_t, size_t> taken_;
};

// The size of a memory file, reading which cannot block. Absent if the file is
// of another kind, or longer than a report may be.
std::optional<size_t> SizeOfMemoryFile(int file) {
  struct stat s {};
  if (::fcntl(file, F_GET_SEALS) < 0 || ::fstat(file, &s) != 0 ||
      s.st_size < 0 || static_cast<size_t>(s.st_size) > kMaxReportText) {
    return std::nullopt;
  }
  return static_cast<size_t>(s.st_size);
}

bool Read(int file, size_t size, std::string* text) {
  text->resize(size);
  for (size_t done = 0; done < size;) {
    const ssize_t got = ::pread(file, text->data() + done, size - done,
                                static_cast<off_t>(done));
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

// Connections to other users that could not be closed without waiting, by the
// name of their server. A server is not asked again until its connection is
// closed.
using Connections = std::map<std::string, UniqueFd>;
Connections& UnclosedConnections() {
  // Never destroyed, since that would wait.
  static Connections* const unclosed = new Connections;
  for (auto u = unclosed->begin(); u != unclosed->end();) {
    u = CloseElsewhere(u->second) ? unclosed->erase(u) : std::next(u);
  }
  return *unclosed;
}

// Whether the whole process is stopped, and so does not answer.
bool IsStopped(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  const size_t at = text.rfind(") ");  // the end of its name
  return at != std::string::npos && at + 2 < text.size() &&
         text[at + 2] == 'T';  // 't', traced: perhaps only one thread
}

// A command, and the process for which it is meant.
struct Command {
  pid_t pid;
  const std::string& text;
};

// A request to one engine. Does not block.
class Question {
 public:
  // `command` may be null; it outlives this.
  Question(const std::string& name, ForeignQuota* quota, const Command* command)
      : name_(name),
        command_(command),
        quota_(quota),
        address_(name),
        socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
                         0)) {
    if (socket_.get() < 0) reply_ = ErrnoStatus(errno, "socket");
  }
  Question(Question&&) = default;
  // Descriptors from another user may take long to close.
  ~Question() {
    if (!is_foreign_ || CloseElsewhere(socket_)) return;
    UnclosedConnections().insert_or_assign(name_, std::move(socket_));
  }

  bool answered() const { return reply_.has_value(); }
  bool connected() const { return connected_; }
  int fd() const { return socket_.get(); }

  // Call this again if it neither connects nor answers: the backlog is full.
  void Connect() {
    if (UnclosedConnections().contains(name_)) {
      reply_ = absl::PermissionDeniedError(
          "an earlier connection to it cannot be closed");
      return;
    }
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
    uid_ = peer.uid;
    is_foreign_ = !IsOwnUser(peer.uid);
    if (is_foreign_ && ::geteuid() != 0) {
      reply_ = absl::PermissionDeniedError("it belongs to another user");
    } else if (command_ != nullptr && pid_ != command_->pid) {
      reply_ = absl::NotFoundError(
          pid_ == 0 ? "the name is that of a process of another PID namespace"
                    : absl::StrCat("the name is that of process ", pid_));
    } else if (pid_ != 0 && IsStopped(pid_)) {
      reply_ = absl::DeadlineExceededError("it is stopped");
    } else if (command_ != nullptr) {
      // Send it right away, so that the engine finds it. If the engine does
      // not, its answer shows that.
      sent_ = ::send(fd(), command_->text.data(), command_->text.size(),
                     MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
    }
  }

  void OnReadable() {
    errno = 0;
    const UniqueFd file = PeekDescriptor(fd());
    if (file.valid()) {
      reply_ = ReadReply(file.get());
    } else if (errno == ECONNRESET && command_ != nullptr) {
      // The engine closed the connection with the command unread.
      reply_ = StatReply{.pid = pid_, .text = ""};
    } else if (errno != EAGAIN && sent_) {
      reply_ = MayBeDone("it closes the connection without an answer");
    } else if (errno != EAGAIN) {
      reply_ = absl::PermissionDeniedError("it refuses to answer");
    }
  }

  absl::StatusOr<StatReply> Take() {
    if (!answered()) {
      return sent_ ? MayBeDone("it does not answer")
                   : absl::DeadlineExceededError("it does not answer");
    }
    return *std::move(reply_);
  }

 private:
  static absl::Status MayBeDone(absl::string_view what) {
    return absl::UnknownError(
        absl::StrCat(what, "; the command may have been carried out"));
  }
  absl::StatusOr<StatReply> ReadReply(int file) {
    const std::optional<size_t> size = SizeOfMemoryFile(file);
    if (size.has_value() && is_foreign_ && !quota_->Take(uid_, *size)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the reports of user ", uid_, " are too long"));
    }
    StatReply reply;
    reply.pid = pid_;
    if (!size.has_value() || !Read(file, *size, &reply.text)) {
      return sent_ ? MayBeDone("its answer cannot be read")
                   : absl::InternalError("its answer is not a report");
    }
    return reply;
  }

  std::string name_;
  const Command* command_;
  ForeignQuota* quota_;
  AbstractAddress address_;
  UniqueFd socket_;
  pid_t pid_ = 0;
  uid_t uid_ = 0;
  bool connected_ = false;
  bool sent_ = false;  // the command
  bool is_foreign_ = false;
  std::optional<absl::StatusOr<StatReply>> reply_;
};

std::vector<absl::StatusOr<StatReply>> AskTogether(
    std::span<const std::string> names, std::chrono::milliseconds patience,
    ForeignQuota* quota, const Command* command = nullptr) {
  std::vector<Question> questions;
  questions.reserve(names.size());
  for (const std::string& name : names) {
    questions.emplace_back(name, quota, command);
  }
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
  using std::chrono::milliseconds;
  std::vector<absl::StatusOr<StatReply>> replies;
  ForeignQuota quota;
  const auto end_of_all =
      std::chrono::steady_clock::now() + kMaxPatiences * patience;
  for (size_t i = 0; i < names.size(); i += kAtOnce) {
    const size_t end = std::min(names.size(), i + kAtOnce);
    // Waits for half of the remaining time, so that some is left for the next
    // ones, but not less than kMinPatience nor more than `patience`.
    const auto left = std::chrono::ceil<milliseconds>(
        end_of_all - std::chrono::steady_clock::now());
    const milliseconds now =
        std::min(patience, std::max(left / 2, kMinPatience));
    for (auto& reply : AskTogether({&names[i], end - i}, now, &quota)) {
      replies.push_back(std::move(reply));
    }
  }
  return replies;
}

absl::StatusOr<StatReply> AskForReport(const std::string& name) {
  return std::move(AskForReports({name}).front());
}

absl::StatusOr<StatReply> SendCommand(pid_t pid, const std::string& name,
                                      const std::string& command) {
  if (command.empty() || command.size() > kMaxCommand) {
    return absl::InvalidArgumentError(
        absl::StrCat("a command has 1 to ", kMaxCommand, " bytes"));
  }
  const Command sent = {.pid = pid, .text = command};
  for (int i = 0; i < kMaxSends; ++i) {
    ForeignQuota quota;
    absl::StatusOr<StatReply> reply = std::move(
        AskTogether({&name, 1}, kCommandPatience, &quota, &sent).front());
    if (!reply.ok()) return reply;
    if (reply->text == kNoCommands) break;
    if (reply->text.starts_with(kCommandAnswer)) {
      reply->text.erase(0, kCommandAnswer.size());
      return reply;
    }
  }
  return absl::UnimplementedError("it takes no commands");
}

}  // namespace rxe_user
