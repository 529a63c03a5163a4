// One simulated run of many queue pairs that share the ways between two hosts,
// from a seed to a verdict.
//
// Reliable and unreliable connections send in both directions, now and then,
// while the seed takes links away, makes them slow, narrow, lossy or full of
// marked packets, drains queue pairs, and destroys them in the midst of
// traffic. Some receivers are late with their receives. Connections that end by
// that are made anew. Then the network is mended, and soon every connection
// gets on again. At last all applications are silent, and nothing is in flight.
//
// What messages carry is not looked at: the runs of one service do that.
#ifndef TRANSPORT_SIM_PATH_RUN_H_
#define TRANSPORT_SIM_PATH_RUN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/queue_pairs.h"
#include "transport/sim/checker.h"
#include "transport/sim/network.h"
#include "transport/sim/queues.h"
#include "transport/sim/random.h"

namespace sim {

struct PathStatistics {
  uint64_t packets = 0;
  uint64_t completed = 0;  // messages
  uint64_t notified = 0;   // congestion notifications
  uint64_t broken = 0;     // connections that ended by a fault
};

class PathRun {
 public:
  explicit PathRun(uint64_t seed);
  ~PathRun();

  // Runs it to its end. True when all was as it must be. To be called once.
  bool Execute();

  Network& network() { return network_; }
  const Checker& checker() const { return checker_; }
  // Adds what happened in this run.
  void AddTo(PathStatistics* sum) const;

 private:
  struct End {
    SimCq send_cq;
    SimCq recv_cq;
    std::unique_ptr<transport::QueuePair> qp;  // none: destroyed
    uint32_t outstanding = 0;
    uint64_t completed = 0;
    Time next_post = 0;
    int drains = 0;
  };
  struct Connection {
    transport::QpType type = transport::QpType::kRc;
    uint32_t path_mtu = 1024;
    uint32_t depth = 1;            // messages at once
    uint32_t greatest = 0;         // of them, bytes
    uint32_t receives = 0;         // posted
    Time receives_late = 0;        // that are posted again
    bool ended = false;            // it is to be made anew
    std::unique_ptr<End> ends[2];  // of the nodes
  };
  struct Buffer {
    std::vector<uint8_t> bytes;
    Region region;
  };

  void Make(Connection& connection);
  void MakeAnew(Connection& connection, Time after);
  void Destroy(End& end);
  void PostReceive(End& end, int node);
  // The applications: take what has completed, and post.
  void Look(Connection& connection);
  void LookAt(Connection& connection, int node);
  void PostSends(Connection& connection, int node);

  void ScheduleFault(Time when);
  void Fault();
  void Drain(Connection& connection, int node, Time lasts);
  void GoOn(Connection& connection, int node, End& end);
  void Mend(Link& link, Time after);

  void RunTo(Time when);
  void CheckProgress();
  void CheckQuiet();
  std::string StateOf(const Connection& connection) const;

  Checker checker_;
  Random random_;
  Network network_;
  SimEvents events_;
  LinkProfile good_;  // what links are without a fault
  Buffer buffers_[2];
  uint32_t next_qpn_ = 0x0a0000;
  bool posting_ = true;
  std::vector<std::unique_ptr<Connection>> connections_;
  // Who was told to come back finds that he is no more: no other has his place.
  std::vector<std::unique_ptr<End>> former_;
  PathStatistics statistics_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_PATH_RUN_H_
