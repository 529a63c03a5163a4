// The state of an Endpoint.
#ifndef TRANSPORT_ENDPOINT_ENDPOINT_IMPL_H_
#define TRANSPORT_ENDPOINT_ENDPOINT_IMPL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/endpoint/endpoint.h"
#include "transport/endpoint/endpoint_link.h"
#include "transport/endpoint/multicast_groups.h"
#include "transport/endpoint/packet_arena.h"
#include "transport/endpoint/transmit_scheduler.h"

namespace transport {

struct Endpoint::Impl {
  // Acts on a queue pair's interests. `window_left`: it did not use all of its
  // path's window in its turn, so the next waiting one may.
  void Apply(EndpointLink* link, Interests want, bool window_left, Time now);
  // Gives the first queue pair that waits for `path` its turn, if the window
  // has space. The next one is woken after that turn. Sets the timer of a
  // pause.
  void WakeWaiting(SharedPath* path, Time now);
  // Takes `link` out of the scheduler until OnRoom: the sink refuses its flow.
  void Hold(EndpointLink* link, Time now);
  size_t TurnBytes(const EndpointLink& link) const;
  // Lets `next` transmit, and acts on its interests.
  void TakeTurn(const TransmitScheduler::Next& next, Time now, Burst* burst);
  // Counts one queue pair less; deletes the path with the last.
  void Leave(SharedPath* path);
  void NoteReceivedData(EndpointLink* link, Time now);
  void RemoveFromRecent(EndpointLink* link);

  // Not Abseil's maps: they break if an allocation throws.
  std::unordered_map<uint32_t, EndpointQp*> queue_pairs;
  // While observed: the queue pair at which a flow was last found.
  uint32_t FindByFlow(const Flow* flow);
  std::unordered_map<const Flow*, uint32_t> numbers_by_flow;
  // Cached lookup, since packets come in batches. Search looks up any other
  // number, and caches what it finds.
  EndpointQp* found_last = nullptr;
  [[gnu::noinline]] EndpointQp* Search(uint32_t qpn);
  std::unordered_map<wire::IpAddress, std::unique_ptr<SharedPath>> paths;
  TransmitScheduler scheduler;
  // While observed: how many packets at the start of the next burst were
  // transmitted by another queue pair than the one with the turn, and the
  // number of that queue pair.
  int answers = 0;
  uint32_t answers_qpn = 0;
  TimerHeap timers;
  // Links whose timers OnTimer is running; null if one was removed meanwhile.
  std::vector<EndpointLink*> due;
  // Links whose flows the sink refuses.
  std::vector<EndpointLink*> held;
  // Has received packets since its last update.
  EndpointQp* to_update = nullptr;
  // Head of the list of links that received data.
  EndpointLink* newest = nullptr;
  PacketArenaPool arena_pool;
  MulticastGroups groups;
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_ENDPOINT_IMPL_H_
