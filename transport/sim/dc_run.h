// One seed of dynamic connections.
//
// Two hosts with some initiators (DCI) each, and one with some targets (DCT),
// each with an SRQ. Each message names one of the targets; runs of messages to
// one target have random lengths. The network loses, duplicates, reorders and
// damages packets, and receives are sometimes late. Everything succeeds in
// posting order. Each message arrives once, whole, at its target. READs and
// atomics return the expected values.
//
// In some seeds the target's lane has fewer connections than there are
// initiators, which pause for seconds: idle connections are evicted. In others
// an initiator is reset in the middle of its messages and continues with the
// next one; other initiators are not affected.
#ifndef TRANSPORT_SIM_DC_RUN_H_
#define TRANSPORT_SIM_DC_RUN_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "transport/dc/dc_connections.h"
#include "transport/dc/dc_lane.h"
#include "transport/sim/service_run.h"

namespace sim {

// Counts "messages", "connects", "evicted", "resets", and "not ready": times
// that a receive was late.
class DcRun final : public ServiceRun {
 public:
  explicit DcRun(uint64_t seed);
  ~DcRun() override;

 private:
  static constexpr int kHosts = 3;
  static constexpr int kTargetHost = 1;

  struct Host final : transport::DcLane {
    std::optional<uint32_t> AllocateNumber() override { return next_number++; }
    void ReleaseNumber(uint32_t) override {}
    std::optional<uint16_t> SourcePort(
        const transport::AddressVector&,
        const transport::Received& connect) override {
      return connect.datagram->source_port;
    }
    uint32_t Random() override { return static_cast<uint32_t>(random.Next()); }

    Node* node = nullptr;
    Pool pool;
    uint32_t next_number = 0x800000;
    sim::Random random{0};
    std::unique_ptr<transport::DcConnections> connections;
  };
  struct Target {
    explicit Target(Pool* pool) : srq(pool) {}
    std::unique_ptr<transport::QueuePair> qp;
    SimCq cq;
    SharedQueue srq;
  };
  struct Initiator : Sender {
    Host* host = nullptr;
    size_t reset_at = SIZE_MAX;  // reset after this many posts
    bool was_reset = false;
    transport::AddressVector av;  // of the targets
  };

  void Play() override;
  void Count(Statistics* statistics) override;
  void Address(Sender& sender, const Message& message,
               transport::SendRequest* request) override;
  bool TakesOutOfOrder(Sender& sender,
                       const transport::Completion& completion) override;

  void MakeMessages(Initiator& initiator);
  void MakeQueuePairs();
  void BringUp(transport::QueuePair& qp);
  void Reset(Initiator& initiator);

  // The applications: poll completions, post requests, schedule themselves.
  void RunTargets();
  void RunInitiator(Initiator& initiator);
  void TakeReceives(Target& target);
  bool IsNext(const Target& target, const transport::Completion& completion);

  Host& there() { return hosts_[kTargetHost]; }

  bool crowded_ = false;  // fewer connections than initiators
  bool plenty_ = true;    // all receives are posted at the start
  uint64_t resets_ = 0;
  Host hosts_[kHosts];
  std::deque<Target> targets_;
  std::deque<Initiator> initiators_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_DC_RUN_H_
