// `rxe-user faults shrink`: a smallest set of rules for faults with which a
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
  int runs = 200;    // at most
  int seconds = 60;  // of a run, which fails when they are over
  std::vector<std::string> command;
};

// Runs the command again and again, without input and output, each time with
// fewer rules, and prints the rules on `out` and its progress on `err`. It
// fails if it ends as it does with all rules, and it must not fail so without
// rules. Rules by chance, and those that hit several packets, are replaced by
// what they hit, by PSN and iteration, if it fails with these as well. Exit
// status: 0 if the rules are found; 1, after one line on `err`, if there is
// nothing to find; 128 and the signal's number if it was interrupted. Blocks
// signals.
int RunShrink(const ShrinkOptions& options, std::FILE* out, std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_SHRINK_H_
