// What a recording knows about paths and congestion notifications. No I/O, no
// clock, no lock.
#ifndef RXE_USER_OBSERVE_TRACE_PATHS_H_
#define RXE_USER_OBSERVE_TRACE_PATHS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "rxe_user/observe/trace_events.h"
#include "transport/endpoint/packet_observer.h"
#include "wire/address.h"

namespace rxe_user::trace {

class TracePaths {
 public:
  struct Events {
    std::optional<CnpEvent> cnp;
    std::optional<PathEvent> path;
  };
  // The events that follow from a packet, with cause and queue pair but without
  // id and time. `header`: that of the packet's event. A path has an event when
  // it has changed enough since its last one: the window or the rate by more
  // than an eighth, the round trip by more than a half.
  Events OnPacket(const transport::ObservedPacket& packet,
                  const EventHeader& header);

 private:
  // The limit of remembered peers and queue pairs; beyond it all are forgotten.
  static constexpr size_t kMax = 1 << 14;

  void OnMarked(const EventHeader& header);
  std::optional<CnpEvent> OnCnp(const transport::ObservedPacket& packet,
                                const EventHeader& header);
  std::optional<PathEvent> OnPath(const transport::ObservedPacket& packet,
                                  const EventHeader& header);

  struct QueuePair {
    // Ids of packets with congestion experienced since the last CNP, or 0: the
    // last such packet, and the first one for which a CNP was due.
    uint64_t marked = 0;
    uint64_t cause = 0;
    int64_t cause_time = 0;  // of the last cause
    uint64_t cnps_ignored = 0;
  };
  std::unordered_map<uint32_t, QueuePair> queue_pairs_;
  // The last event of each path, by the peer.
  std::unordered_map<wire::IpAddress, PathEvent> paths_;
};

}  // namespace rxe_user::trace

#endif  // RXE_USER_OBSERVE_TRACE_PATHS_H_
