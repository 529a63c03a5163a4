// transport::Memory over plain arrays, for tests: regions with keys, rights and
// protection domains, faults on demand, and checks of every access.
//
// To reveal confusions, L_Keys differ from R_Keys, virtual addresses differ
// from pointers, and Translate can split its result into several spans.
#ifndef TRANSPORT_SIM_SIM_MEMORY_H_
#define TRANSPORT_SIM_SIM_MEMORY_H_

#include <cstdint>
#include <map>
#include <unordered_map>

#include "transport/base/memory.h"
#include "transport/sim/checker.h"

namespace sim {

inline constexpr uint32_t kAllAccess =
    transport::kAccessLocalWrite | transport::kAccessRemoteWrite |
    transport::kAccessRemoteRead | transport::kAccessRemoteAtomic |
    transport::kAccessFlushGlobal | transport::kAccessFlushPersistent;

struct Region {
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  transport::PdId pd = 0;
  uint32_t access = 0;  // transport::Access
  uint64_t va = 0;
  uint64_t length = 0;
  uint8_t* data = nullptr;
  // Type 2B window: only this queue pair may use the R_Key. 0 = any.
  uint32_t bound_qpn = 0;
  // SEND with invalidate may invalidate the R_Key.
  bool may_invalidate = false;
  // Represents a window: may be bound while `invalidated`.
  bool is_window = false;
  bool invalidated = false;
};

// A large memory without bytes: reads return a pattern that depends on the
// offset, writes are compared with it. Its region's `data` is address space
// that must not be accessed.
class PatternMemory {
 public:
  PatternMemory(uint64_t bytes, uint64_t salt);
  ~PatternMemory();
  PatternMemory(const PatternMemory&) = delete;
  PatternMemory& operator=(const PatternMemory&) = delete;

  uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }
  bool Contains(const uint8_t* p) const {
    return p >= data_ && p < data_ + size_;
  }
  void Generate(uint8_t* to, uint64_t offset, size_t bytes) const;
  // Whether `from` equals the pattern. Counts as written in order if it begins
  // where the previous one ended.
  bool Check(const uint8_t* from, uint64_t offset, size_t bytes);
  // Bytes written from 0 on, in order and without a gap.
  uint64_t written_in_order() const { return written_in_order_; }
  uint64_t written() const { return written_; }
  bool mismatch() const { return mismatch_; }

 private:
  uint64_t Word(uint64_t index) const {
    return (index + salt_) * 0x9e3779b97f4a7c15;
  }
  uint8_t* data_;
  uint64_t size_;
  uint64_t salt_;
  uint64_t written_ = 0;
  uint64_t written_in_order_ = 0;
  bool mismatch_ = false;
};

class SimMemory : public transport::Memory {
 public:
  explicit SimMemory(Checker* checker) : checker_(checker) {}

  // --- Calls by the application.

  // Registers `length` bytes at `data` as [va, va + length). The bytes outlive
  // the registration. Returns a copy of the region.
  Region Register(transport::PdId pd, uint8_t* data, uint64_t va,
                  uint64_t length, uint32_t access);
  // For changing a region's other properties; null if there is none.
  Region* FindByLkey(uint32_t lkey);
  Region* FindByRkey(uint32_t rkey);
  void Deregister(uint32_t lkey);
  void AddPattern(PatternMemory* pattern) { patterns_.push_back(pattern); }

  // Makes every copy that touches [data, data + length) fail, like unmapped
  // pages.
  void AddFault(const uint8_t* data, size_t length);
  void ClearFaults() { faults_.clear(); }
  // Translate returns kFault for such bytes; otherwise only the copies fail.
  void set_translate_faults(bool on) { translate_faults_ = on; }

  // Splits the result of Translate at every multiple of `bytes` (itself a
  // multiple of 8) of the virtual address. 0 = never.
  void set_span_bytes(uint64_t bytes) { span_bytes_ = bytes; }

  uint64_t bytes_copied_from() const { return bytes_from_; }
  uint64_t bytes_copied_to() const { return bytes_to_; }
  uint64_t atomics() const { return atomics_; }

  // --- transport::Memory.
  transport::MemoryStatus Translate(const transport::MemoryAccess& access,
                                    transport::SpanList* out) override;
  bool CopyFrom(uint8_t* to, const uint8_t* from, size_t bytes,
                bool more) override;
  bool CopyTo(uint8_t* to, const uint8_t* from, size_t bytes,
              bool more) override;
  bool CompareSwap(uint8_t* word, uint64_t compare, uint64_t swap,
                   uint64_t* original) override;
  bool FetchAdd(uint8_t* word, uint64_t add, uint64_t* original) override;
  transport::MemoryStatus Flush(const transport::MemoryAccess& access,
                                bool whole_region) override;
  transport::MemoryStatus Bind(
      const transport::WindowBinding& binding) override;
  transport::MemoryStatus Invalidate(
      const transport::Invalidation& invalidation) override;

 private:
  bool Faults(const uint8_t* data, size_t bytes) const;
  // Reports an access outside of all regions.
  bool CheckInside(const uint8_t* data, size_t bytes, const char* what);
  PatternMemory* PatternOf(const uint8_t* data) const;
  void AddExtent(const uint8_t* begin, const uint8_t* end);

  Checker* checker_;
  std::unordered_map<uint32_t, Region> regions_;    // by L_Key
  std::unordered_map<uint32_t, uint32_t> lkey_of_;  // R_Key to L_Key
  // All bytes that were ever registered: begin and end.
  std::map<const uint8_t*, const uint8_t*> extents_;
  struct Fault {
    const uint8_t* data;
    size_t length;
  };
  std::vector<Fault> faults_;
  std::vector<PatternMemory*> patterns_;
  bool translate_faults_ = false;
  uint64_t span_bytes_ = 0;
  uint32_t next_key_ = 0;
  uint64_t bytes_from_ = 0;
  uint64_t bytes_to_ = 0;
  uint64_t atomics_ = 0;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_SIM_MEMORY_H_
