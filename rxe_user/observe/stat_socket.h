// How `rxe-user stat` finds the engines that run in this network namespace and
// asks them: each listens on an abstract Unix socket of its own, named
//
//   @rxe_user-stat-PID-N    N: the first number of 0 to 63 that is free; if
//                           others hold all of them a random one, of 32 bits
//
// Whoever connects, being root or of the same user, is sent one message: a
// descriptor (SCM_RIGHTS) of a file in memory with the report (report_text.h).
// So the engine never waits for a client, and keeps nothing of one.
#ifndef RXE_USER_OBSERVE_STAT_SOCKET_H_
#define RXE_USER_OBSERVE_STAT_SOCKET_H_

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/unique_fd.h"

namespace rxe_user {

// --- The engine's side. Used by its control thread alone, which calls
// OnReadable when fd() is readable or time() has come: no thread, and no cost
// while nobody asks.
class StatServer final : private ForkGuard {
 public:
  using Clock = std::chrono::steady_clock;
  using Report = std::function<std::string()>;

  // `report` makes the text; it is called within OnReadable.
  static absl::StatusOr<std::unique_ptr<StatServer>> Open(Report report);
  ~StatServer();

  // -1 in a child of fork, and while the kernel is still busy with what other
  // users have left in their connections (base/close_elsewhere.h).
  int fd();
  // While fd() is -1 for that: nobody tells when the kernel is done.
  Clock::time_point time() const {
    return held_up_ ? retry_at_ : Clock::time_point::max();
  }
  // Answers those who have connected. Does not block.
  void OnReadable();

 private:
  StatServer(UniqueFd listener, Report report);
  void Answer();
  bool DismissStranger();

  // --- ForkGuard. The child does not answer in its parent's name.
  void BeforeFork() override { descriptors_.lock(); }
  void AfterForkInParent() override { descriptors_.unlock(); }
  void AfterForkInChild() override;

  const Report report_;
  // Held for a moment only, by whoever opens or closes one of these.
  std::mutex descriptors_;
  UniqueFd listener_;
  // While one is answered, or cannot be dismissed.
  UniqueFd client_;
  UniqueFd file_;
  bool held_up_ = false;  // by a stranger in client_
  Clock::time_point retry_at_;
};

// --- The tool's side.

// The sockets that there are, in the order of their process numbers; without
// the '@'. FailedPrecondition without /proc.
absl::StatusOr<std::vector<std::string>> ListStatSockets();

struct StatReply {
  pid_t pid = 0;  // of the listener, as this process sees it
  std::string text;
};

// What is read of other users, as root, in one call of AskForReports, in bytes:
// of one of them no more than is left for all others, hence half for the first.
inline constexpr size_t kMaxStrangersText = 48 << 20;

// Asks the engines behind `names`, in whose order the replies are. Waits for
// `patience` at most, with 256 of them at a time, and not for a process that is
// stopped. Other users' answers are not trusted: they take no more memory than
// kMaxStrangersText, and no descriptors. Where the connection to such a name
// cannot be closed for what was sent along, it stays open, one for a name.
// Errors: kNotFound (nobody listens), kPermissionDenied (it is another user's,
// or takes us for one, or has left such a connection), kResourceExhausted (its
// user's share is used up), kDeadlineExceeded, kInternal. Thread: one at a
// time.
std::vector<absl::StatusOr<StatReply>> AskForReports(
    const std::vector<std::string>& names,
    std::chrono::milliseconds patience = std::chrono::seconds(1));
absl::StatusOr<StatReply> AskForReport(const std::string& name);

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_STAT_SOCKET_H_
