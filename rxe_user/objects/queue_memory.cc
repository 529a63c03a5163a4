#include "rxe_user/objects/queue_memory.h"

#include <cstdlib>
#include <utility>

#include "transport/qp/attributes.h"

namespace rxe_user {

void QueueMemoryFree::operator()(std::byte* memory) const {
  if (allocator != nullptr) {
    allocator->Free(memory, kind);
  } else {
    std::free(memory);
  }
}

std::optional<QueueMemory> AllocateByApplication(QueueAllocator* allocator,
                                                 size_t size, QueueKind kind) {
  if (allocator == nullptr) return QueueMemory();
  constexpr size_t kAlignment = transport::kQueueAlignment;
  const auto given = allocator->Allocate(size, kAlignment, kind);
  if (!given.has_value()) return QueueMemory();
  if (*given == nullptr) return std::nullopt;
  QueueMemory memory(static_cast<std::byte*>(*given), {allocator, kind});
  if (reinterpret_cast<uintptr_t>(*given) % kAlignment != 0) {
    return std::nullopt;
  }
  return memory;
}

QueueMemory AllocateQueueMemory(QueueAllocator* allocator, size_t size,
                                QueueKind kind) {
  std::optional<QueueMemory> memory =
      AllocateByApplication(allocator, size, kind);
  if (!memory.has_value()) return nullptr;
  if (*memory != nullptr) return *std::move(memory);
  return QueueMemory(static_cast<std::byte*>(std::calloc(1, size)), {});
}

}  // namespace rxe_user
