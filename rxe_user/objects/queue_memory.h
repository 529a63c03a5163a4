// Where the rings of queues are: memory of the process, or what the allocator
// of a parent domain gives (ibv_alloc_parent_domain(3)).
#ifndef RXE_USER_OBJECTS_QUEUE_MEMORY_H_
#define RXE_USER_OBJECTS_QUEUE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace rxe_user {

// What allocators are told that memory is for, as their resource type.
enum class QueueKind : uint64_t {
  kQueuePair = 1,
  kCompletionQueue = 2,
  kSharedReceiveQueue = 3,
};

// An application's. Called by the thread that makes, resizes or destroys the
// object, without any lock of ours; a device that is closed destroys its queue
// pairs.
class QueueAllocator {
 public:
  virtual ~QueueAllocator() = default;
  // `size` bytes on a boundary of `alignment`. Null: there are none; nullopt:
  // by our own means.
  virtual std::optional<void*> Allocate(size_t size, size_t alignment,
                                        QueueKind kind) = 0;
  virtual void Free(void* memory, QueueKind kind) = 0;
};

struct QueueMemoryFree {
  QueueAllocator* allocator = nullptr;  // null: the process's memory
  QueueKind kind = QueueKind::kQueuePair;

  void operator()(std::byte* memory) const;
};
// Trivial objects are made in it by assigning them.
using QueueMemory = std::unique_ptr<std::byte[], QueueMemoryFree>;

// What `allocator` gives; null when there is no allocator or it leaves the
// matter to us; nullopt when it has none, or none on a boundary.
std::optional<QueueMemory> AllocateByApplication(QueueAllocator* allocator,
                                                 size_t size, QueueKind kind);

// The same, or else zeroed memory of the process, of which untouched pages cost
// nothing. Null: there is none.
QueueMemory AllocateQueueMemory(QueueAllocator* allocator, size_t size,
                                QueueKind kind);

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_QUEUE_MEMORY_H_
