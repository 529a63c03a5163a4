// Memory for the queues' rings: the process's own, or from a parent domain's
// allocator (ibv_alloc_parent_domain(3)).
#ifndef RXE_USER_OBJECTS_QUEUE_MEMORY_H_
#define RXE_USER_OBJECTS_QUEUE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace rxe_user {

// What the memory is for: the resource type that allocators are given.
enum class QueueKind : uint64_t {
  kQueuePair = 1,
  kCompletionQueue = 2,
  kSharedReceiveQueue = 3,
};

// An application's allocator. Called by the thread that creates, resizes or
// destroys the object, with no lock of ours held. Closing a device destroys its
// queue pairs.
class QueueAllocator {
 public:
  virtual ~QueueAllocator() = default;
  // `size` bytes aligned to `alignment`. Null: no memory. nullopt: use the
  // process's memory.
  virtual std::optional<void*> Allocate(size_t size, size_t alignment,
                                        QueueKind kind) = 0;
  virtual void Free(void* memory, QueueKind kind) = 0;
};

struct QueueMemoryFree {
  QueueAllocator* allocator = nullptr;  // null: the process's memory
  QueueKind kind = QueueKind::kQueuePair;

  void operator()(std::byte* memory) const;
};
// Trivial objects are created in it by assignment.
using QueueMemory = std::unique_ptr<std::byte[], QueueMemoryFree>;

// Memory from `allocator`. Null if there is no allocator or it leaves the
// allocation to us. nullopt if it has no memory, or returns memory that is not
// aligned.
std::optional<QueueMemory> AllocateByApplication(QueueAllocator* allocator,
                                                 size_t size, QueueKind kind);

// Memory from `allocator`, if it provides some; otherwise zeroed memory of the
// process, whose untouched pages cost nothing. Null if there is no memory.
QueueMemory AllocateQueueMemory(QueueAllocator* allocator, size_t size,
                                QueueKind kind);

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_QUEUE_MEMORY_H_
