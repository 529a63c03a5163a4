#include "transport/testing/scarce_memory.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace transport {

bool (*refuse_allocation)() = nullptr;

int allocations_left = kUnlimited;

bool RefuseWhenNoneIsLeft() {
  if (allocations_left == 0) return true;
  if (allocations_left > 0) --allocations_left;
  return false;
}

}  // namespace transport

namespace {

void* Allocate(size_t bytes) {
  if (transport::refuse_allocation != nullptr &&
      transport::refuse_allocation()) {
    return nullptr;
  }
  return std::malloc(bytes == 0 ? 1 : bytes);
}

}  // namespace

void* operator new(size_t bytes) {
  void* const memory = Allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return Allocate(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
