// What the dynamically connected service needs from the lane that it runs in.
#ifndef TRANSPORT_DC_DC_LANE_H_
#define TRANSPORT_DC_DC_LANE_H_

#include <cstdint>
#include <optional>

#include "transport/base/types.h"
#include "transport/endpoint/datagram.h"

namespace transport {

// Called with the lane's lock held.
class DcLane {
 public:
  virtual ~DcLane() = default;
  // A queue pair number of the lane, for a target's connection. Packets to it
  // reach this lane. Empty: there is none.
  virtual std::optional<uint32_t> AllocateNumber() = 0;
  virtual void ReleaseNumber(uint32_t number) = 0;
  // The UDP source port of the responses of the connection that `connect`
  // opens, from the address that it was sent to. `target`: of the DCT.
  // Initiators of this lane that send to the lane of `connect` should have the
  // same port: their requests and ACKs then share bursts. Empty: there is none.
  virtual std::optional<uint16_t> SourcePort(const AddressVector& target,
                                             const Received& connect) = 0;
  // Unpredictable.
  virtual uint32_t Random() = 0;
};

}  // namespace transport

#endif  // TRANSPORT_DC_DC_LANE_H_
