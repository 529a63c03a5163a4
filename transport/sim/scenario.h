// The parameters that a seed determines: hosts, connections, links, and every
// attribute of every queue pair.
#ifndef TRANSPORT_SIM_SCENARIO_H_
#define TRANSPORT_SIM_SCENARIO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "transport/queue_pairs.h"
#include "transport/sim/network.h"

namespace sim {

// One end of a connection.
struct EndScenario {
  int host = 0;
  transport::PdId pd = 0;
  transport::QpCapacity capacity;
  bool signal_all = false;
  bool srq = false;  // receives from the SRQ of its host and domain
  int send_cq = 0;   // index on its host
  int recv_cq = 0;
  int sends = 0;             // work requests
  uint64_t byte_budget = 0;  // approximate payload of all of them
  uint32_t first_psn = 0;
  uint8_t max_rd_atomic = 1;  // the other end has as many resources
  uint8_t min_rnr_timer = 1;
  uint8_t retry_cnt = 7;
  uint8_t timeout = 14;
  uint16_t source_port = 0xc000;
  uint8_t traffic_class = 0;
  Time ready_after = 0;  // time of the transition to RTR
  int pauses = 0;        // number of transitions to SQD and back
  // Pace of the application.
  int send_batch = 1;   // maximum posts at once
  Time send_pause = 0;  // maximum time between them
  int recv_ahead = 0;   // receives posted at the start
  int recv_batch = 1;
  Time recv_pause = 0;
};

struct ConnectionScenario {
  uint32_t path_mtu = 1024;
  EndScenario end[2];
};

struct HostScenario {
  NodeProfile profile;
  int cqs = 1;
  Time poll_delay = 0;  // maximum time from a completion to the poll
  uint64_t span_bytes = 0;
  bool v6 = false;
};

struct Scenario {
  uint64_t seed = 0;
  std::vector<HostScenario> hosts;
  std::vector<ConnectionScenario> connections;
  LinkProfile link;         // of all links between hosts
  uint32_t max_length = 0;  // maximum message, bytes

  // Derives everything from `seed`.
  static Scenario Make(uint64_t seed);
  // In one line.
  std::string ToString() const;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_SCENARIO_H_
