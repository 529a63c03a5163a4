// One seed of many queue pairs that share the paths between two hosts.
//
// RC and UC connections send in both directions, with pauses. Meanwhile the
// seed takes links down, makes them slow, narrow, lossy or marked, drains queue
// pairs, and destroys them under traffic. Some receivers post their receives
// late. Connections that break are created again. Then the network is repaired,
// and soon every connection makes progress again. Finally all applications are
// silent and nothing is in flight.
//
// Message contents are not checked here: the runs of each service do that.
#ifndef TRANSPORT_SIM_PATH_RUN_H_
#define TRANSPORT_SIM_PATH_RUN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/queue_pairs.h"
#include "transport/sim/queues.h"
#include "transport/sim/random.h"
#include "transport/sim/run.h"

namespace sim {

// Counts messages "completed", CNPs "notified", and connections "broken" by a
// fault.
class PathRun final : public Run {
 public:
  explicit PathRun(uint64_t seed);

 private:
  struct End {
    SimCq send_cq;
    SimCq recv_cq;
    std::unique_ptr<transport::QueuePair> qp;  // null: destroyed
    uint32_t outstanding = 0;
    uint64_t completed = 0;
    Time next_post = 0;
    int drains = 0;
  };
  struct Connection {
    transport::QpType type = transport::QpType::kRc;
    uint32_t path_mtu = 1024;
    uint32_t depth = 1;            // outstanding messages
    uint32_t max_message = 0;      // bytes
    uint32_t receives = 0;         // posted receives
    Time receives_late = 0;        // delay before a receive is posted again
    bool ended = false;            // to be created again
    std::unique_ptr<End> ends[2];  // by node
  };
  struct Buffer {
    std::vector<uint8_t> bytes;
    Region region;
  };

  void Play() override;
  void Count(Statistics* statistics) override;

  void Make(Connection& connection);
  void MakeAnew(Connection& connection, Time after);
  void Destroy(End& end);
  void PostReceive(End& end, int node);
  // The applications: poll completions and post.
  void RunApp(Connection& connection);
  void RunAppOn(Connection& connection, int node);
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

  Random random_;
  SimEvents events_;
  LinkProfile good_;  // links without a fault
  Buffer buffers_[2];
  uint32_t next_qpn_ = 0x0a0000;
  bool posting_ = true;
  std::vector<std::unique_ptr<Connection>> connections_;
  // Kept, so that a scheduled callback can tell that its end is gone.
  std::vector<std::unique_ptr<End>> former_;
  // Counts of destroyed queue pairs.
  uint64_t completed_ = 0;
  uint64_t notified_ = 0;
  uint64_t broken_ = 0;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_PATH_RUN_H_
