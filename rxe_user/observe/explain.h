// Explanations of what happened to a queue pair: from the report of its process
// (report_text.h), and those of the other processes of this host, of which one
// may be the peer. Nothing is guessed from packets.
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

// What one process says. Its texts are not trusted.
struct Witness {
  pid_t pid = 0;
  std::string command;
  std::vector<ReportRecord> records;  // of all its engines
  // It did not answer. Then there are no records.
  bool silent = false;
  bool stopped = false;  // by a signal or a debugger
  // Of a recording: how long before the failure it ends, ns. 0: it goes on.
  uint64_t ended_ago = 0;
  // Of a recording: how long a packet for the queue pair that is looked for had
  // been in the socket at most, ns, of those that the process read after the
  // failure only. 0: there were none.
  uint64_t unread_for = 0;
};

// Asks all processes of this network namespace, except `but` (0: none).
// FailedPrecondition without /proc. Blocks: at most `patience` for 256 engines.
absl::StatusOr<std::vector<Witness>> AskWitnesses(
    pid_t but, std::chrono::milliseconds patience = std::chrono::seconds(1));

// One engine's report of the process `pid`; no records if it is not valid.
Witness WitnessOf(pid_t pid, std::string_view report);

// The numbers of its queue pairs, also of those that only the flight recorder
// remembers.
std::vector<uint32_t> QueuePairsOf(const Witness& process);

// Where the witnesses are from.
enum class Asked {
  kThisHost,
  kRecordings,  // those of the peer's address; the peer may be on another host
};

// Several lines: state, the first cause, whose side, what is outstanding and
// what that waits for, the chain of events with their times, what to do. Empty
// if `own` does not know the queue pair.
std::string ExplainQueuePair(const Witness& own, uint32_t qpn,
                             const std::vector<Witness>& others,
                             Asked asked = Asked::kThisHost);

// Lines about calls of the process that were refused, newest last; or empty.
std::string ExplainRefusals(const Witness& own);

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_EXPLAIN_H_
