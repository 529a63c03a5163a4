// The memory regions of one device, by key: what the transport reaches
// application memory through.
#ifndef RXE_USER_MEMORY_REGION_TABLE_H_
#define RXE_USER_MEMORY_REGION_TABLE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <shared_mutex>
#include <unordered_map>

#include "transport/base/memory.h"
#include "transport/base/types.h"

namespace rxe_user {

// Where the bytes of a null region (ibv_alloc_null_mr(3)) seem to be: no
// application has memory in the upper half of the address space.
inline constexpr uint64_t kNullMemory = uint64_t{1} << 63;

// Region::binding of a window: it is reached by remote keys only.
inline constexpr uint32_t kWindow = uint32_t{1} << 31;

// A registered region. L_Key and R_Key are one number.
struct Region {
  uint32_t key = 0;
  transport::PdId pd = 0;
  uint32_t access = 0;      // transport::Access
  uint8_t* host = nullptr;  // where the bytes are
  uint64_t length = 0;      // bytes
  uint64_t iova = 0;        // the virtual address that `host` goes by
  // 0: whoever has the key and is in the domain. Else kWindow, and the queue
  // pair that alone may use it, if any.
  uint32_t binding = 0;
};

// Thread: any; one lock of its own, the innermost of all. Keys are 32 random
// bits, so a peer can only guess them; the lookup hashes the whole key with a
// per-process seed, so its time says nothing about how near a guess was.
//
// A memory window (IBA vol. 1, 10.6.7) is a name for part of a region: found as
// a region is, by the upper 24 bits of its key, which are random as well; the
// lower 8 change from one binding to the next. Windows of type 1 are for every
// queue pair of the domain and may be bound anew at any time; those of type 2
// are what the specification calls 2B: for the queue pair that bound them, and
// bound again only after they were invalidated.
//
// Every packet asks, mostly for the same few regions, so those found last are
// kept in a small table beside, which is read without the lock: a reader copies
// an entry between two looks at its version.
class RegionTable final : public transport::Memory {
 public:
  // Adds `region` under a new key, which it returns; 0 is never one.
  // `region.key` is ignored. The memory is not looked at.
  uint32_t Add(const Region& region);
  // Replaces what `region.key` means. 0; ENOENT: no such key; EBUSY: a window
  // is bound to it.
  int Replace(const Region& region);
  // Errors as Replace. Uses that had begun go on: whoever gives the memory back
  // waits for the lanes first (Context::WaitForLanes).
  int Remove(uint32_t key);
  // The same, and unbinds its windows.
  void RemoveWithWindows(uint32_t key);
  // False when there is no such key.
  bool Find(uint32_t key, Region* out);

  // A window that is not bound. Returns its key, of which the lower bits mean
  // nothing yet.
  enum class WindowType : uint8_t { k1, k2 };
  uint32_t AddWindow(transport::PdId pd, WindowType type);
  // By any of the keys that it may have.
  void RemoveWindow(uint32_t rkey);
  // The number of a queue pair that is gone may be another's soon: unbinds what
  // was bound to it.
  void ForgetQueuePair(uint32_t qpn);

  // --- transport::Memory. What is copied out of null memory is 0; what is
  // copied there is gone.
  transport::MemoryStatus Translate(const transport::MemoryAccess& access,
                                    transport::SpanList* out) override;
  bool CopyFrom(uint8_t* to, const uint8_t* from, size_t bytes,
                bool more) override;
  bool CopyFromWithIcrc(uint8_t* to, const uint8_t* from, size_t bytes,
                        bool more, uint32_t* icrc) override;
  bool CopyTo(uint8_t* to, const uint8_t* from, size_t bytes,
              bool more) override;
  bool CompareSwap(uint8_t* word, uint64_t compare, uint64_t swap,
                   uint64_t* original) override;
  bool FetchAdd(uint8_t* word, uint64_t add, uint64_t* original) override;
  // kAccessFlushPersistent: by msync(2), which returns when the pages of a
  // mapped file are on their medium.
  transport::MemoryStatus Flush(const transport::MemoryAccess& access,
                                bool whole_region) override;
  // Refused: a window of another domain, or of type 2 that is bound; a region
  // without kAccessMwBind, or, where the window permits writes, without local
  // write; a range outside of it. Of `access`, only what is remote counts, as
  // with hardware: programs pass what they gave the region.
  transport::MemoryStatus Bind(
      const transport::WindowBinding& binding) override;
  // Only windows of type 2 that are bound permit it.
  transport::MemoryStatus Invalidate(uint32_t rkey, transport::PdId pd,
                                     uint32_t qpn) override;

 private:
  // A copy of a region. Written under mutex_: shared, by whoever makes
  // `version` odd first; or exclusively.
  struct alignas(64) Recent {
    std::atomic<uint32_t> version = 0;  // odd while it changes
    std::atomic<uint32_t> key = 0;      // 0: empty
    std::atomic<uint32_t> access = 0;
    std::atomic<transport::PdId> pd = 0;
    std::atomic<uint8_t*> host = nullptr;
    std::atomic<uint64_t> length = 0;
    std::atomic<uint64_t> iova = 0;
    std::atomic<uint32_t> binding = 0;

    bool Read(uint32_t wanted, Region* out) const;
    void Write(const Region& region);
  };
  Recent& RecentOf(uint32_t key) { return recent_[key % recent_.size()]; }
  // Whether the key permits it; fills `*out` if it does.
  transport::MemoryStatus Check(const transport::MemoryAccess& access,
                                Region* out);
  // The part of a window's key that changes; what is above names it.
  static constexpr uint32_t kKeyBits = 8;
  static uint32_t IdOf(uint32_t key) { return key >> kKeyBits; }

  struct Registered {
    Region region;
    uint32_t windows = 0;  // bound to it
  };
  struct Window {
    WindowType type = WindowType::k1;
    bool bound = false;
    uint32_t region_key = 0;  // while it is bound
    Region region;            // what it names; key and pd always
    // Of type 2: its entry, with its place in windows_, here or in BoundTo.
    std::list<uint32_t> entry;
    std::list<uint32_t>::iterator at;
  };

  // mutex_ held exclusively.
  void Forget(uint32_t key);
  // The windows that are bound to `qpn`, and perhaps to others.
  std::list<uint32_t>& BoundTo(uint32_t qpn) {
    return bound_[qpn % bound_.size()];
  }
  void Unbind(Window* window);

  mutable std::shared_mutex mutex_;
  // Not Abseil's, which are broken after an allocation that has thrown.
  std::unordered_map<uint32_t, Registered> regions_;  // guarded by mutex_
  // By the upper 24 bits of the key, which are no region's. Guarded by mutex_.
  std::unordered_map<uint32_t, Window> windows_;
  // Of type 2, by queue pair: one that goes need not ask all windows. Guarded
  // by mutex_.
  std::array<std::list<uint32_t>, 256> bound_;
  std::array<Recent, 16> recent_;
};

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_REGION_TABLE_H_
