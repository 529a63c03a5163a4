// Delta debugging: a smallest set of things with which something still fails.
#ifndef TOOLS_RXE_USER_CLI_MINIMIZE_H_
#define TOOLS_RXE_USER_CLI_MINIMIZE_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace rxe_user_cli {

// Of `count` things, in their order.
using Subset = std::vector<size_t>;

struct Minimized {
  Subset subset;
  // It fails no more if any one thing is left out. Else the search was ended.
  bool complete = false;
};

// Finds such a subset, by the algorithm ddmin (Zeller and Hildebrandt,
// "Simplifying and Isolating Failure-Inducing Input", 2002). `fails` tells
// whether it fails with a subset, and is called once for each; without a value
// it ends the search. All things together are known to fail; none of them, not
// to. Calls: in the order of log2(count) for one thing that matters, and at
// most of count squared.
Minimized Minimize(
    size_t count,
    const std::function<std::optional<bool>(const Subset&)>& fails);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_MINIMIZE_H_
