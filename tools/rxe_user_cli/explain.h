// `rxe-user explain`: what a status means, and what happened to the queue pairs
// of a process.
#ifndef TOOLS_RXE_USER_CLI_EXPLAIN_H_
#define TOOLS_RXE_USER_CLI_EXPLAIN_H_

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "rxe_user/observe/explain.h"

namespace rxe_user_cli {

struct ExplainOptions {
  // status STATUS [vendor_err NUMBER], or PID [QPN], or FILE...
  std::optional<uint32_t> status;
  std::optional<uint32_t> vendor_err;
  pid_t pid = 0;
  std::optional<uint32_t> qpn;
  std::vector<std::string> files;  // recordings
};

// False, with a line in `*error`, if `words` has none of these forms.
bool ParseExplain(const std::vector<std::string>& words,
                  ExplainOptions* options, std::string* error);

// What `status` and `vendor_err` mean. Empty if neither is known.
std::string ExplainStatus(uint32_t status, std::optional<uint32_t> vendor_err);

// The table of docs/errors.md, which is made from transport/base/reason.h.
std::string ErrorsTable();

// Writes `text` to `out`. On failure, writes the reason to `err`. Returns the
// exit status. A closed reader (EPIPE) is not an error.
int Write(const std::string& text, std::FILE* out, std::FILE* err);

// Explains the queue pair `qpn` of a process, or all its queue pairs and the
// calls that were refused. Returns the exit status: 1 if the process has no
// such queue pair.
int ExplainWitness(const rxe_user::Witness& own, std::optional<uint32_t> qpn,
                   const std::vector<rxe_user::Witness>& witnesses,
                   std::FILE* out, std::FILE* err);

// Returns the exit status: 1 if there is nothing to explain, or if it could not
// be written.
int RunExplain(const ExplainOptions& options, std::FILE* out, std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_EXPLAIN_H_
