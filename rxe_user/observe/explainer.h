// Explains on stderr the first failure of each queue pair of this process
// (RXE_USER_EXPLAIN=1, `rxe-user run --explain`). Silent if nothing fails.
#ifndef RXE_USER_OBSERVE_EXPLAINER_H_
#define RXE_USER_OBSERVE_EXPLAINER_H_

#include <vector>

#include "rxe_user/observe/recorder.h"
#include "transport/base/qp_report.h"

namespace rxe_user {

// The state of a queue pair when it fails; later it may no longer exist.
struct Failure {
  transport::QpReport queue_pair;
  std::vector<RecordedEvent> events;  // of the queue pair
  transport::Time now = 0;            // CLOCK_MONOTONIC, ns
};

// Whether `event` begins a failure that should be explained: the queue pair
// enters ERR or SQE, and not because the program moved it there.
bool IsFailure(const transport::RareEvent& event);

// Passes `failure` to a thread, which asks the other processes of this host and
// prints the explanation; that may take a second. The end of the program waits
// for it, as does AwaitExplanations. A child of fork() explains its own
// failures. Does nothing without ExplainMode(). Thread: any; a lane's lock may
// be held.
void ExplainLater(Failure failure);

// Waits, for some seconds at most, until all failures are explained: once a
// device is closed it no longer reports its queue pairs. No lane's lock may be
// held. Thread: any.
void AwaitExplanations();

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_EXPLAINER_H_
