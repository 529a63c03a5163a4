// Many hosts that write to one, whose link they share: how equal their parts
// are, and what the queue before it grows to (docs/reliability.md).
#ifndef TRANSPORT_SIM_INCAST_H_
#define TRANSPORT_SIM_INCAST_H_

#include <cstdint>
#include <string>

#include "transport/base/types.h"
#include "transport/base/work.h"

namespace sim {

using transport::Time;

struct IncastOptions {
  int senders = 2;
  // kRdmaRead: the one host reads from all others.
  transport::SendOpcode opcode = transport::SendOpcode::kRdmaWrite;
  uint64_t seed = 1;
  uint32_t path_mtu = 1024;
  uint32_t message = 16 * 1024;  // bytes
  bool marks = true;             // the switch marks packets that meet a queue
  // NodeProfile::hardware_cnps, of the one host.
  bool hardware_target = false;
  bool batches = false;  // NodeProfile::batches, of all
  Time apart = 0;        // each begins so long after the one before it
  // Begins to count after `warm_up`, and ends at `end`.
  Time warm_up = 20 * transport::kMillisecond;
  Time end = 120 * transport::kMillisecond;
};

struct IncastResult {
  std::string failed;  // why, if anything went wrong
  // Jain's index of what the senders got through: 1 if that was equal, 1 / n if
  // one had it all.
  double fairness = 0;
  double utilisation = 0;      // of the shared link, by packets of all kinds
  double goodput = 0;          // payload of all, bytes per us
  uint64_t longest_queue = 0;  // bytes, after the warm-up
  uint64_t longest_queue_ever = 0;  // bytes
  uint64_t dropped = 0;             // packets, after the warm-up
  uint64_t marked = 0;
};

// The shared link has 10 Gb/s and a queue of 1 MiB; a round trip without a
// queue takes 50 us. The senders' own links are infinitely fast.
IncastResult RunIncast(const IncastOptions& options);

}  // namespace sim

#endif  // TRANSPORT_SIM_INCAST_H_
