// Handles for objects, checked since the application may pass wrong ones.
#ifndef RXE_USER_OBJECTS_HANDLE_TABLE_H_
#define RXE_USER_OBJECTS_HANDLE_TABLE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace rxe_user {

// Handles of a table, with 0, which is none.
inline constexpr uint32_t kMaxObjects = 1u << 20;

// Objects of one kind by 32-bit handle: an index, and above it a generation, so
// that the handle of a destroyed object is not reused at once. 0 is no handle.
//
// Thread: any. Find takes no lock; the caller keeps the object from being
// removed while it uses it.
template <typename T>
class HandleTable {
 public:
  // 0 if the table is full. May throw bad_alloc.
  uint32_t Add(T* object) {
    std::lock_guard<std::mutex> lock(mutex_);
    uint32_t index;
    // The index that has been unused the longest is reused first, but not soon.
    if (free_ > kReserve || used_ == kMaxObjects - 1) {
      if (free_ == 0) return 0;
      index = first_free_;
      first_free_ = SlotOf(index).next_free;
      --free_;
    } else {
      index = used_;
      std::atomic<Chunk*>& chunk = chunks_[index / kChunk];
      if (chunk.load(std::memory_order_relaxed) == nullptr) {
        owned_.push_back(std::make_unique<Chunk>());
        chunk.store(owned_.back().get(), std::memory_order_release);
      }
      ++used_;
    }
    Slot& slot = SlotOf(index);
    const uint32_t generation = ++slot.generation & (kGenerations - 1);
    // Never 0, and never all ones.
    const uint32_t handle = (generation << kIndexBits) + index + 1;
    slot.handle.store(handle, std::memory_order_relaxed);
    slot.object.store(object, std::memory_order_release);
    return handle;
  }

  // Needs no memory, so destroying an object cannot fail.
  void Remove(uint32_t handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    const uint32_t index = IndexOf(handle);
    SlotOf(index).object.store(nullptr, std::memory_order_release);
    (free_ == 0 ? first_free_ : SlotOf(last_free_).next_free) = index;
    last_free_ = index;
    ++free_;
  }

  // Calls `f` with each object, under the table's lock.
  template <typename F>
  void ForEach(F&& f) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (uint32_t index = 0; index < used_; ++index) {
      T* const object = SlotOf(index).object.load(std::memory_order_acquire);
      if (object != nullptr) f(object);
    }
  }

  // --- fork. The lock is held during it. The child cannot use the parent's
  // objects, since threads that it does not have may hold their locks.
  void LockForFork() { mutex_.lock(); }
  void UnlockInParent() { mutex_.unlock(); }
  void AbandonInChild() {
    for (uint32_t index = 0; index < used_; ++index) {
      Slot& slot = SlotOf(index);
      if (slot.object.exchange(nullptr) != nullptr) slot.inherited = true;
    }
    mutex_.unlock();
  }
  // Whether `handle` belongs to an object of the parent, in a child of fork.
  // Its index is not reused.
  bool IsInherited(uint32_t handle) const {
    if (handle == 0) return false;
    const uint32_t index = IndexOf(handle);
    const Chunk* chunk =
        chunks_[index / kChunk].load(std::memory_order_acquire);
    return chunk != nullptr && (*chunk)[index % kChunk].inherited &&
           (*chunk)[index % kChunk].handle.load() == handle;
  }

  // Null if `handle` is invalid or was removed.
  T* Find(uint32_t handle) const {
    if (handle == 0) return nullptr;
    const uint32_t index = IndexOf(handle);
    const Chunk* chunk =
        chunks_[index / kChunk].load(std::memory_order_acquire);
    if (chunk == nullptr) return nullptr;
    const Slot& slot = (*chunk)[index % kChunk];
    T* object = slot.object.load(std::memory_order_acquire);
    return slot.handle.load(std::memory_order_relaxed) == handle ? object
                                                                 : nullptr;
  }

 private:
  static constexpr uint32_t kIndexBits = 20;
  static constexpr uint32_t kGenerations = 1u << (32 - kIndexBits);
  static constexpr uint32_t kChunk = 1024;
  static constexpr size_t kReserve = 64;
  static_assert(kMaxObjects == 1u << kIndexBits);

  struct Slot {
    std::atomic<T*> object{nullptr};
    std::atomic<uint32_t> handle{0};
    uint32_t generation = 0;  // guarded by mutex_
    uint32_t next_free = 0;   // index of the next free slot; as generation
    bool inherited = false;   // in a child of fork: the parent's
  };
  using Chunk = std::array<Slot, kChunk>;

  static uint32_t IndexOf(uint32_t handle) {
    return (handle - 1) & (kMaxObjects - 1);
  }
  Slot& SlotOf(uint32_t index) {
    return (*chunks_[index / kChunk].load(
        std::memory_order_relaxed))[index % kChunk];
  }

  std::array<std::atomic<Chunk*>, kMaxObjects / kChunk> chunks_{};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Chunk>> owned_;  // guarded by mutex_
  // Guarded by mutex_: a list of indices that were used and are free.
  uint32_t free_ = 0;  // its length
  uint32_t first_free_ = 0;
  uint32_t last_free_ = 0;
  uint32_t used_ = 0;  // indices that were ever used
};

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_HANDLE_TABLE_H_
