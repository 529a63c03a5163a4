// Counters of a lane's progress. Guarded by the lane's lock.
#ifndef RXE_USER_ENGINE_LANE_COUNTERS_H_
#define RXE_USER_ENGINE_LANE_COUNTERS_H_

#include <cstdint>

#include "transport/base/counters.h"

namespace rxe_user {

struct LaneCounters {
  uint64_t rounds = 0;
  uint64_t helper_wakes = 0;
  uint64_t polling_modes = 0;
  uint64_t missed_arrivals = 0;
  uint64_t strays_forwarded = 0;
  uint64_t posts_batched = 0;
  uint64_t yields = 0;
  uint64_t socket_rests = 0;
};

inline constexpr transport::Counter kLaneCounters[] = {
    {"lane_rounds", transport::CounterUnit::kEvents,
     "rounds of receive, timers and transmit by threads of the application",
     TRANSPORT_COUNTER(LaneCounters, rounds)},
    {"helper_wakes", transport::CounterUnit::kEvents,
     "times that unlocking the lane had to wake the helper thread",
     TRANSPORT_COUNTER(LaneCounters, helper_wakes)},
    {"polling_modes", transport::CounterUnit::kEvents,
     "times that the helper thread left the sockets to a polling application",
     TRANSPORT_COUNTER(LaneCounters, polling_modes)},
    {"missed_arrivals", transport::CounterUnit::kEvents,
     "times that the helper thread found work that a polling application had "
     "left",
     TRANSPORT_COUNTER(LaneCounters, missed_arrivals)},
    {"strays_forwarded", transport::CounterUnit::kPackets,
     "packets of other processes that were passed to the port broker",
     TRANSPORT_COUNTER(LaneCounters, strays_forwarded)},
    {"posts_batched", transport::CounterUnit::kEvents,
     "posts that were batched to share a send",
     TRANSPORT_COUNTER(LaneCounters, posts_batched)},
    {"poll_yields", transport::CounterUnit::kEvents,
     "polls that found nothing for long and yielded their core",
     TRANSPORT_COUNTER(LaneCounters, yields)},
    {"socket_rests", transport::CounterUnit::kEvents,
     "times that sockets were disarmed after waking threads for nothing",
     TRANSPORT_COUNTER(LaneCounters, socket_rests)},
};
static_assert(transport::IsComplete(kLaneCounters, sizeof(LaneCounters)));

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_LANE_COUNTERS_H_
