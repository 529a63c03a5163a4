// A set of an engine's lanes (docs/design/progress.md, "Lanes").
#ifndef RXE_USER_BASE_LANE_SET_H_
#define RXE_USER_BASE_LANE_SET_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rxe_user {

// Each lane takes one of the host's 4,000 slots.
inline constexpr int kMaxLanes = 16;
inline constexpr int kNoLane = -1;

// Bit i: lane i.
using LaneSet = uint32_t;

constexpr LaneSet OnlyLane(int lane) { return LaneSet{1} << lane; }

// The lanes used by an object's users: the queue pairs of a completion queue,
// or those of a channel.
class LaneUse {
 public:
  // Thread: any.
  LaneSet lanes() const { return lanes_.load(std::memory_order_relaxed); }

  // A user in `lane` is added or removed. Guarded by the owner's lock.
  void Add(int lane) {
    if (users_[static_cast<size_t>(lane)]++ == 0) Toggle(lane);
  }
  void Remove(int lane) {
    if (--users_[static_cast<size_t>(lane)] == 0) Toggle(lane);
  }

 private:
  void Toggle(int lane) {
    lanes_.store(lanes() ^ OnlyLane(lane), std::memory_order_relaxed);
  }

  std::array<uint32_t, kMaxLanes> users_{};
  std::atomic<LaneSet> lanes_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_BASE_LANE_SET_H_
