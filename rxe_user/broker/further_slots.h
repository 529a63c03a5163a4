// The further slots of a process (Slot::Extend).
#ifndef RXE_USER_BROKER_FURTHER_SLOTS_H_
#define RXE_USER_BROKER_FURTHER_SLOTS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rxe_user/broker/protocol.h"

namespace rxe_user::broker {

// Thread: Add one at a time; the others any, also meanwhile.
class FurtherSlots {
 public:
  bool full() const { return size() == numbers_.size(); }
  // Must not be full.
  void Add(uint16_t number) {
    const size_t size = size_.load(std::memory_order_relaxed);
    numbers_[size].store(number, std::memory_order_relaxed);
    size_.store(size + 1, std::memory_order_release);
  }
  size_t size() const { return size_.load(std::memory_order_acquire); }
  uint16_t operator[](size_t i) const {
    return numbers_[i].load(std::memory_order_relaxed);
  }
  bool Has(uint16_t number) const {
    for (size_t i = 0, n = size(); i < n; ++i) {
      if ((*this)[i] == number) return true;
    }
    return false;
  }

 private:
  std::array<std::atomic<uint16_t>, Extend::kMax> numbers_{};
  std::atomic<size_t> size_ = 0;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_FURTHER_SLOTS_H_
