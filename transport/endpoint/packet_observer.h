// Sees every packet that an endpoint takes in or gives out: what traces,
// captures and flight recorders hang on.
#ifndef TRANSPORT_ENDPOINT_PACKET_OBSERVER_H_
#define TRANSPORT_ENDPOINT_PACKET_OBSERVER_H_

#include <cstdint>
#include <span>

#include "transport/base/counters.h"
#include "transport/base/types.h"
#include "wire/address.h"

namespace transport {

enum class Direction : uint8_t { kReceived, kTransmitted };

struct ObservedPacket {
  Direction direction = Direction::kReceived;
  Time time = 0;                   // the endpoint's
  std::span<const uint8_t> bytes;  // UDP payload: BTH to ICRC
  wire::IpAddress source;
  wire::IpAddress destination;
  uint16_t source_port = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  // Place in its burst, which is its IP ID, or among the segments that GRO
  // merged, which is the first guess at it.
  uint16_t segment_index = 0;
  // What became of it. A transmitted one is kDelivered, to the port: that may
  // still drop it.
  Disposition disposition = Disposition::kDelivered;
};

class PacketObserver {
 public:
  virtual ~PacketObserver() = default;
  // Received packets are seen after they have been dealt with, in the order in
  // which that was done; transmitted ones when their burst is complete, in the
  // order of the wire. Called with the lane's lock held: it must not block, nor
  // call the endpoint.
  virtual void OnPacket(const ObservedPacket& packet) = 0;
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_PACKET_OBSERVER_H_
