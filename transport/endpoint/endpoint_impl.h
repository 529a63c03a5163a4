// What an Endpoint is made of.
#ifndef TRANSPORT_ENDPOINT_ENDPOINT_IMPL_H_
#define TRANSPORT_ENDPOINT_ENDPOINT_IMPL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/hash/hash.h"
#include "transport/endpoint/endpoint.h"
#include "transport/endpoint/endpoint_link.h"
#include "transport/endpoint/multicast_groups.h"
#include "transport/endpoint/packet_arena.h"
#include "transport/endpoint/transmit_scheduler.h"

namespace transport {

struct Endpoint::Impl {
  // Enters what a queue pair wants. `window_left`: it has had its turn, and
  // what it has left open of its path's window is for the next one that waits.
  void Apply(EndpointLink* link, const Interests& want, bool window_left,
             Time now);
  // The first one that waits for `path` gets its turn, if there is room. One at
  // a time: the next one follows when that has had its turn. If there is a
  // pause, its timer ends that.
  void WakeWaiting(SharedPath* path, Time now);
  size_t TurnBytes(const EndpointLink& link) const;
  // One queue pair less sends to it: erased with the last.
  void Leave(SharedPath* path);
  void NoteReceivedData(EndpointLink* link, Time now);
  void RemoveFromRecent(EndpointLink* link);

  // No maps of Abseil's, which are broken after an allocation that has thrown.
  std::unordered_map<uint32_t, EndpointQp*> queue_pairs;
  EndpointQp* found_last = nullptr;  // in there; packets come in batches
  std::unordered_map<wire::IpAddress, std::unique_ptr<SharedPath>,
                     absl::Hash<wire::IpAddress>>
      paths;
  TransmitScheduler scheduler;
  TimerHeap timers;
  // Those whose timers OnTimer is running; null where one has gone.
  std::vector<EndpointLink*> due;
  EndpointQp* to_update = nullptr;  // has taken packets since its last update
  EndpointLink* newest = nullptr;   // of those that received data
  PacketArenaPool arena_pool;
  MulticastGroups groups;
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_ENDPOINT_IMPL_H_
