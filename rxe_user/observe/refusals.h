// Calls of this process that were refused, and the check that refused each.
// The last ones are kept for `rxe-user explain PID`; with RXE_USER_EXPLAIN=1
// each is one line on stderr.
#ifndef RXE_USER_OBSERVE_REFUSALS_H_
#define RXE_USER_OBSERVE_REFUSALS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/types.h"

namespace rxe_user {

struct Refusal {
  std::string call;          // "ibv_modify_qp"
  int error = 0;             // errno
  std::string check;         // "IBV_QP_TIMEOUT: missing ..."; empty: not known
  transport::Time time = 0;  // of the last one; CLOCK_MONOTONIC, ns
  uint64_t count = 0;        // equal ones in a row
};

// Notes a refused call. Does nothing if there is no memory. Thread: any.
void NoteRefusal(const char* call, int error, const std::string& check);

// The last kMaxRefusals, oldest first. Thread: any.
inline constexpr size_t kMaxRefusals = 32;
std::vector<Refusal> Refusals();

// "EINVAL", "errno 71".
std::string ErrnoName(int error);

// RXE_USER_EXPLAIN=1: explain failures on stderr (`rxe-user run --explain`).
bool ExplainMode();

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_REFUSALS_H_
