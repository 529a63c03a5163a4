// The transport's access to application memory. The device implements it over
// its table of registered regions, the simulator over plain arrays.
//
// A key resolves to a *list* of spans: one for a region, several for a memory
// key (MkeyConfiguration).
#ifndef TRANSPORT_BASE_MEMORY_H_
#define TRANSPORT_BASE_MEMORY_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "transport/base/reason.h"
#include "transport/base/types.h"
#include "wire/icrc.h"

namespace transport {

struct Span {
  uint8_t* data = nullptr;
  size_t length = 0;  // bytes
  // Unlikely to be in any cache: prefetching the bytes that are copied next
  // pays (Memory::CopyTo).
  bool cold = false;
};

// The spans of one access. 1.5 KB.
class SpanList {
 public:
  // 16 KiB in pieces of 256 bytes. Bounds the time of one access.
  static constexpr size_t kCapacity = 64;

  SpanList() {}
  SpanList(const SpanList&) = delete;
  SpanList& operator=(const SpanList&) = delete;
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == kCapacity; }
  Span* data() { return spans_; }
  Span* begin() { return spans_; }
  Span* end() { return spans_ + size_; }
  const Span* begin() const { return spans_; }
  const Span* end() const { return spans_ + size_; }
  Span& operator[](size_t index) { return spans_[index]; }
  Span& back() { return spans_[size_ - 1]; }
  void push_back(const Span& span) {  // unless full
    assert(!full());
    std::construct_at(&spans_[size_++], span);
  }
  void clear() { size_ = 0; }
  void resize(size_t size) { size_ = size; }  // to fewer

 private:
  size_t size_ = 0;
  union {  // not initialized
    Span spans_[kCapacity];
  };
};

enum class MemoryStatus : uint8_t {
  kOk,
  kBadKey,       // no such key
  kWrongDomain,  // of another protection domain
  // Of a window that is not bound, or is bound to another queue pair, or is
  // used as L_Key.
  kWrongWindow,
  kOutOfRange,  // [va, va + length) is not inside the region
  kNoRight,     // the region does not grant `access`
  kFault,       // registered, but the pages are gone (unmapped, protected)
};

// Why a work request fails for `status`, which is not kOk: in its own buffers
// (LocalReason), in a bind or an invalidate (BindReason), or in the peer's
// request (RemoteReason).
constexpr Reason ReasonAfter(Reason first, MemoryStatus status) {
  return static_cast<Reason>(static_cast<int>(first) +
                             static_cast<int>(status) -
                             static_cast<int>(MemoryStatus::kBadKey));
}
constexpr Reason LocalReason(MemoryStatus status) {
  return ReasonAfter(Reason::kLocalKey, status);
}
constexpr Reason BindReason(MemoryStatus status) {
  return ReasonAfter(Reason::kBindKey, status);
}
constexpr Reason RemoteReason(MemoryStatus status) {
  return ReasonAfter(Reason::kRemoteKey, status);
}
static_assert(LocalReason(MemoryStatus::kFault) == Reason::kLocalFault &&
              BindReason(MemoryStatus::kNoRight) == Reason::kBindRight &&
              RemoteReason(MemoryStatus::kFault) == Reason::kRemoteFault);

// One use of a key. Key checks happen on every use (docs/design/memory.md).
struct MemoryAccess {
  uint32_t key = 0;
  bool remote = false;  // `key` is an R_Key from a peer
  PdId pd = 0;          // of the queue pair, or of the SRQ for its receives
  uint32_t qpn = 0;     // queue pair that uses the key (type 2B windows)
  uint32_t access = 0;  // required Access bits; 0 = local read
  uint64_t va = 0;
  uint64_t length = 0;  // bytes; never 0 (zero-length accesses check no key)
};

// Binds a memory window (IBA vol. 1, 10.6.7): part of a region, with its own
// rights and its own key.
struct WindowBinding {
  // The upper 24 bits name the window; the whole becomes its new key.
  uint32_t rkey = 0;
  uint32_t region_key = 0;  // L_Key
  PdId pd = 0;              // of the queue pair
  uint32_t qpn = 0;         // of the queue pair
  uint32_t access = 0;      // Access, kAccessZeroBased included
  uint64_t va = 0;          // in the region
  uint64_t length = 0;      // bytes; 0: unbind a type 1 window
};

// One piece of an interleaved layout: in repetition r, `bytes` bytes at
// `addr` + r * (`bytes` + `skip`), in the region of `lkey`. The sum of `bytes`
// and `skip` is at most 65,535, as with hardware.
struct InterleavedPiece {
  uint64_t addr = 0;
  uint16_t bytes = 0;
  uint16_t skip = 0;
  uint32_t lkey = 0;
};

// Gives a memory key (mkey) a new meaning: mlx5dv_wr_post(3),
// mlx5dv_wr_mkey_configure. Absent members leave the key's values unchanged.
struct MkeyConfiguration {
  enum class Layout : uint8_t { kKeep, kList, kInterleaved };

  // The upper 24 bits name the memory key; the whole becomes its new key.
  uint32_t key = 0;
  PdId pd = 0;                     // of the queue pair
  std::optional<uint32_t> access;  // Access
  Layout layout = Layout::kKeep;
  std::span<const Sge> list = {};  // kList: the bytes in order
  // kInterleaved: all pieces of repetition 0, then those of repetition 1, ...
  std::span<const InterleavedPiece> interleaved = {};
  uint32_t repeat_count = 0;  // kInterleaved: not 0

  // What happens to the bytes between the layout and the transport (block
  // signatures). `transform` has a format of the implementation of Memory.
  enum class Transform : uint8_t { kKeep, kNone, kSet };
  Transform change = Transform::kKeep;
  std::span<const uint8_t> transform = {};  // kSet
};

// Ends the validity of a key (LOCAL_INV, SEND with invalidate).
struct Invalidation {
  uint32_t rkey = 0;
  PdId pd = 0;          // of the queue pair
  uint32_t qpn = 0;     // of the queue pair
  bool remote = false;  // requested by the peer
};

// Thread: called with the lane's lock held; implementations guard what lanes
// share (IBA vol. 1, 10.6 memory management; 9.7.4.1.x R_Key checks).
class Memory {
 public:
  virtual ~Memory() = default;

  // Checks `access` and appends its bytes, in order, to `*out`, which has space
  // for at least one span. Of a memory key with many pieces, it may check and
  // append only the first bytes, at least one: the caller translates the rest
  // again. (A region is always one span.)
  virtual MemoryStatus Translate(const MemoryAccess& access, SpanList* out) = 0;

  // Copy out of and into application memory. False when a page is missing or
  // protected; then any part may have been copied. CopyTo stores in ascending
  // order and the last bytes with release semantics, since applications poll
  // them. `more`: hint that the next copy continues at the adjacent address,
  // with the same size, and that the memory there is cold. It need not exist.
  virtual bool CopyFrom(uint8_t* to, const uint8_t* from, size_t bytes,
                        bool more) = 0;
  virtual bool CopyTo(uint8_t* to, const uint8_t* from, size_t bytes,
                      bool more) = 0;
  // CopyFrom into memory that this thread does not read, but another process:
  // the packets of a burst without ICRCs. The stores may be non-temporal; the
  // port orders them before it publishes the burst.
  virtual bool StreamFrom(uint8_t* to, const uint8_t* from, size_t bytes,
                          bool more) {
    return CopyFrom(to, from, bytes, more);
  }

  // Copies within application memory. False as above. Overridden where one copy
  // does it.
  virtual bool Copy(uint8_t* to, const uint8_t* from, size_t bytes);

  // CopyFrom that also extends `*icrc` (wire::IcrcFlow::Extend) over the bytes
  // copied to `to`; undefined on false. Overridden where one pass can do both.
  virtual bool CopyFromWithIcrc(uint8_t* to, const uint8_t* from, size_t bytes,
                                bool more, uint32_t* icrc) {
    if (!CopyFrom(to, from, bytes, more)) return false;
    *icrc = wire::IcrcFlow::Extend(*icrc, {to, bytes});
    return true;
  }

  // CPU atomics on an 8-byte aligned word in host byte order; `*original` gets
  // the previous value. False on a fault.
  virtual bool CompareSwap(uint8_t* word, uint64_t compare, uint64_t swap,
                           uint64_t* original) = 0;
  virtual bool FetchAdd(uint8_t* word, uint64_t add, uint64_t* original) = 0;

  // FLUSH (annex A19). On return the bytes of `access` (with `whole_region`, of
  // their region) are globally visible, and with kAccessFlushPersistent on
  // their medium. `access.length` may be 0. kFault: the medium failed, or the
  // memory is gone. Blocks for as long as the medium takes.
  virtual MemoryStatus Flush(const MemoryAccess& /*access*/,
                             bool /*whole_region*/) {
    return MemoryStatus::kNoRight;
  }

  // Rules: IBA vol. 1, 10.6.7.2; see RegionTable.
  virtual MemoryStatus Bind(const WindowBinding& /*binding*/) {
    return MemoryStatus::kNoRight;
  }

  // Rules: mlx5dv_wr_post(3); see RegionTable.
  virtual MemoryStatus ConfigureMkey(
      const MkeyConfiguration& /*configuration*/) {
    return MemoryStatus::kNoRight;
  }

  // Of a memory key whose bytes are transformed: whether they must be stored in
  // order, and whether an error was found in them that the application does not
  // know of yet.
  virtual bool NeedsOrder(uint32_t /*key*/) { return false; }
  virtual bool HasDataError(uint32_t /*key*/) { return false; }

  // Invalidates a window or memory key. The key must belong to the domain and
  // permit invalidation. Refuses a window that is bound to another queue pair.
  virtual MemoryStatus Invalidate(const Invalidation& invalidation) = 0;
};

}  // namespace transport

#endif  // TRANSPORT_BASE_MEMORY_H_
