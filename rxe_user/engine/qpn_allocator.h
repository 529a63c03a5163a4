// Queue pair numbers within one slot: sparse and unpredictable, so that they
// are hard to guess, and not reused soon, so that late packets of an old queue
// pair do not reach a new one.
#ifndef RXE_USER_ENGINE_QPN_ALLOCATOR_H_
#define RXE_USER_ENGINE_QPN_ALLOCATOR_H_

#include <bitset>
#include <cstdint>
#include <deque>
#include <optional>

#include "rxe_user/base/qpn.h"

namespace rxe_user {

// Not synchronized; the owner's lock guards it.
class QpnAllocator {
 public:
  // The low 12 bits of a free number, never 0 or 1, which are special. Empty if
  // all numbers are taken.
  std::optional<uint16_t> Allocate();
  void Release(uint16_t number);
  // Numbers that are allocated and not released.
  size_t in_use() const { return taken_count_ - kSpecial - released_.size(); }

  // Released numbers that are not reused yet. The oldest becomes free first.
  static constexpr size_t kQuarantine = 1024;
  // With more in use, fewer than kQuarantine numbers can stay unused.
  static constexpr size_t kMaxWithQuarantine = kNumbersOfSlot - kQuarantine - 2;

 private:
  static constexpr size_t kSpecial = 2;  // 0 and 1

  std::bitset<kNumbersOfSlot> taken_;  // in use, in quarantine or special
  size_t taken_count_ = kSpecial;      // bits set in taken_
  std::deque<uint16_t> released_;
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_QPN_ALLOCATOR_H_
