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
  uint8_t slot = 0;
  UniqueFd ledger;
  uid_t broker_uid = 0;
  pid_t broker_pid = 0;
};

enum class Failure {
  kNoBroker,  // there is none and none could be started
  kRefused,   // there is one, and it or we will not have it
  kTimeout,
};

enum class Start { kIfNeeded, kNever };

// Connects and asks for a slot (`slot` 0), or for the own one back, starting a
// broker when there is none and `start` allows it. It waits for `patience_ms`
// at most until a broker listens, and as long again for its answer; it asks at
// least once. On failure `failure` tells the kind. `starting` is the broker
// that is still coming up (spawn.h), for the next call; none in the beginning,
// and after success.
absl::StatusOr<Session> Connect(uint8_t slot, int ledger, int64_t patience_ms,
                                Start start, UniqueFd& starting,
                                Failure& failure);

// OK: a broker runs that we trust; `*who` is its process (ID 0 where that is
// not to be known). kNotFound: none runs. kPermissionDenied: one of another
// user. Other errors say why it cannot be asked.
absl::Status FindBroker(ucred* who);

// kDeadlineExceeded, which is ETIMEDOUT: the broker that runs, process `pid` if
// it is not 0, has been asked for so long.
absl::Status NoAnswer(pid_t pid, int64_t waited_ms);

// Waits for a message; kNothing when the deadline passed.
Message::Outcome Await(int socket, int64_t deadline_ms, Message& message);

absl::Status StatusOf(Refusal refusal, const Text& text);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_CONNECTION_H_
