// Memory without checks: keys are ignored and addresses are pointers.
#ifndef TRANSPORT_TESTING_OPEN_MEMORY_H_
#define TRANSPORT_TESTING_OPEN_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <cstring>

#include "transport/base/memory.h"

namespace transport {

// Thread: any.
class OpenMemory : public Memory {
 public:
  // For the thread sanitizer, which does not see the ordering by a socket:
  // every copy is ordered after each earlier Order and before each later one.
  static void Order() {
    static std::atomic<uint64_t> order{0};
    order.fetch_add(1, std::memory_order_acq_rel);
  }

  MemoryStatus Translate(const MemoryAccess& access, SpanList* out) override {
    out->push_back({reinterpret_cast<uint8_t*>(access.va), access.length});
    return MemoryStatus::kOk;
  }
  bool CopyFrom(uint8_t* to, const uint8_t* from, size_t bytes,
                bool /*more*/) override {
    Order();
    std::memcpy(to, from, bytes);
    Order();
    return true;
  }
  bool CopyTo(uint8_t* to, const uint8_t* from, size_t bytes,
              bool /*more*/) override {
    Order();
    std::memcpy(to, from, bytes);
    Order();
    return true;
  }
  bool CompareSwap(uint8_t* word, uint64_t compare, uint64_t swap,
                   uint64_t* original) override {
    *original = compare;
    Word(word).compare_exchange_strong(*original, swap);
    return true;
  }
  bool FetchAdd(uint8_t* word, uint64_t add, uint64_t* original) override {
    *original = Word(word).fetch_add(add);
    return true;
  }
  MemoryStatus Invalidate(const Invalidation& /*invalidation*/) override {
    return MemoryStatus::kBadKey;
  }

 private:
  static std::atomic_ref<uint64_t> Word(uint8_t* word) {
    return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(word));
  }
};

}  // namespace transport

#endif  // TRANSPORT_TESTING_OPEN_MEMORY_H_
