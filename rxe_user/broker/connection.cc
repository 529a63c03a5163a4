#include "rxe_user/broker/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "rxe_user/base/close_elsewhere.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/high_fd.h"
#include "rxe_user/base/users.h"
#include "rxe_user/broker/container_socket.h"
#include "rxe_user/broker/spawn.h"

namespace rxe_user::broker {
namespace {

constexpr int64_t kFirstPauseMs = 1;
constexpr int64_t kLongestPauseMs = 20;
// How often to check for another broker while ours is coming up.
constexpr int64_t kRecheckMs = 100;
// How long a process may own the broker's name without listening. A starting
// broker listens as soon as it is scheduled.
constexpr int64_t kNameMs = 3000;
// How long to wait until an idle broker that we do not accept has ended. It
// ends as soon as it has seen our connection.
constexpr int64_t kLeaveMs = 300;

// Returns errno of connect, or 0.
int TryConnect(UniqueFd& socket_out) {
  socket_out.Reset(MoveHigh(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!socket_out.valid()) return errno;
  const SocketAddress name = BrokerAddress();
  return connect(socket_out.get(), name.get(), name.size) == 0 ? 0 : errno;
}

// Milliseconds as "N s".
std::string Seconds(int64_t ms) { return std::to_string(ms / 1000) + " s"; }

// Whoever creates a socket can read it, so the broker must be root's or our
// own. In a user namespace, root of the machine looks like every other unmapped
// user. `connected` is then replaced by a connection to the socket in a folder
// that only root can write, if there is one.
absl::Status CheckTrust(UniqueFd& connected, ucred& broker) {
  broker = {};
  socklen_t size = sizeof(broker);
  if (getsockopt(connected.get(), SOL_SOCKET, SO_PEERCRED, &broker, &size) !=
      0) {
    return absl::InternalError(std::string("SO_PEERCRED: ") +
                               std::strerror(errno));
  }
  if (broker.uid == 0 || IsOwnUser(broker.uid)) return absl::OkStatus();
  const std::string process =
      broker.pid == 0 ? "" : " (process " + std::to_string(broker.pid) + ")";
  const std::string shared =
      "UDP port 4791 of this network namespace is shared by the port broker "
      "of ";
  if (NamesOneUser(broker.uid)) {
    return absl::PermissionDeniedError(
        shared + "user " + std::to_string(broker.uid) + process +
        ", whom this process does not trust; let that user's programs end, or "
        "run rxe-user-port-broker --stay as root to share the port among "
        "users");
  }
  const SocketAddress vouched = ContainerSocket();
  UniqueFd fd(MoveHigh(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (vouched.size != 0 && fd.valid() &&
      connect(fd.get(), vouched.get(), vouched.size) == 0) {
    connected = std::move(fd);
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      shared + "a user that has no ID in this user namespace" + process +
      ", which may be any user; let the machine's root run "
      "rxe-user-port-broker --stay and show this container its folder " +
      kContainerFolder + ", or give the container a network namespace");
}

}  // namespace

int64_t MonotonicMs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * int64_t{1000} + t.tv_nsec / 1'000'000;
}

void SleepMs(int64_t ms) {
  const timespec t{0, ms * 1'000'000};
  nanosleep(&t, nullptr);
}

Message::Outcome Await(int socket, int64_t deadline_ms, Message& message) {
  for (;;) {
    const Message::Outcome outcome = message.Receive(socket);
    if (outcome != Message::Outcome::kNothing) return outcome;
    const int64_t left = deadline_ms - MonotonicMs();
    if (left <= 0) return outcome;
    pollfd p{socket, POLLIN, 0};
    poll(&p, 1, static_cast<int>(left));
  }
}

absl::Status StatusOf(Refusal refusal, const Text& text) {
  const absl::string_view line = TextOf(text);
  switch (refusal) {
    case Refusal::kNone:
      return absl::OkStatus();
    case Refusal::kUser:
      return absl::PermissionDeniedError(line);
    case Refusal::kFull:
      return absl::ResourceExhaustedError(line);
    case Refusal::kVersion:
    case Refusal::kSlotTaken:
      return absl::FailedPreconditionError(line);
    case Refusal::kPortTaken:
      return absl::UnavailableError(line);
    case Refusal::kNoAddress:
      return absl::NotFoundError(line);
    case Refusal::kServiceTaken:
      return absl::AlreadyExistsError(line);
    case Refusal::kOther:
      break;
  }
  return absl::InternalError(line);
}

absl::Status NoAnswer(pid_t pid, int64_t waited_ms) {
  return absl::DeadlineExceededError(
      "the port broker of this network namespace" +
      (pid == 0 ? "" : " (process " + std::to_string(pid) + ")") +
      " has not answered for " + Seconds(waited_ms) + " (busy machine?)");
}

// Takes slot and ledger from the reply to Hello.
static absl::Status TakeReply(Message& message, Session& session) {
  const std::optional<Header> header = message.header();
  if (header.has_value() && header->version != kProtocolVersion) {
    return absl::FailedPreconditionError(
        "the port broker speaks protocol version " +
        std::to_string(header->version) + ", this library version " +
        std::to_string(kProtocolVersion) +
        "; wait until the programs that use the other version have ended");
  }
  const std::optional<HelloReply> reply = message.As<HelloReply>();
  if (!reply.has_value() || (reply->refusal == Refusal::kNone &&
                             (reply->slot == 0 || reply->slot >= kSlots))) {
    return absl::InternalError("the port broker sent an invalid reply");
  }
  const absl::Status status = StatusOf(reply->refusal, reply->text);
  if (!status.ok()) return status;
  if (message.lost_fds()) {
    return ErrnoStatus(EMFILE, "cannot take a file from the port broker");
  }
  session.slot = static_cast<uint16_t>(reply->slot);
  session.ledger = message.TakeFd(0);
  return absl::OkStatus();
}

absl::StatusOr<Session> Connect(uint16_t slot, int ledger, int64_t patience_ms,
                                Start start, UniqueFd& starting,
                                Failure& failure) {
  int64_t pause = kFirstPauseMs;
  const int64_t leave_until_ms = MonotonicMs() + kLeaveMs;
  const int64_t deadline_ms = MonotonicMs() + patience_ms;
  // Why no broker of ours could be started.
  absl::Status spawned;
  pid_t pid = 0;  // the broker that was asked last
  // When a broker was first reported to serve while none listened.
  std::optional<int64_t> nobody_listens_ms;
  for (bool asked = false;; pause = std::min(2 * pause, kLongestPauseMs)) {
    if (asked && MonotonicMs() >= deadline_ms) break;
    asked = true;
    Session session;
    const int error = TryConnect(session.socket);
    if (error == ECONNREFUSED && start == Start::kNever) {
      failure = Failure::kNoBroker;
      return absl::NotFoundError("no port broker");
    }
    if (error == ECONNREFUSED && !spawned.ok()) {
      failure = IsOutOfFiles(spawned) ? Failure::kRefused : Failure::kNoBroker;
      return spawned;
    }
    if (error == ECONNREFUSED) {
      if (!starting.valid()) {
        if (MonotonicMs() >= deadline_ms) break;
        spawned = SpawnBroker(starting);
        if (!spawned.ok()) continue;
      }
      const int64_t left = deadline_ms - MonotonicMs();
      std::string why = BrokerPath() + " did not start";
      const Progress progress =
          AwaitBroker(starting, std::min(left, kRecheckMs), why);
      if (progress == Progress::kComingUp) continue;
      starting.Reset();
      asked = false;
      if (progress == Progress::kServes) {
        const int64_t now_ms = MonotonicMs();
        if (now_ms - nobody_listens_ms.value_or(now_ms) > kNameMs) {
          spawned = absl::NotFoundError(
              "a process has the port broker's name, @" +
              std::string(kSocketName) +
              ", and does not listen; `ss -xap`, as root, shows which");
          continue;
        }
        if (!nobody_listens_ms.has_value()) nobody_listens_ms = now_ms;
      }
      if (progress == Progress::kDied) {
        spawned = absl::NotFoundError(why);
      } else if (pause > kFirstPauseMs) {
        // Another broker may have had the name, and may be ending.
        SleepMs(pause);
      }
      continue;
    }
    if (error == EAGAIN) {  // its queue is full
      SleepMs(pause);
      continue;
    }
    failure = Failure::kRefused;
    if (error != 0) {
      return ErrnoStatus(error, "cannot connect to the port broker");
    }
    ucred broker;
    const absl::Status trust = CheckTrust(session.socket, broker);
    // An unmapped user is trusted only if it is root.
    session.broker_uid = NamesOneUser(broker.uid) ? broker.uid : 0;
    session.broker_pid = pid = broker.pid;
    if (!trust.ok()) {
      (void)CloseElsewhere(session.socket);
      if (MonotonicMs() >= leave_until_ms) return trust;
      SleepMs(pause);
      continue;
    }
    Hello hello;
    hello.slot = slot;
    Message message;
    if (!Send(session.socket.get(), hello, {ledger})) {
      SleepMs(pause);  // the broker is ending
      continue;
    }
    const Message::Outcome outcome =
        Await(session.socket.get(), MonotonicMs() + patience_ms, message);
    if (outcome == Message::Outcome::kNothing) {
      failure = Failure::kTimeout;
      return NoAnswer(pid, patience_ms);
    }
    if (outcome == Message::Outcome::kClosed) {
      SleepMs(pause);
      continue;
    }
    const absl::Status status = TakeReply(message, session);
    if (!status.ok()) return status;
    starting.Reset();
    return session;
  }
  failure = Failure::kTimeout;
  if (!starting.valid()) return NoAnswer(pid, patience_ms);
  return absl::DeadlineExceededError("the port broker " + BrokerPath() +
                                     " has been starting for " +
                                     Seconds(patience_ms) + " (busy machine?)");
}

absl::Status FindBroker(ucred* who) {
  const int64_t leave_until_ms = MonotonicMs() + kLeaveMs;
  for (int64_t pause = kFirstPauseMs;;
       pause = std::min(2 * pause, kLongestPauseMs)) {
    UniqueFd socket;
    const int error = TryConnect(socket);
    *who = {};
    who->uid = kUnknownUser;
    if (error == ECONNREFUSED) return absl::NotFoundError("no broker");
    if (error != 0 && error != EAGAIN) {
      return ErrnoStatus(error, "cannot connect to the port broker");
    }
    absl::Status trust;  // a full queue means that someone listens
    if (error == 0) {
      trust = CheckTrust(socket, *who);
      if (trust.ok()) return trust;
      (void)CloseElsewhere(socket);
    }
    if (MonotonicMs() >= leave_until_ms) return trust;
    socket.Reset();
    SleepMs(pause);
  }
}

}  // namespace rxe_user::broker
