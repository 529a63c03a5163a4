#include "rxe_user/engine/qpn_allocator.h"

#include "rxe_user/base/random.h"

namespace rxe_user {
namespace {

uint16_t RandomNumber() { return NumberOf(SecureRandom32()); }

}  // namespace

std::optional<uint16_t> QpnAllocator::Allocate() {
  if (taken_count_ == taken_.size()) {
    if (released_.empty()) return std::nullopt;
    taken_.reset(released_.front());
    released_.pop_front();
    --taken_count_;
  }
  for (uint16_t number = RandomNumber();;) {
    if (number > 1 && !taken_.test(number)) {
      taken_.set(number);
      ++taken_count_;
      return number;
    }
    // While the table is less than half full, draw again; else take the next
    // free number.
    number = taken_count_ < taken_.size() / 2 ? RandomNumber()
                                              : NumberOf(number + 1u);
  }
}

void QpnAllocator::Release(uint16_t number) {
  if (number <= 1 || !taken_.test(number)) return;
  released_.push_back(number);
  if (released_.size() > kQuarantine) {
    taken_.reset(released_.front());
    released_.pop_front();
    --taken_count_;
  }
}

}  // namespace rxe_user
