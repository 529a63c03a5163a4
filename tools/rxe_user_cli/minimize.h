// Delta debugging: finds a smallest set of things with which a test still
// fails.
#ifndef TOOLS_RXE_USER_CLI_MINIMIZE_H_
#define TOOLS_RXE_USER_CLI_MINIMIZE_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace rxe_user_cli {

// Indices of things, ascending.
using Subset = std::vector<size_t>;

struct Minimized {
  Subset subset;
  // True: the test passes if any one thing is left out. False: the search was
  // ended early.
  bool complete = false;
};

// Finds such a subset by the algorithm ddmin (Zeller and Hildebrandt,
// "Simplifying and Isolating Failure-Inducing Input", 2002). `fails` returns
// whether the test fails with a subset; no value ends the search. It is called
// at most once for each subset. With all things the test must fail, and with
// none it must pass. If one thing matters, there are some log2(count) calls; at
// most some count squared.
Minimized Minimize(
    size_t count,
    const std::function<std::optional<bool>(const Subset&)>& fails);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_MINIMIZE_H_
