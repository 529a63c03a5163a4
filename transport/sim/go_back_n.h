// The baseline of transfers (docs/reliability.md): plain go-back-N.
//
// A model without packets. The sender has a fixed window. The receiver accepts
// packets in order, drops others, acknowledges each packet and reports a gap
// once; the sender then goes back to it. A READ is the same, with the requester
// as the receiver. This is the best case of go-back-N: losses mislead no
// congestion control.
#ifndef TRANSPORT_SIM_GO_BACK_N_H_
#define TRANSPORT_SIM_GO_BACK_N_H_

#include <cstdint>

#include "transport/sim/transfer.h"

namespace sim {

struct GoBackNResult {
  Time elapsed = 0;
  uint64_t sent = 0;   // packets
  double goodput = 0;  // payload, bytes per us
};

// Runs the transfer of `options` with `window` bytes of payload in flight.
GoBackNResult RunGoBackN(const TransferOptions& options, uint64_t window);

}  // namespace sim

#endif  // TRANSPORT_SIM_GO_BACK_N_H_
