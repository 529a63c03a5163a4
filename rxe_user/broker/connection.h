// The client's connection to the port broker.
#ifndef RXE_USER_BROKER_CONNECTION_H_
#define RXE_USER_BROKER_CONNECTION_H_

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/broker/message.h"

namespace rxe_user::broker {

int64_t MonotonicMs();

struct Session {
  UniqueFd socket;  // non-blocking
  uint16_t slot = 0;
  UniqueFd ledger;
  uid_t broker_uid = 0;
  pid_t broker_pid = 0;
};

enum class Failure {
  kNoBroker,  // no broker runs and none could be started
  kRefused,   // a broker runs, and it or we refuse
  kTimeout,
};

enum class Start { kIfNeeded, kNever };

// Connects and asks for a new slot (`slot` 0), or reclaims `slot`. Starts a
// broker if none runs and `start` allows it. Waits up to `patience_ms` for a
// broker that listens, and as long again for its reply; tries at least once.
// `failure` is set on failure. `starting` is a broker that is still coming up
// (spawn.h), to pass to the next call; empty at first and after success.
absl::StatusOr<Session> Connect(uint16_t slot, int ledger, int64_t patience_ms,
                                Start start, UniqueFd& starting,
                                Failure& failure);

void SleepMs(int64_t ms);

// OK: a broker runs that we trust; `*who` is its process (pid 0 if unknown).
// Also OK, with kUnknownUser, if its queue of connections stays full.
// kNotFound: none runs. kPermissionDenied: it belongs to another user. Other
// errors: it cannot be asked.
absl::Status FindBroker(ucred* who);

// kDeadlineExceeded (ETIMEDOUT): the broker, process `pid` unless that is 0,
// has not replied for `waited_ms`.
absl::Status NoAnswer(pid_t pid, int64_t waited_ms);

// Waits for a message. kNothing when the deadline has passed.
Message::Outcome Await(int socket, int64_t deadline_ms, Message& message);

absl::Status StatusOf(Refusal refusal, const Text& text);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_CONNECTION_H_
