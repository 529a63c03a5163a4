// The engine's side of stat sockets (stat_socket.h).
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "rxe_user/base/close_elsewhere.h"
#include "rxe_user/base/descriptor_message.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/high_fd.h"
#include "rxe_user/base/random.h"
#include "rxe_user/base/users.h"
#include "rxe_user/observe/stat_socket.h"
#include "rxe_user/observe/stat_socket_name.h"

namespace rxe_user {
namespace {

// Engines of this process, and processes with the same ID in other PID
// namespaces.
constexpr int kMaxNames = 64;
constexpr int kMaxRandomNames = 8;
constexpr int kBacklog = 8;
// Clients to answer before the control thread's other sources run.
constexpr int kClientsAtOnce = 4;
constexpr std::chrono::milliseconds kRetry{100};
// How long to wait for a command, which most clients do not send.
constexpr int kCommandMs = 1;

// Whether the client is root or this process's user.
bool MayAsk(int client) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return ::getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == 0 || IsOwnUser(peer.uid));
}

// Writes the text and seals the file. False on failure.
bool Fill(int file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written =
        ::write(file, text.data() + done, text.size() - done);
    if (written <= 0) return false;
    done += static_cast<size_t>(written);
  }
  return ::fcntl(file, F_ADD_SEALS,
                 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0;
}

// Sends one byte and `file`. The client reads the file at its own pace.
void SendDescriptor(int client, int file) {
  char byte = 0;
  const iovec data = {&byte, 1};
  (void)SendMessage(client, {&data, 1}, {&file, 1});
}

}  // namespace

absl::StatusOr<std::unique_ptr<StatServer>> StatServer::Open(Report report,
                                                             Command command) {
  UniqueFd listener(MoveHigh(
      ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!listener.valid()) return ErrnoStatus(errno, "stat socket");
  int error = EADDRINUSE;
  for (int i = 0; i < kMaxNames + kMaxRandomNames && error == EADDRINUSE; ++i) {
    // Another process may have taken the first names.
    const uint32_t n =
        i < kMaxNames ? static_cast<uint32_t>(i) : SecureRandom32();
    const AbstractAddress address(
        absl::StrCat(kStatSocketPrefix, ::getpid(), "-", n));
    error =
        ::bind(listener.get(), address.get(), address.size) == 0 ? 0 : errno;
  }
  if (error == 0 && ::listen(listener.get(), kBacklog) != 0) error = errno;
  if (error != 0) return ErrnoStatus(error, "stat socket");
  return std::unique_ptr<StatServer>(new StatServer(
      std::move(listener), std::move(report), std::move(command)));
}

StatServer::StatServer(UniqueFd listener, Report report, Command command)
    : ForkGuard(ForkLevel::kDescriptors),
      report_(std::move(report)),
      command_(std::move(command)),
      listener_(std::move(listener)) {
  EnterForkGuard();
}

StatServer::~StatServer() {
  {
    const std::lock_guard<std::mutex> lock(descriptors_);
    // Stop new connections. Those in the backlog are accepted and closed one by
    // one.
    ::shutdown(listener_.get(), SHUT_RDWR);
    do {
      if (client_.valid() && !MayAsk(client_.get()) &&
          !CloseElsewhere(client_)) {
        (void)client_.Release();
      }
      client_.Reset(::accept4(listener_.get(), nullptr, nullptr,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
    } while (client_.valid());
    listener_.Reset();
  }
  LeaveForkGuard();
}

int StatServer::fd() {
  if (blocked_ && CloseForeignClient()) blocked_ = false;
  if (short_ && Clock::now() >= retry_at_) short_ = false;
  return blocked_ || short_ ? -1 : listener_.get();
}

// The connection may contain descriptors whose closing blocks the thread.
bool StatServer::CloseForeignClient() {
  const std::lock_guard<std::mutex> lock(descriptors_);
  return CloseElsewhere(client_);
}

void StatServer::OnReadable() {
  if (fd() < 0) {
    retry_at_ = Clock::now() + kRetry;
    return;
  }
  for (int i = 0; i < kClientsAtOnce; ++i) {
    {
      const std::lock_guard<std::mutex> lock(descriptors_);
      client_.Reset(::accept4(listener_.get(), nullptr, nullptr,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
    }
    if (!client_.valid()) {
      // The connection stays queued, and the listener readable.
      short_ = errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
               errno == ENOBUFS;
      retry_at_ = Clock::now() + kRetry;
      return;
    }
    if (MayAsk(client_.get())) {
      Answer();
    } else if (!CloseForeignClient()) {
      blocked_ = true;
      retry_at_ = Clock::now() + kRetry;
      return;
    }
    const std::lock_guard<std::mutex> lock(descriptors_);
    client_.Reset();
    file_.Reset();
  }
}

std::optional<std::string> StatServer::TakeCommand() {
  // A client sends it right after connecting, which has just woken this thread.
  pollfd sent = {client_.get(), POLLIN, 0};
  (void)::poll(&sent, 1, kCommandMs);
  // Get the size first: most clients send nothing.
  const ssize_t size =
      ::recv(client_.get(), nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
  if (size <= 0 || static_cast<size_t>(size) > kMaxCommand) return std::nullopt;
  std::string text(static_cast<size_t>(size), '\0');
  const ssize_t got =
      ::recv(client_.get(), text.data(), text.size(), MSG_DONTWAIT);
  if (got != size) return std::nullopt;
  return text;
}

void StatServer::Answer() {
  {
    const std::lock_guard<std::mutex> lock(descriptors_);
    file_.Reset(
        ::memfd_create("rxe_user-stat", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  }
  // Without a file for the answer, a command must not be carried out, so create
  // the file first. If writing or sending the answer fails, the command has
  // been carried out, and the client reports that it may have been.
  if (!file_.valid()) return;
  const std::optional<std::string> command = TakeCommand();
  std::string text;
  if (!command) {
    text = report_();
  } else if (command_) {
    text = std::string(kCommandAnswer) + command_(*command);
  } else {
    text = kNoCommands;
  }
  if (Fill(file_.get(), text)) {
    SendDescriptor(client_.get(), file_.get());
  }
}

void StatServer::AfterForkInChild() {
  listener_.Reset();
  client_.Reset();
  file_.Reset();
  descriptors_.unlock();
}

}  // namespace rxe_user
