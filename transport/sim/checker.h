// Collects rule violations from all parts of the simulator.
#ifndef TRANSPORT_SIM_CHECKER_H_
#define TRANSPORT_SIM_CHECKER_H_

#include <string>
#include <utility>
#include <vector>

namespace sim {

// Failures of one run; the first is the interesting one.
class Checker {
 public:
  void Fail(std::string what) {
    if (failures_.size() < kKept) failures_.push_back(std::move(what));
  }
  // Extra text for ToString.
  void Explain(std::string text) { explanation_ = std::move(text); }
  bool failed() const { return !failures_.empty(); }
  const std::vector<std::string>& failures() const { return failures_; }
  // All failures, one per line, and the explanation.
  std::string ToString() const {
    std::string text;
    for (const std::string& failure : failures_) text += "  " + failure + "\n";
    return text + explanation_;
  }

 private:
  static constexpr size_t kKept = 5;
  std::vector<std::string> failures_;
  std::string explanation_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_CHECKER_H_
