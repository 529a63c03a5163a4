// What transfers are compared with (docs/reliability.md): a plain go-back-N.
//
// A model, not packets: the sender has a window that nothing shrinks, the
// receiver takes what is in order and drops the rest, acknowledges every packet
// and reports a gap once, and the sender then goes back to it. A READ is the
// same, with the requester as the one who reports. So it is as good as a
// go-back-N gets: there is no congestion control to be misled by losses.
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

// The transfer of `options`, with `window` bytes of payload in flight.
GoBackNResult RunGoBackN(const TransferOptions& options, uint64_t window);

}  // namespace sim

#endif  // TRANSPORT_SIM_GO_BACK_N_H_
