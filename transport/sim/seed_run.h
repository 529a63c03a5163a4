// Runs one seed and checks it.
#ifndef TRANSPORT_SIM_SEED_RUN_H_
#define TRANSPORT_SIM_SEED_RUN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/sim/random.h"
#include "transport/sim/run.h"
#include "transport/sim/scenario.h"
#include "transport/sim/workload.h"

namespace sim {

// A workload of RC connections (workload.h) and, with `chaos`, queue pairs that
// are moved to ERR or RESET or destroyed at random times. Counts "requests"
// that completed, "retransmitted" packets and "timeouts".
class SeedRun : public Run {
 public:
  explicit SeedRun(uint64_t seed, bool chaos = false);
  ~SeedRun() override;

  std::string Describe() const override { return scenario_.ToString(); }

 private:
  void Play() override;
  void Count(Statistics* statistics) override;

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
  std::string StateOfAll() const;

  // Adds the time and the queue pair to `text`.
  void FailAt(const End& end, const std::string& text);

  const bool chaos_;
  const Scenario scenario_;
  Random random_;  // for the applications
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<End>> ends_;
  uint64_t requests_ = 0;
  Time last_progress_ = 0;
};

class ChaosRun final : public SeedRun {
 public:
  explicit ChaosRun(uint64_t seed) : SeedRun(seed, /*chaos=*/true) {}
};

}  // namespace sim

#endif  // TRANSPORT_SIM_SEED_RUN_H_
