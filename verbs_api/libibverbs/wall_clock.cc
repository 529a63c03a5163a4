#include "verbs_api/libibverbs/wall_clock.h"

#include <time.h>

#include <atomic>

#include "rxe_user/engine/lane.h"

namespace verbs_api {
namespace {

// The difference between the wall clock and Lane::Now, in ns, as a range.
struct ClockDistance {
  int64_t min = 0;
  int64_t max = 0;
};
ClockDistance MeasureClocks() {
  timespec wall;
  const transport::Time before = rxe_user::Lane::Now();
  clock_gettime(CLOCK_REALTIME, &wall);
  const transport::Time after = rxe_user::Lane::Now();
  const int64_t now = wall.tv_sec * transport::kSecond + wall.tv_nsec;
  return {now - after, now - before};
}

// Repeats until the range is so narrow that its middle is right to kAccuracy,
// unless threads are always preempted between reading the two clocks.
constexpr int64_t kAccuracy = transport::kMicrosecond;
int64_t MeasureClocksWell() {
  ClockDistance best = MeasureClocks();
  for (int i = 0; i < 100 && best.max - best.min > kAccuracy; ++i) {
    const ClockDistance next = MeasureClocks();
    if (next.max - next.min < best.max - best.min) best = next;
  }
  return best.min + (best.max - best.min) / 2;
}

}  // namespace

// The distance changes only when the wall clock is set, but two clocks cannot
// be read at the same instant. The known distance is kept as long as
// measurements permit it, so completions keep their order and their time
// differences.
int64_t ToWallClock(transport::Time time) {
  static std::atomic<int64_t> distance{INT64_MIN};
  const ClockDistance now = MeasureClocks();
  int64_t known = distance.load(std::memory_order_relaxed);
  if (known < now.min - kAccuracy || known > now.max + kAccuracy) {
    const int64_t found = MeasureClocksWell();
    // If several threads measure at once, the first result wins.
    if (distance.compare_exchange_strong(known, found)) known = found;
  }
  return time + known;
}

}  // namespace verbs_api
