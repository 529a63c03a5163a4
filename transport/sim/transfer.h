// A long transfer by one connection over one link: what loss, reordering and
// outages leave of its goodput (docs/reliability.md).
#ifndef TRANSPORT_SIM_TRANSFER_H_
#define TRANSPORT_SIM_TRANSFER_H_

#include <cstdint>
#include <string>

#include "transport/base/counters.h"
#include "transport/base/types.h"
#include "transport/base/work.h"
#include "transport/sim/network.h"

namespace sim {

struct TransferOptions {
  transport::SendOpcode opcode = transport::SendOpcode::kRdmaWrite;
  uint64_t seed = 1;
  uint32_t path_mtu = 1024;
  uint32_t messages = 64;
  uint32_t message_bytes = 1 << 20;
  uint32_t depth = 4;  // messages outstanding
  // The way the data goes; the other one has its rate, delay and overtaking
  // only, and loses so many packets in a million.
  LinkProfile link;
  uint32_t other_loss = 0;
  // The peer drops what comes beyond a gap, as hardware does that goes back N.
  bool peer_keeps_nothing = false;
  bool batches = false;  // NodeProfile::batches, of both
  // Nothing passes, in either direction, for so long. 0: never.
  Time outage_start = 0;
  Time outage = 0;
};

struct TransferResult {
  bool done = false;   // every message completed, with success and its bytes
  std::string failed;  // why not
  uint64_t bytes = 0;  // of messages that completed
  Time elapsed = 0;    // from the first post to the last completion
  Time longest_pause = 0;       // between two completions
  uint64_t data_packets = 0;    // sent, with payload
  uint64_t needed_packets = 0;  // had none been sent twice
  uint64_t lost = 0;            // of those sent
  uint64_t mean_in_flight = 0;  // bytes, as the path counts them
  transport::QpCounters requester;
  transport::QpCounters responder;

  double goodput() const;  // payload, bytes per us
  // Of the packets that were needed, how many were sent again though none of
  // them was lost.
  double spurious() const;
};

// 10 Gb/s and a round trip of 50 us, nothing lost, however long the queue.
LinkProfile TransferLink();

TransferResult RunTransfer(const TransferOptions& options);

}  // namespace sim

#endif  // TRANSPORT_SIM_TRANSFER_H_
