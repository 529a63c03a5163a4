// Runs one seed and checks it.
#ifndef TRANSPORT_SIM_SEED_RUN_H_
#define TRANSPORT_SIM_SEED_RUN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/sim/checker.h"
#include "transport/sim/network.h"
#include "transport/sim/random.h"
#include "transport/sim/scenario.h"
#include "transport/sim/workload.h"

namespace sim {

struct RunOptions {
  std::string pcap;  // file name, or empty
  bool trace = false;
  // Moves queue pairs to ERR or RESET or destroys them at random times.
  bool chaos = false;
};

struct RunStatistics {
  uint64_t events = 0;
  uint64_t packets = 0;
  uint64_t bytes = 0;     // of packets
  uint64_t requests = 0;  // work requests completed
  uint64_t retransmitted = 0;
  uint64_t timeouts = 0;
  uint64_t undetected = 0;  // damaged packets that passed the ICRC
  Time virtual_time = 0;
};

class SeedRun {
 public:
  SeedRun(uint64_t seed, const RunOptions& options);
  ~SeedRun();

  // Runs the seed; call once. True: all checks passed.
  bool Execute();

  const Scenario& scenario() const { return scenario_; }
  const Checker& checker() const { return checker_; }
  const RunStatistics& statistics() const { return statistics_; }
  const Network& network() const { return network_; }

 private:
  void Build();
  void CreateQueuePair(End& end, Random& random);
  void Connect(End& end);
  void Modify(End& end, transport::QpState state);
  void SchedulePause(End& end);
  void SchedulePauseEnd(End& end);

  // The application of a host: polls completions, posts requests.
  void ScheduleApp(Host& host, Time when);
  void RunApp(Host& host);
  void PostSends(End& end);
  void PostReceives(End& end);
  void PostShared(SharedReceives& shared);
  void OnCompletion(Host& host, SimCq& cq,
                    const transport::Completion& completion);
  void OnSendCompletion(End& end, const transport::Completion& completion);
  void OnReceiveCompletion(End& end, const transport::Completion& completion);
  void OnReceiveSuccess(End& end, const transport::Completion& completion,
                        const Receive& receive);
  void FinishOp(End& end, Op& op);
  void CheckReceiveFields(const Op& op, const transport::Completion& completion,
                          const std::string& where);

  // Chaos.
  void ScheduleChaos();
  void Break(End& end);
  void BreakMemory(Host& host);

  bool Done() const;
  void CheckEnd();
  void CheckMemory();
  void AcceptBroken(End& end);
  void CheckQuiet();
  void Collect();
  std::string StateOfAll() const;

  // Adds the time and the queue pair to `text`.
  void Fail(const End& end, const std::string& text);

  const RunOptions options_;
  const Scenario scenario_;
  Checker checker_;
  Random random_;  // for the applications
  Network network_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<End>> ends_;
  RunStatistics statistics_;
  Time last_progress_ = 0;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_SEED_RUN_H_
