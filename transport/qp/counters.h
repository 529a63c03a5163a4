#ifndef TRANSPORT_QP_COUNTERS_H_
#define TRANSPORT_QP_COUNTERS_H_

#include <cstdint>

namespace transport {

// Counters of one queue pair; packets unless said otherwise. Names are the
// ones that `rxe-user stat` shows.
struct QpCounters {
  uint64_t tx_packets = 0;
  uint64_t tx_bytes = 0;  // BTH to ICRC
  uint64_t rx_packets = 0;
  uint64_t rx_bytes = 0;
  // These are rare, and wrap around.
  uint32_t retransmitted = 0;
  uint32_t timeouts = 0;
  uint32_t probes = 0;
  uint32_t naks_sent = 0;
  uint32_t naks_received = 0;
  uint32_t rnr_naks_sent = 0;
  uint32_t rnr_naks_received = 0;
  uint32_t duplicates = 0;
  uint32_t out_of_order = 0;
  uint32_t dropped_source = 0;  // not from the connected peer
  uint32_t dropped_state = 0;   // the state takes no packets
  uint32_t dropped_type = 0;    // opcode of another transport
  uint32_t dropped_pkey = 0;
  uint32_t dropped_window = 0;   // PSN neither expected nor duplicate, or a
                                 // duplicate that can no longer be answered
  uint32_t dropped_message = 0;  // UC: of a message that is not delivered
  uint32_t cnps_sent = 0;
  uint32_t cnps_received = 0;
};

}  // namespace transport

#endif  // TRANSPORT_QP_COUNTERS_H_
