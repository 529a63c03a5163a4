// One seed of one service: the base class of the simulator's drivers.
#ifndef TRANSPORT_SIM_RUN_H_
#define TRANSPORT_SIM_RUN_H_

#include <cstdint>
#include <map>
#include <string>

#include "transport/sim/checker.h"
#include "transport/sim/network.h"

namespace sim {

// Counters of a run, or the sums of several, by name. Every run counts "bytes",
// "events", "packets", "undetected" (damaged packets that passed the ICRC) and
// "virtual us".
using Statistics = std::map<std::string, uint64_t>;

class Run {
 public:
  virtual ~Run() = default;

  // Runs the seed; call once. True: all checks passed.
  bool Execute();
  // Complete after Execute.
  const Statistics& statistics() const { return statistics_; }
  // The parameters of the seed, for people; may be empty.
  virtual std::string Describe() const { return ""; }

  Network& network() { return network_; }
  const Checker& checker() const { return checker_; }

 protected:
  explicit Run(uint64_t network_seed) : network_(network_seed, &checker_) {}

  // Runs the applications and checks the result.
  virtual void Play() = 0;
  // Adds the counters of the service.
  virtual void Count(Statistics* statistics) = 0;

  void Fail(const std::string& text);
  // Checks that the host has nothing to send and no timer.
  void CheckIdle(Node& node);

  Checker checker_;
  Network network_;

 private:
  Statistics statistics_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_RUN_H_
