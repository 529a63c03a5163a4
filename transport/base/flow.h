// A flow on the wire.
#ifndef TRANSPORT_BASE_FLOW_H_
#define TRANSPORT_BASE_FLOW_H_

#include "transport/base/types.h"
#include "wire/icrc.h"

namespace transport {

// The addresses and ports that every packet of a flow carries, with the part
// of the ICRC that they determine. A queue pair owns one from RTR on.
struct Flow {
  explicit Flow(const AddressVector& av);
  AddressVector av;
  wire::IcrcFlow icrc;
};

}  // namespace transport

#endif  // TRANSPORT_BASE_FLOW_H_
