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

#include "transport/sim/service_run.h"

namespace sim {

// Counts "messages", "received" (those that took a receive), "not ready" (RNR
// NAKs) and "broken" connections.
class XrcRun final : public ServiceRun {
 public:
  explicit XrcRun(uint64_t seed);

 private:
  static constexpr int kSrqs = 3;
  static constexpr int kPds = 2;

  struct Srq : SharedQueue {
    Srq(Pool* pool, SimCq* cq) : SharedQueue(pool), cq(cq) {}
    SimCq* const cq;
  };
  // A host, and its XRC domain.
  struct Host final : transport::XrcDomain {
    bool FindSrq(uint32_t srqn, transport::XrcSrq* out) override;

    Node* node = nullptr;
    Pool pds[kPds];
    SimCq recv_cq[kPds];
    std::deque<Srq> srqs;
    bool plenty = true;  // all receives are posted at the start
  };
  struct Connection : Sender {
    Host* from = nullptr;
    Host* to = nullptr;
    std::unique_ptr<transport::QueuePair> target;
    bool broken = false;       // one of its ends broke
    bool send_failed = false;  // a send failed after the break
    // By SRQ: the messages before this one have been received.
    size_t received[kSrqs] = {};
  };

  void Play() override;
  void Count(Statistics* statistics) override;
  void Address(Sender& sender, const Message& message,
               transport::SendRequest* request) override;
  // True for completions of a broken connection.
  bool TakesOutOfOrder(Sender& sender,
                       const transport::Completion& completion) override;

  static uint32_t NumberOf(const Host& host, int srq);
  void MakeMessages(Connection& connection);
  void Connect(Connection& connection, uint32_t qpn);
  void BringUp(transport::QueuePair& qp, const Host& own, const Host& peer,
               uint32_t peer_qpn);

  // Breaks one end of a connection.
  void ScheduleBreak();
  void Break(Connection& connection, bool initiator, transport::QpState to);

  // The application: polls completions, posts requests, and schedules itself.
  void RunApp(Host& host);
  void TakeReceives(Host& host);
  void OnReceived(Host& host, const SimCq& cq,
                  const transport::Completion& completion);
  void CheckEnd(const Connection& connection);

  Host hosts_[2];
  std::deque<Connection> connections_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_XRC_RUN_H_
