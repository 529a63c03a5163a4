// How the transport reaches application memory. The device implements this
// over its table of registered regions; the simulator over plain arrays.
//
// A key resolves to a *list* of spans, so that interleaved and listed memory
// keys fit the same interface.
#ifndef TRANSPORT_BASE_MEMORY_H_
#define TRANSPORT_BASE_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "transport/base/types.h"
#include "wire/icrc.h"

namespace transport {

struct Span {
  uint8_t* data = nullptr;
  size_t length = 0;  // bytes
  // No cache is likely to hold it: what is copied next is worth fetching in
  // time (Memory::CopyTo).
  bool cold = false;
};
using SpanList = absl::InlinedVector<Span, 4>;

enum class MemoryStatus : uint8_t {
  kOk,
  kBadKey,      // no such key, or of another protection domain
  kOutOfRange,  // [va, va + length) is not inside the region
  kNoRight,     // the region does not grant `access`
  kFault,       // registered, but the pages are gone (unmapped, protected)
};

// One use of a key. Key checks happen on every use (docs/design/memory.md).
struct MemoryAccess {
  uint32_t key = 0;
  bool remote = false;  // `key` is an R_Key that a peer named
  PdId pd = 0;          // of the queue pair (or of the SRQ, for its receives)
  uint32_t qpn = 0;     // queue pair that uses the key: type 2B windows
  uint32_t access = 0;  // Access bits that are needed; 0 = local read
  uint64_t va = 0;
  uint64_t length = 0;  // bytes; never 0 (zero-length accesses check no key)
};

// Binds a memory window (IBA vol. 1, 10.6.7): a part of a region, with rights
// of its own, under a key of its own.
struct WindowBinding {
  // Which window, by its upper 24 bits; its key is this one from now on.
  uint32_t rkey = 0;
  uint32_t region_key = 0;  // L_Key
  PdId pd = 0;              // of the queue pair
  uint32_t qpn = 0;         // of the queue pair
  uint32_t access = 0;      // Access, kAccessZeroBased included
  uint64_t va = 0;          // in the region
  uint64_t length = 0;      // bytes; 0: unbinds a window of type 1
};

// Thread: called with the lane's lock held; implementations guard what lanes
// share (IBA vol. 1, 10.6 memory management; 9.7.4.1.x R_Key checks).
class Memory {
 public:
  virtual ~Memory() = default;

  // Checks `access` and appends the bytes it names, in order, to `*out`.
  virtual MemoryStatus Translate(const MemoryAccess& access, SpanList* out) = 0;

  // Copies out of and into application memory. False when a page is missing or
  // protected; then any part may have been copied. CopyTo stores ascending,
  // the last bytes last with release semantics, since applications poll them.
  // `more`: what is right behind in application memory, as much again, is
  // copied next, and cold: a hint, for which nothing need be there.
  virtual bool CopyFrom(uint8_t* to, const uint8_t* from, size_t bytes,
                        bool more) = 0;
  virtual bool CopyTo(uint8_t* to, const uint8_t* from, size_t bytes,
                      bool more) = 0;

  // CopyFrom that also continues `*icrc` (wire::IcrcFlow::Extend) over the
  // bytes that are in `to` afterwards; on false its value is arbitrary.
  // Overridden where one pass can do both.
  virtual bool CopyFromWithIcrc(uint8_t* to, const uint8_t* from, size_t bytes,
                                bool more, uint32_t* icrc) {
    if (!CopyFrom(to, from, bytes, more)) return false;
    *icrc = wire::IcrcFlow::Extend(*icrc, {to, bytes});
    return true;
  }

  // CPU atomics on an 8-byte aligned word in host byte order; the value before
  // goes to `*original`. False on a fault.
  virtual bool CompareSwap(uint8_t* word, uint64_t compare, uint64_t swap,
                           uint64_t* original) = 0;
  virtual bool FetchAdd(uint8_t* word, uint64_t add, uint64_t* original) = 0;

  // FLUSH (annex A19): before it returns, the bytes that `access` names, or
  // with `whole_region` those of their region, are globally visible, and with
  // kAccessFlushPersistent on their medium. `access.length` may be 0. kFault:
  // the medium failed, or the memory is gone. Blocks as long as the medium
  // takes.
  virtual MemoryStatus Flush(const MemoryAccess& /*access*/,
                             bool /*whole_region*/) {
    return MemoryStatus::kNoRight;
  }

  // The rules are those of IBA vol. 1, 10.6.7.2: see RegionTable.
  virtual MemoryStatus Bind(const WindowBinding& /*binding*/) {
    return MemoryStatus::kNoRight;
  }

  // Invalidates the region or window of `rkey` (SEND with invalidate, local
  // invalidate). The key must belong to `pd` and permit invalidation; a window
  // bound to another queue pair is refused.
  virtual MemoryStatus Invalidate(uint32_t rkey, PdId pd, uint32_t qpn) = 0;
};

}  // namespace transport

#endif  // TRANSPORT_BASE_MEMORY_H_
