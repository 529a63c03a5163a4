#include "rxe_user/engine/qpn_allocator.h"

#include "rxe_user/base/random.h"

namespace rxe_user {
namespace {

uint16_t Random16() { return static_cast<uint16_t>(SecureRandom32()); }

}  // namespace

std::optional<uint16_t> QpnAllocator::Allocate() {
  if (taken_count_ == taken_.size()) {
    if (resting_.empty()) return std::nullopt;
    taken_.reset(resting_.front());
    resting_.pop_front();
    --taken_count_;
  }
  for (uint16_t number = Random16();;) {
    if (number > 1 && !taken_.test(number)) {
      taken_.set(number);
      ++taken_count_;
      return number;
    }
    // While the table is less than half full, draw again; else take the next
    // free number.
    number = taken_count_ < taken_.size() / 2
                 ? Random16()
                 : static_cast<uint16_t>(number + 1);
  }
}

void QpnAllocator::Release(uint16_t number) {
  if (number <= 1 || !taken_.test(number)) return;
  resting_.push_back(number);
  if (resting_.size() > kResting) {
    taken_.reset(resting_.front());
    resting_.pop_front();
    --taken_count_;
  }
}

}  // namespace rxe_user
