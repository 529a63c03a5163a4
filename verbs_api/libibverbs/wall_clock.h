// The wall clock of completions: ibv_create_cq_ex(3),
// IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK.
#ifndef VERBS_API_LIBIBVERBS_WALL_CLOCK_H_
#define VERBS_API_LIBIBVERBS_WALL_CLOCK_H_

#include <cstdint>

#include "transport/base/types.h"

namespace verbs_api {

// The wall clock, ns since 1970, at `time` of the device's clock (Lane::Now).
// Completions keep their order and their time differences, unless the wall
// clock is set. Thread: any.
int64_t ToWallClock(transport::Time time);

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_WALL_CLOCK_H_
