// `rxe-user explain FILE...`: explains failures in recordings. The texts are
// those of `explain PID`: the events of a file are turned into the report that
// the process would have given.
#ifndef TOOLS_RXE_USER_CLI_EXPLAIN_FILES_H_
#define TOOLS_RXE_USER_CLI_EXPLAIN_FILES_H_

#include <cstdio>
#include <string>
#include <vector>

#include "tools/trace/timeline.h"

namespace rxe_user_cli {

// The explanations of queue pairs that failed, retransmitted, waited, or had
// incomplete work requests at the end of the recording; and of calls that were
// refused. Empty if there are none.
std::string ExplainTimeline(const trace::Timeline& timeline);

// Returns the exit status: 1 if a file cannot be read to its end.
int ExplainFiles(const std::vector<std::string>& files, std::FILE* out,
                 std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_EXPLAIN_FILES_H_
