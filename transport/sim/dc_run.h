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
// an initiator is reset in the middle of its messages and goes on with the next
// one; other initiators are not affected.
#ifndef TRANSPORT_SIM_DC_RUN_H_
#define TRANSPORT_SIM_DC_RUN_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transport/dc/dc_connections.h"
#include "transport/dc/dc_lane.h"
#include "transport/queue_pairs.h"
#include "transport/sim/checker.h"
#include "transport/sim/network.h"
#include "transport/sim/queues.h"
#include "transport/sim/random.h"
#include "transport/sim/scenario.h"

namespace sim {

struct DcStatistics {
  uint64_t packets = 0;
  uint64_t messages = 0;
  uint64_t connects = 0;
  uint64_t evicted = 0;
  uint64_t resets = 0;
  uint64_t not_ready = 0;   // times that a receive was late
  uint64_t undetected = 0;  // damaged packets that passed the ICRC
};

class DcRun {
 public:
  explicit DcRun(uint64_t seed);
  ~DcRun();

  // Runs the seed; call once. True: all checks passed.
  bool Execute();

  Network& network() { return net_; }
  const Checker& checker() const { return checker_; }
  // Adds this run's statistics.
  void AddTo(DcStatistics* sum) const;

 private:
  static constexpr int kHosts = 3;
  static constexpr int kTargetHost = 1;

  struct Message {
    transport::SendOpcode opcode = transport::SendOpcode::kSend;
    uint32_t flags = 0;
    uint32_t imm_be = 0;
    size_t target = 0;
    uint64_t local = 0;   // offset on the initiator's host
    uint64_t remote = 0;  // offset on the target's host
    uint64_t operand = 0;
    uint64_t found = 0;            // atomics: expected original value
    std::vector<uint8_t> content;  // payload, or the data of a READ
    bool abandoned = false;        // its initiator was reset
    bool received = false;

    bool writes() const;
    bool has_imm() const;
    bool atomic() const;
    bool takes_receive() const;
    uint32_t length() const { return static_cast<uint32_t>(content.size()); }
  };
  struct Host final : transport::DcLane {
    std::optional<uint32_t> AllocateNumber() override;
    void ReleaseNumber(uint32_t) override {}
    std::optional<uint16_t> SourcePort(
        const transport::AddressVector&,
        const transport::Received& connect) override {
      return connect.datagram->source_port;
    }
    uint32_t Random() override;
    // Allocates `length` bytes.
    uint64_t Reserve(uint64_t length);

    Node* node = nullptr;
    uint64_t bytes = 0;
    std::unique_ptr<uint8_t[]> buffer;
    Region region;
    SimEvents events;
    uint32_t next_number = 0x800000;
    sim::Random random{0};
    std::unique_ptr<transport::DcConnections> connections;
  };
  struct Target {
    Target() : srq(kPd) {}
    std::unique_ptr<transport::QueuePair> qp;
    SimCq cq;
    SimSrq srq;
    std::vector<uint64_t> slots;  // offset of each receive
    size_t posted = 0;
    size_t completed = 0;
  };
  struct Initiator {
    Host* host = nullptr;
    std::unique_ptr<transport::QueuePair> qp;
    SimCq cq;
    std::vector<Message> messages;
    uint64_t counter = 0;  // target of atomics
    size_t posted = 0;
    size_t completed = 0;
    size_t reset_at = SIZE_MAX;  // reset after this many posts
    bool was_reset = false;
  };

  static constexpr transport::PdId kPd = 7;

  void MakeMessages(Initiator& initiator);
  void MakeHost(Host& host);
  void MakeQueuePairs();
  void BringUp(transport::QueuePair& qp);
  void Reset(Initiator& initiator);

  // The applications: poll completions, post requests, schedule themselves.
  void RunTargets();
  void RunInitiator(Initiator& initiator);
  void PostSend(Initiator& initiator);
  void TakeSends(Initiator& initiator);
  void TakeReceives(size_t target);
  bool Match(size_t target, const transport::Completion& completion);
  void CheckEnd(const Initiator& initiator);
  void Fail(const std::string& text);

  const Scenario scenario_;
  sim::Random random_;
  uint32_t path_mtu_ = 0;
  uint32_t max_length_ = 0;
  uint32_t slot_bytes_ = 0;
  bool crowded_ = false;  // fewer connections than initiators
  bool plenty_ = true;    // all receives are posted at the start
  uint64_t resets_ = 0;
  Checker checker_;
  Network net_;
  Host hosts_[kHosts];
  std::deque<Target> targets_;
  std::deque<Initiator> initiators_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_DC_RUN_H_
