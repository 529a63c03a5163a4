// Clocks in nanoseconds.
#ifndef RXE_USER_BASE_CLOCK_H_
#define RXE_USER_BASE_CLOCK_H_

#include <time.h>

#include <cstdint>

namespace rxe_user {

// The time of a clock (clock_gettime(2)), ns.
inline int64_t ClockNs(clockid_t clock) {
  timespec t;
  ::clock_gettime(clock, &t);
  return t.tv_sec * int64_t{1'000'000'000} + t.tv_nsec;
}

inline int64_t MonotonicNs() { return ClockNs(CLOCK_MONOTONIC); }

}  // namespace rxe_user

#endif  // RXE_USER_BASE_CLOCK_H_
