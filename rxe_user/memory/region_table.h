// The memory regions of one device, by key. The transport accesses application
// memory through it.
#ifndef RXE_USER_MEMORY_REGION_TABLE_H_
#define RXE_USER_MEMORY_REGION_TABLE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <shared_mutex>
#include <unordered_map>

#include "rxe_user/memory/mkey_layout.h"
#include "rxe_user/memory/mkey_signature.h"
#include "transport/base/memory.h"
#include "transport/base/types.h"

namespace rxe_user {

// The `host` of a null region (ibv_alloc_null_mr(3)). No application has memory
// in the upper half of the address space.
inline constexpr uint64_t kNullMemory = uint64_t{1} << 63;

// Addresses from here to kNullMemory name bytes of memory keys with signatures.
// No region reaches here.
inline constexpr uint64_t kSignedMemory = uint64_t{1} << 62;

// Region::binding of a window: the key works only as a remote key.
inline constexpr uint32_t kWindow = uint32_t{1} << 31;

// A registered region. L_Key and R_Key are the same number.
struct Region {
  uint32_t key = 0;
  transport::PdId pd = 0;
  uint32_t access = 0;      // transport::Access
  uint8_t* host = nullptr;  // where the bytes are
  uint64_t length = 0;      // bytes
  uint64_t iova = 0;        // the virtual address of `host`
  // 0: any queue pair in the protection domain may use the key. Otherwise
  // kWindow, plus the number of the only queue pair that may use it, if any.
  uint32_t binding = 0;

  // Unsigned differences are right for every address and size.
  bool Covers(uint64_t address, uint64_t size) const {
    const uint64_t offset = address - iova;
    return address >= iova && offset <= length && size <= length - offset;
  }
};

// Thread: any. It has one lock, the innermost of all. Keys are 32 random bits,
// so a peer can only guess them. A key is looked up as a whole, so the time of
// a lookup does not show how close a guess was.
//
// A memory window (IBA vol. 1, 10.6.7) is a key for a part of a region. It is
// looked up like a region, by the upper 24 bits of its key, which are random;
// the lower 8 bits change with each binding. A type 1 window serves every queue
// pair of the domain and may be bound again at any time. A type 2 window is a
// 2B of the specification: it serves the queue pair that bound it, and must be
// invalidated before it is bound again.
//
// A memory key (mlx5dv_create_mkey(3)) is a key for pieces of several regions
// of its domain, zero-based. The upper 24 bits of its key are random; the lower
// ones are 0 until a work request changes them. Each use looks up the regions
// of the pieces that it touches, by their L_Keys, and checks them: a region
// that is gone fails the access. Memory keys do not nest.
//
// A memory key may have block signatures (mlx5dv_wr_set_mkey_sig_block(3)).
// Addresses in it are then those of its wire form (signature_converter.h). A
// wrong signature does not fail the access: the key keeps the first error until
// it is taken.
//
// Every packet needs a lookup, mostly of the same few regions, so recent
// results are in a small table that is read without the lock: a reader copies
// an entry between two reads of its version.
class RegionTable final : public transport::Memory {
 public:
  // Adds `region` under a new key and returns that; never 0. Ignores
  // `region.key`. Does not access the memory.
  uint32_t Add(const Region& region);
  // Replaces the region of `region.key`. 0; ENOENT: no such key; EBUSY: a
  // window is bound to it.
  int Replace(const Region& region);
  // Errors as Replace. Accesses in progress continue: before the memory is
  // freed, wait for the lanes (Context::WaitForLanes).
  int Remove(uint32_t key);
  // The same, and unbinds its windows.
  void RemoveWithWindows(uint32_t key);
  // False if there is no such key.
  bool Find(uint32_t key, Region* out);

  // Adds an unbound window. Returns its key; the lower bits have no meaning
  // yet.
  enum class WindowType : uint8_t { k1, k2 };
  uint32_t AddWindow(transport::PdId pd, WindowType type);
  // `rkey` may be any of its keys.
  void RemoveWindow(uint32_t rkey);
  // A queue pair is gone and its number may be reused: unbinds its windows.
  void ForgetQueuePair(uint32_t qpn);

  struct MkeyOptions {
    bool update_tag = false;  // a configuration may change the low 8 bits
    bool remote_invalidate = false;  // by SEND with invalidate
    bool signatures = false;         // a configuration may set signatures
  };
  // Adds a memory key that is unusable until it is configured. Returns its key.
  // A configuration has at most `max_entries` entries, and at most
  // transport::kMaxMkeyEntries.
  uint32_t AddMkey(transport::PdId pd, uint16_t max_entries,
                   MkeyOptions options);
  // `key` may be any of its keys. Accesses in progress continue, as with
  // Remove.
  void RemoveMkey(uint32_t key);
  // Whether `key` belongs to a memory key, configured or not.
  bool IsMkey(uint32_t key);
  // Takes the first wrong signature since the last call. `key` may be any of
  // the memory key's keys. EINVAL: it has no signatures.
  int TakeMkeyError(uint32_t key, SignatureError* out);

  // --- transport::Memory. Reads of null memory give 0; writes are dropped.
  transport::MemoryStatus Translate(const transport::MemoryAccess& access,
                                    transport::SpanList* out) override;
  bool CopyFrom(uint8_t* to, const uint8_t* from, size_t bytes,
                bool more) override;
  bool StreamFrom(uint8_t* to, const uint8_t* from, size_t bytes,
                  bool more) override;
  bool CopyFromWithIcrc(uint8_t* to, const uint8_t* from, size_t bytes,
                        bool more, uint32_t* icrc) override;
  bool Copy(uint8_t* to, const uint8_t* from, size_t bytes) override;
  bool CopyTo(uint8_t* to, const uint8_t* from, size_t bytes,
              bool more) override;
  bool CompareSwap(uint8_t* word, uint64_t compare, uint64_t swap,
                   uint64_t* original) override;
  bool FetchAdd(uint8_t* word, uint64_t add, uint64_t* original) override;
  // kAccessFlushPersistent uses msync(2), which returns when the pages of a
  // mapped file are on their medium.
  transport::MemoryStatus Flush(const transport::MemoryAccess& access,
                                bool whole_region) override;
  // Refused: a window of another domain, or a bound one of type 2; a region
  // without kAccessMwBind, or without local write if the window permits writes;
  // a range outside of the region. Only the remote rights in `access` count, as
  // with hardware: programs pass the region's rights.
  transport::MemoryStatus Bind(
      const transport::WindowBinding& binding) override;
  // Any queue pair of the domain may configure a memory key, at any time. The
  // regions need only permit local write, for accesses that write: the memory
  // key has its own remote rights. Refused: another domain, a new key without
  // update_tag, rights outside of kMkeyRights, too many entries, an invalid
  // layout, an entry that is a memory key, signatures that are invalid or that
  // the key was not created for, more than 2^38 bytes with signatures. A
  // refused configuration changes nothing. `transform` is a packed
  // SignatureConfig.
  transport::MemoryStatus ConfigureMkey(
      const transport::MkeyConfiguration& configuration) override;
  // True with signatures: a block is checked by its bytes in order.
  bool NeedsOrder(uint32_t key) override;
  bool HasDataError(uint32_t key) override;
  // Only bound windows of type 2 and configured memory keys can be invalidated.
  // The rights and layout of a memory key stay for its next configuration.
  transport::MemoryStatus Invalidate(
      const transport::Invalidation& invalidation) override;

 private:
  // A copy of a region. Written with mutex_ held: shared, by the thread that
  // makes `version` odd; or exclusively.
  struct alignas(64) Recent {
    std::atomic<uint32_t> version = 0;  // odd during a change
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
  // Whether the key permits the access. If so, fills `*out`.
  transport::MemoryStatus Check(const transport::MemoryAccess& access,
                                Region* out);
  // Why Find does not find the key. Takes the lock: for failures only.
  [[gnu::cold]] transport::MemoryStatus WhyNotFound(uint32_t key);
  // The lower bits of the key of a window or memory key; the upper ones
  // identify it.
  static constexpr uint32_t kKeyBits = 8;
  static constexpr uint32_t kVariantMask = (1u << kKeyBits) - 1;
  static uint32_t IdOf(uint32_t key) { return key >> kKeyBits; }

  struct Registered {
    Region region;
    uint32_t windows = 0;  // windows bound to it
  };
  struct Window {
    WindowType type = WindowType::k1;
    bool bound = false;
    uint32_t region_key = 0;  // while it is bound
    Region region;  // the memory that it names; key and pd are always valid
    // Type 2: its list entry, which is here or in BoundTo, and its position.
    std::list<uint32_t> entry;
    std::list<uint32_t>::iterator at;
  };

  struct Mkey {
    explicit Mkey(uint16_t capacity) : layout(capacity) {}
    uint32_t key = 0;
    transport::PdId pd = 0;
    uint32_t access = 0;  // transport::Access
    MkeyOptions options;
    bool valid = false;  // configured, and not invalidated since
    MkeyLayout layout;
  };
  class SignedPieces;
  // Null if it was not created for signatures. mutex_ held.
  MkeySignature* SignatureOf(const Mkey& mkey) {
    return mkey.options.signatures ? &signatures_.find(IdOf(mkey.key))->second
                                   : nullptr;
  }
  // The same for any of its keys.
  MkeySignature* FindSignature(uint32_t key) {
    const auto found = signatures_.find(IdOf(key));
    return found != signatures_.end() ? &found->second : nullptr;
  }

  // Find, with mutex_ held.
  bool FindLocked(uint32_t key, Region* out);
  // A region or window in the maps. mutex_ held.
  bool Lookup(uint32_t key, Region* out);
  transport::MemoryStatus TranslateMkey(const transport::MemoryAccess& access,
                                        transport::SpanList* out);
  // Appends spans for the first pieces of [va, va + length) of the layout, at
  // least one. Their regions must permit `access`; the key is not checked.
  // mutex_ held.
  transport::MemoryStatus AppendPieces(const Mkey& mkey,
                                       const transport::MemoryAccess& access,
                                       transport::SpanList* out);
  // Translates for a memory key with signatures, which permits the access.
  // mutex_ held.
  transport::MemoryStatus TranslateSigned(const Mkey& mkey,
                                          const SignatureConverter& converter,
                                          const transport::MemoryAccess& access,
                                          transport::SpanList* out);
  // Converts `bytes` bytes at `address`, a result of Translate: to `out`, or
  // from `in`. The other pointer is null.
  bool CopySigned(uint64_t address, uint8_t* out, const uint8_t* in,
                  size_t bytes);
  // The signatures after `configuration`. mutex_ held.
  transport::MemoryStatus ReadTransform(
      const Mkey& mkey, const transport::MkeyConfiguration& configuration,
      uint64_t memory_length, std::optional<SignatureConfig>* out);
  // Copies from or to null memory or signed memory, which are in no region.
  bool CopyFromSpecial(uint8_t* to, const uint8_t* from, size_t bytes);
  bool CopyToSpecial(uint8_t* to, const uint8_t* from, size_t bytes);

  // mutex_ held exclusively.
  void Forget(uint32_t key);
  bool IsTaken(uint32_t id) const;
  static transport::MemoryStatus InvalidateMkey(
      Mkey* mkey, const transport::Invalidation& invalidation);
  // The windows bound to `qpn`, and perhaps to others.
  std::list<uint32_t>& BoundTo(uint32_t qpn) {
    return bound_[qpn % bound_.size()];
  }
  void Unbind(Window* window);

  mutable std::shared_mutex mutex_;
  // Abseil's maps are inconsistent after an allocation that throws.
  std::unordered_map<uint32_t, Registered> regions_;  // guarded by mutex_
  // By the upper 24 bits of the key, which no region has. Guarded by mutex_.
  std::unordered_map<uint32_t, Window> windows_;
  // By the upper 24 bits of the key, which no region or window has. Guarded by
  // mutex_.
  std::unordered_map<uint32_t, Mkey> mkeys_;
  // For keys that were created for signatures. Guarded by mutex_.
  std::unordered_map<uint32_t, MkeySignature> signatures_;
  // Type 2 windows by queue pair, so that ForgetQueuePair need not search all
  // of them. Guarded by mutex_.
  std::array<std::list<uint32_t>, 256> bound_;
  std::array<Recent, 16> recent_;
};

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_REGION_TABLE_H_
