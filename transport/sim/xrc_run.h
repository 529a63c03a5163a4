// One seed of extended reliable connections.
//
// Two hosts, each with an XRC domain of three SRQs in two protection domains,
// and some connections each way. Every message of every operation names one of
// the SRQs. The network loses, duplicates, reorders and damages packets, and
// receives are sometimes late. Everything succeeds in posting order. Each
// message arrives once, whole, in a receive of the SRQ that it names, and
// completes there. READs and atomics return the expected values.
//
// In some seeds one end of a connection enters ERR or RESET meanwhile. Its
// requests complete in order, with no success after a failure. Messages that
// arrive are whole, and other connections on the same SRQs are not affected.
#ifndef TRANSPORT_SIM_XRC_RUN_H_
#define TRANSPORT_SIM_XRC_RUN_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transport/queue_pairs.h"
#include "transport/sim/checker.h"
#include "transport/sim/network.h"
#include "transport/sim/queues.h"
#include "transport/sim/random.h"
#include "transport/sim/scenario.h"

namespace sim {

struct XrcStatistics {
  uint64_t packets = 0;
  uint64_t messages = 0;
  uint64_t received = 0;    // messages that took a receive
  uint64_t not_ready = 0;   // RNR NAKs
  uint64_t broken = 0;      // connections
  uint64_t undetected = 0;  // damaged packets that passed the ICRC
};

class XrcRun {
 public:
  explicit XrcRun(uint64_t seed);
  ~XrcRun();

  // Runs the seed; call once. True: all checks passed.
  bool Execute();

  Network& network() { return net_; }
  const Checker& checker() const { return checker_; }
  // Adds this run's statistics.
  void AddTo(XrcStatistics* sum) const;

 private:
  static constexpr int kSrqs = 3;
  static constexpr int kPds = 2;

  struct Message {
    transport::SendOpcode opcode = transport::SendOpcode::kSend;
    uint32_t flags = 0;
    uint32_t imm_be = 0;
    int srq = 0;
    uint64_t local = 0;   // offset into the sender's first protection domain
    uint64_t remote = 0;  // offset into the SRQ's protection domain
    uint64_t operand = 0;
    uint64_t found = 0;            // atomics: expected original value
    std::vector<uint8_t> content;  // payload, or the data of a READ

    bool writes() const;
    bool has_imm() const;
    bool atomic() const;
    bool takes_receive() const;
    uint32_t length() const { return static_cast<uint32_t>(content.size()); }
  };
  // A protection domain with one region.
  struct Pd {
    transport::PdId id = 0;
    uint64_t bytes = 0;
    std::unique_ptr<uint8_t[]> buffer;
    Region region;
    // Allocates `length` bytes.
    uint64_t Reserve(uint64_t length);
  };
  struct Srq {
    Srq(Pd* pd, SimCq* cq) : pd(pd), cq(cq), queue(pd->id) {}
    Pd* const pd;
    SimCq* const cq;
    SimSrq queue;
    size_t posted = 0;
    std::vector<uint64_t> slots;  // offset of each receive
  };
  struct Connection;
  // Also the XRC domain of that host.
  struct Host final : transport::XrcDomain {
    bool FindSrq(uint32_t srqn, transport::XrcSrq* out) override;

    Node* node = nullptr;
    Pd pds[kPds];
    SimCq recv_cq[kPds];
    std::deque<Srq> srqs;
    SimEvents events;
    bool plenty = true;  // all receives are posted at the start
  };
  struct Connection {
    Host* from = nullptr;
    Host* to = nullptr;
    SimCq send_cq;
    std::unique_ptr<transport::QueuePair> initiator;
    std::unique_ptr<transport::QueuePair> target;
    std::vector<Message> messages;
    uint64_t counter = 0;  // target of atomics: offset into `to`'s first PD
    size_t posted = 0;
    size_t completed = 0;
    bool broken = false;       // one of its ends broke
    bool send_failed = false;  // a send failed after the break
    // By SRQ: the peer's messages before this one have been received.
    size_t received[kSrqs] = {};
  };

  static uint32_t NumberOf(const Host& host, int srq);
  void MakeMessages(Connection& connection);
  void MakeHost(Host& host);
  void Connect(Connection& connection, uint32_t qpn);
  void BringUp(transport::QueuePair& qp, const Host& own, const Host& peer,
               uint32_t peer_qpn);

  // Breaks one end of a connection.
  void ScheduleBreak();
  void Break(Connection& connection, bool initiator, transport::QpState to);
  // Whether a broken connection may have this completion.
  bool MayFollowBreak(Connection& connection,
                      const transport::Completion& completion) const;

  // The application: polls completions, posts requests, and schedules itself.
  void RunApp(Host& host);
  void PostReceive(Host& host, Srq& srq);
  void PostSend(Connection& connection);
  void TakeSends(Connection& connection);
  void TakeReceives(Host& host);
  void OnReceived(Host& host, const SimCq& cq,
                  const transport::Completion& completion);
  bool Holds(const Pd& pd, uint64_t offset,
             const std::vector<uint8_t>& content) const;
  void CheckEnd(const Connection& connection);
  void Fail(const std::string& text);

  const Scenario scenario_;
  Random random_;
  uint32_t path_mtu_ = 0;
  uint32_t max_length_ = 0;
  uint32_t slot_bytes_ = 0;
  Checker checker_;
  Network net_;
  Host hosts_[2];
  std::deque<Connection> connections_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_XRC_RUN_H_
