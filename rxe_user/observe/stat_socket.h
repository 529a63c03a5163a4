// The sockets by which `rxe-user stat` finds the engines of this network
// namespace and gets their reports. Each engine listens on an abstract Unix
// socket named
//
//   @rxe_user-stat-PID-N    N: the first free number of 0 to 63; a random one
//                           of 32 bits if other processes have all of these
//
// A client of root or of the same user gets one message: a descriptor
// (SCM_RIGHTS) of a memory file with the report (report_text.h). So the engine
// never waits for a client and keeps no state for it.
//
// If the client has sent a message by then (a command), it gets the command's
// answer in place of the report. A client sends its command right after
// connect(2), once SO_PEERCRED has shown that the listener is the right
// process, since any process may have created the name. A command that arrives
// too late is not carried out; the client notices, because it gets a report or
// because the command was not read (ECONNRESET), and sends it again.
#ifndef RXE_USER_OBSERVE_STAT_SOCKET_H_
#define RXE_USER_OBSERVE_STAT_SOCKET_H_

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/unique_fd.h"

namespace rxe_user {

// --- The engine's side. Used only by its control thread, which calls
// OnReadable when fd() is readable or time() has passed: it needs no thread of
// its own and costs nothing without clients.
class StatServer final : private ForkGuard {
 public:
  using Clock = std::chrono::steady_clock;
  using Report = std::function<std::string()>;
  using Command = std::function<std::string(const std::string&)>;

  // `report` returns the text of a report; `command` carries out a command and
  // returns its answer. OnReadable calls them. Without `command`, clients that
  // send a command get kNoCommands.
  static absl::StatusOr<std::unique_ptr<StatServer>> Open(Report report,
                                                          Command command = {});
  ~StatServer();

  // -1 in a child of fork(), while closing other users' connections takes too
  // long (base/close_elsewhere.h), and for a while if there is no descriptor or
  // no memory to accept a connection.
  int fd();
  // When to retry while fd() is -1 for the latter two reasons.
  Clock::time_point time() const {
    return blocked_ || short_ ? retry_at_ : Clock::time_point::max();
  }
  // Answers the clients that have connected. Waits at most a millisecond for
  // each.
  void OnReadable();

 private:
  StatServer(UniqueFd listener, Report report, Command command);
  // The command that the client has sent; absent if there is none.
  std::optional<std::string> TakeCommand();
  void Answer();
  bool CloseForeignClient();

  // --- ForkGuard. The child does not answer for its parent.
  void BeforeFork() override { descriptors_.lock(); }
  void AfterForkInParent() override { descriptors_.unlock(); }
  void AfterForkInChild() override;

  const Report report_;
  const Command command_;
  // Held briefly, while one of the following is opened or closed.
  std::mutex descriptors_;
  UniqueFd listener_;
  // The client that is being answered, or that cannot be closed.
  UniqueFd client_;
  UniqueFd file_;
  bool blocked_ = false;  // by another user's connection, client_
  bool short_ = false;    // of descriptors or memory
  Clock::time_point retry_at_;
};

// --- The tool's side.

// All stat sockets in the order of their process IDs; without the '@'.
// FailedPrecondition without /proc.
absl::StatusOr<std::vector<std::string>> ListStatSockets();

struct StatReply {
  pid_t pid = 0;  // of the listener, as this process sees it
  std::string text;
};

// The limit, in bytes, of what one call of AskForReports by root reads from
// other users. Each of them gets no more than then remains for all others: half
// for the first.
inline constexpr size_t kMaxForeignText = 48 << 20;

// Asks the engines behind `names`. The replies are in the same order. Waits at
// most `patience` for 256 of them at a time, and about four times `patience` in
// total however many there are; does not wait for stopped processes. Other
// users' answers are not trusted: they take no more memory than
// kMaxForeignText, and no descriptors. If the connection to such a name cannot
// be closed because of the descriptors sent on it, it stays open, one per name.
// Errors: kNotFound (no listener), kPermissionDenied (the engine is another
// user's, refuses to answer, or has such an open connection),
// kResourceExhausted (its user's quota is used up), kDeadlineExceeded,
// kInternal. Thread: one at a time.
std::vector<absl::StatusOr<StatReply>> AskForReports(
    const std::vector<std::string>& names,
    std::chrono::milliseconds patience = std::chrono::seconds(1));
absl::StatusOr<StatReply> AskForReport(const std::string& name);

// The longest command, in bytes.
inline constexpr size_t kMaxCommand = 128 * 1024;
// Each answer to a command begins with this; no report does.
inline constexpr std::string_view kCommandAnswer = "answer\n";
// The answer of a server that accepts no commands.
inline constexpr std::string_view kNoCommands = "no commands\n";
// Sends a command to the engine behind `name`, if that is of process `pid`, and
// returns the answer without kCommandAnswer. Errors: as AskForReports; also
// kNotFound: it is another process's; kUnimplemented: it accepts no commands;
// kUnknown: it has received the command but has not answered, so it may have
// carried it out or may do so later. With any other error the command was not
// carried out.
absl::StatusOr<StatReply> SendCommand(pid_t pid, const std::string& name,
                                      const std::string& command);

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_STAT_SOCKET_H_
