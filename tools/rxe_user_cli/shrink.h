// `rxe-user faults shrink`: finds a smallest set of fault rules with which a
// program still fails.
#ifndef TOOLS_RXE_USER_CLI_SHRINK_H_
#define TOOLS_RXE_USER_CLI_SHRINK_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "transport/faults/rule.h"

namespace rxe_user_cli {

struct ShrinkOptions {
  std::vector<transport::faults::Rule> rules;
  std::string seed;  // empty: the default
  int runs = 200;    // the most runs
  int seconds = 60;  // a longer run is killed: an end of its own
  std::vector<std::string> command;
};

// Runs the command repeatedly, without input and output, with ever fewer rules.
// Prints the rules to `out`, and its progress to `err`. The command fails if it
// ends as it does with all rules; without rules it must not. Rules with
// chances, and rules that hit several packets, are replaced by rules for the
// packets that they hit, by PSN and iteration, if the command fails with these
// as well. Returns the exit status: 0 if the rules are found; 1, after one line
// on `err`, if there is nothing to find; 128 plus the signal's number if it was
// interrupted. Blocks signals.
int RunShrink(const ShrinkOptions& options, std::FILE* out, std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_SHRINK_H_
