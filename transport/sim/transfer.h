// A long transfer over one connection and one link: goodput under loss,
// reordering and outages (docs/reliability.md).
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
  // The direction of the data. The other one has the same rate, delay and
  // `overtake`, and a loss of `other_loss` parts per million.
  LinkProfile link;
  uint32_t other_loss = 0;
  // The peer drops packets after a gap, like go-back-N hardware.
  bool peer_keeps_nothing = false;
  bool batches = false;  // NodeProfile::batches of both nodes
  // Nothing passes in either direction during the outage. 0: never.
  Time outage_start = 0;
  Time outage = 0;
};

struct TransferResult {
  bool done = false;            // every message completed with the right bytes
  std::string failed;           // the reason if not
  uint64_t bytes = 0;           // of messages that completed
  Time elapsed = 0;             // from the first post to the last completion
  Time longest_pause = 0;       // between two completions
  uint64_t data_packets = 0;    // sent packets with payload
  uint64_t needed_packets = 0;  // without retransmissions
  uint64_t lost = 0;            // of the sent packets
  uint64_t mean_in_flight = 0;  // bytes as Path counts them
  transport::QpCounters requester;
  transport::QpCounters responder;

  double goodput() const;  // payload, bytes per us
  // Unnecessary retransmissions, as a fraction of the needed packets.
  double spurious() const;
};

// 10 Gb/s, a round trip of 50 us, no loss, unlimited queue.
LinkProfile TransferLink();

TransferResult RunTransfer(const TransferOptions& options);

}  // namespace sim

#endif  // TRANSPORT_SIM_TRANSFER_H_
