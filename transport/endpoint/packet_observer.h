// Observes every packet that an endpoint receives or transmits: for traces,
// captures and flight recorders.
#ifndef TRANSPORT_ENDPOINT_PACKET_OBSERVER_H_
#define TRANSPORT_ENDPOINT_PACKET_OBSERVER_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "transport/base/counters.h"
#include "transport/base/types.h"
#include "wire/address.h"

namespace transport {

enum class Direction : uint8_t { kReceived, kTransmitted };

// A fault on command (transport/faults) that hit a packet.
struct ObservedFault {
  uint32_t rule = 0;   // its number, from 1
  uint8_t action = 0;  // transport::faults::Action
  bool dropped = false;
  // Another packet was hit, and this is a consequence.
  bool is_consequence = false;
  Time delay = 0;
  uint64_t held = 0;      // what OnHeld returned; 0: it was not held
  std::string_view text;  // of the rule; lives as long as the process
};

// The path of a connected queue pair (transport/congestion/path.h), when its
// packet is processed or sent.
struct ObservedPath {
  uint64_t window = 0;     // bytes
  uint64_t in_flight = 0;  // bytes
  uint64_t rate = 0;       // of READ responses, bytes per second; 0: no limit
  Time round_trip = 0;     // smoothed, ns; 0: none measured
  // For a received CNP: the number of CNPs that the queue pair has ignored so
  // far.
  uint32_t cnps_ignored = 0;
};

struct ObservedPacket {
  Direction direction = Direction::kReceived;
  Time time = 0;  // the endpoint's
  // Received: when the kernel had it, ns since 1970; 0: not known.
  int64_t kernel_time = 0;
  std::span<const uint8_t> bytes;  // UDP payload: BTH to ICRC
  uint32_t qpn = 0;  // transmitted: the local queue pair; received: 0
  wire::IpAddress source;
  wire::IpAddress destination;
  uint16_t source_port = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  // Transmitted: index in its burst, which is its IP ID. Received: index in its
  // GRO batch, the first guess at its IP ID.
  uint16_t segment_index = 0;
  // The outcome. kDelivered for a transmitted packet, which the port may still
  // drop.
  Disposition disposition = Disposition::kDelivered;
  // Null: there is none.
  const ObservedPath* path = nullptr;
  // Null: none. A packet that a fault dropped was not processed, or not sent.
  const ObservedFault* fault = nullptr;
};

class PacketObserver {
 public:
  virtual ~PacketObserver() = default;
  // Received packets are shown after processing, in processing order;
  // transmitted ones when their burst is complete, in wire order. Called with
  // the lane's lock held: must not block or call the endpoint.
  virtual void OnPacket(const ObservedPacket& packet) = 0;
  // A fault holds a received packet back. OnPacket follows if it is delivered
  // in the end, with the result of this call in its fault. The lock is held.
  virtual uint64_t OnHeld(const ObservedPacket& /*packet*/) { return 0; }
  // The receive socket has dropped packets: its buffer was full. The lock is
  // held.
  virtual void OnOverflow(uint64_t /*packets*/) {}
  // Whether it uses ObservedPacket::kernel_time, and compares packets with
  // those of the other end: bursts then have hop marks (Burst). Asked once.
  virtual bool WantsKernelTime() const { return false; }
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_PACKET_OBSERVER_H_
