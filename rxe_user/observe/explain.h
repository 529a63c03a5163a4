// Explains what happened to a queue pair, from the report of its process
// (report_text.h) and those of the other processes of this host, one of which
// may be the peer. Nothing is inferred from packets.
#ifndef RXE_USER_OBSERVE_EXPLAIN_H_
#define RXE_USER_OBSERVE_EXPLAIN_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rxe_user/observe/report_text.h"

namespace rxe_user {

// What one process reports. Its texts are not trusted.
struct Witness {
  pid_t pid = 0;
  std::string command;
  std::vector<ReportRecord> records;  // of all its engines
  // The process did not answer; there are no records then.
  bool silent = false;
  bool stopped = false;  // by a signal or a debugger
  // For a recording: how long before the failure it ends, ns. 0: it does not
  // end before.
  uint64_t ended_ago = 0;
  // For a recording: of the packets for the queue pair that is searched for and
  // that the process read only after the failure, the longest time that one had
  // been in the socket, ns. 0: there were none.
  uint64_t unread_for = 0;
};

// Asks all processes of this network namespace except `but` (0: none).
// FailedPrecondition without /proc. Blocks for at most `patience` for each 256
// engines.
absl::StatusOr<std::vector<Witness>> AskWitnesses(
    pid_t but, std::chrono::milliseconds patience = std::chrono::seconds(1));

// The report of one engine of process `pid`; no records if it is not valid.
Witness WitnessOf(pid_t pid, std::string_view report);

// The numbers of the process's queue pairs, including those that only the
// flight recorder still knows.
std::vector<uint32_t> QueuePairsOf(const Witness& process);

// The origin of the witnesses.
enum class WitnessOrigin {
  kThisHost,
  kRecordings,  // those of the peer's address; the peer may be on another host
};

// Several lines: state, first cause, whose side it is on, what is outstanding
// and what that waits for, the chain of events with their times, what to do.
// Empty if `own` does not know the queue pair.
std::string ExplainQueuePair(const Witness& own, uint32_t qpn,
                             const std::vector<Witness>& others,
                             WitnessOrigin origin = WitnessOrigin::kThisHost);

// Lines about refused calls of the process, newest last; empty if there were
// none.
std::string ExplainRefusals(const Witness& own);

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_EXPLAIN_H_
