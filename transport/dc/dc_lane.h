// What the dynamically connected service needs from the lane that it runs in.
#ifndef TRANSPORT_DC_DC_LANE_H_
#define TRANSPORT_DC_DC_LANE_H_

#include <cstdint>
#include <optional>

#include "transport/base/types.h"

namespace transport {

// Called with the lane's lock held.
class DcLane {
 public:
  virtual ~DcLane() = default;
  // A queue pair number of the lane, for a target's connection. Packets to it
  // reach this lane. Empty: there is none.
  virtual std::optional<uint32_t> AllocateNumber() = 0;
  virtual void ReleaseNumber(uint32_t number) = 0;
  // The UDP source port of a connection's responses from `local`: `wanted`,
  // which the peer sends from, if possible. Empty: there is none.
  virtual std::optional<uint16_t> SourcePort(const wire::IpAddress& local,
                                             uint16_t wanted) = 0;
  // Not to be guessed.
  virtual uint32_t Random() = 0;
};

}  // namespace transport

#endif  // TRANSPORT_DC_DC_LANE_H_
