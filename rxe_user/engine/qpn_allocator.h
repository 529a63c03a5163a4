// Queue pair numbers within one slot: sparse, unpredictable, and not reused
// soon (facts of hostile.md).
#ifndef RXE_USER_ENGINE_QPN_ALLOCATOR_H_
#define RXE_USER_ENGINE_QPN_ALLOCATOR_H_

#include <bitset>
#include <cstdint>
#include <deque>
#include <optional>

namespace rxe_user {

// Thread: guarded by its owner.
class QpnAllocator {
 public:
  // The low 16 bits of a number nobody has; never 0 or 1, which are special.
  // Empty when all are taken.
  std::optional<uint16_t> Allocate();
  void Release(uint16_t number);
  // How many have been allocated and not released.
  size_t in_use() const { return taken_count_ - kSpecial - resting_.size(); }

 private:
  // So many released numbers rest, the oldest is usable again first.
  static constexpr size_t kResting = 16384;

  static constexpr size_t kSpecial = 2;  // 0 and 1

  std::bitset<65536> taken_;       // or resting
  size_t taken_count_ = kSpecial;  // with these
  std::deque<uint16_t> resting_;
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_QPN_ALLOCATOR_H_
