// Registered memory for unit tests: a few arrays, each with two keys.
#ifndef TRANSPORT_TESTING_FAKE_MEMORY_H_
#define TRANSPORT_TESTING_FAKE_MEMORY_H_

#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "transport/base/memory.h"

namespace transport {

class FakeMemory : public Memory {
 public:
  struct Region {
    uint32_t lkey = 0;
    uint32_t rkey = 0;
    PdId pd = 0;
    uint32_t access = 0;
    uint64_t va = 0;
    std::vector<uint8_t> bytes;
    bool valid = true;
    bool faulty = false;       // its pages are unmapped
    bool needs_order = false;  // Memory::NeedsOrder
    bool data_error = false;   // Memory::HasDataError
    // Translate splits into pieces of this size, bytes.
    size_t piece = ~size_t{0};
    bool cold = false;  // Span::cold of its spans
    // If not 0, the region's length, repeating the same few bytes.
    uint64_t claimed = 0;

    uint64_t length() const { return claimed != 0 ? claimed : bytes.size(); }
  };

  // Adds `bytes` zeros at `va`, 8-byte aligned. Keys are unique.
  Region& Add(uint64_t va, size_t bytes, PdId pd, uint32_t access) {
    Region& region = regions_.emplace_back();
    region.lkey = next_key_++;
    region.rkey = next_key_++;
    region.pd = pd;
    region.access = access;
    region.va = va;
    region.bytes.resize(bytes);
    return region;
  }

  MemoryStatus Translate(const MemoryAccess& access, SpanList* out) override {
    for (Region& region : regions_) {
      if ((access.remote ? region.rkey : region.lkey) != access.key) continue;
      if (!region.valid || region.pd != access.pd) return MemoryStatus::kBadKey;
      if (access.va < region.va || access.va - region.va > region.length() ||
          access.length > region.length() - (access.va - region.va)) {
        return MemoryStatus::kOutOfRange;
      }
      if ((region.access & access.access) != access.access) {
        return MemoryStatus::kNoRight;
      }
      if (region.claimed != 0) {
        out->push_back({region.bytes.data(), access.length, region.cold});
        return MemoryStatus::kOk;
      }
      uint8_t* data = region.bytes.data() + (access.va - region.va);
      for (uint64_t left = access.length; left > 0 && !out->full();) {
        const size_t part = left < region.piece ? left : region.piece;
        out->push_back({data, part, region.cold});
        data += part;
        left -= part;
      }
      return MemoryStatus::kOk;
    }
    return MemoryStatus::kBadKey;
  }

  bool CopyFrom(uint8_t* to, const uint8_t* from, size_t bytes,
                bool more) override {
    if (Faulty(from)) return false;
    more_.push_back(more);
    std::memcpy(to, from, bytes);
    return true;
  }
  bool StreamFrom(uint8_t* to, const uint8_t* from, size_t bytes,
                  bool more) override {
    streamed_ += bytes;
    return CopyFrom(to, from, bytes, more);
  }
  // Bytes that StreamFrom has copied.
  size_t streamed() const { return streamed_; }
  bool CopyTo(uint8_t* to, const uint8_t* from, size_t bytes,
              bool more) override {
    if (Faulty(to)) return false;
    more_.push_back(more);
    std::memcpy(to, from, bytes);
    return true;
  }
  bool CompareSwap(uint8_t* word, uint64_t compare, uint64_t swap,
                   uint64_t* original) override {
    if (Faulty(word)) return false;
    std::memcpy(original, word, 8);
    if (*original == compare) std::memcpy(word, &swap, 8);
    return true;
  }
  bool FetchAdd(uint8_t* word, uint64_t add, uint64_t* original) override {
    if (Faulty(word)) return false;
    std::memcpy(original, word, 8);
    const uint64_t sum = *original + add;
    std::memcpy(word, &sum, 8);
    return true;
  }
  MemoryStatus Flush(const MemoryAccess& access, bool whole_region) override {
    for (Region& region : regions_) {
      if (region.rkey != access.key) continue;
      MemoryAccess range = access;
      if (whole_region) {
        range.va = region.va;
        range.length = region.length();
      }
      SpanList spans;
      const MemoryStatus status = Translate(range, &spans);
      if (status != MemoryStatus::kOk) return status;
      if (region.faulty) return MemoryStatus::kFault;
      flushes_.push_back(range);
      return MemoryStatus::kOk;
    }
    return MemoryStatus::kBadKey;
  }
  // Flushed accesses; a whole region is given as its range.
  const std::vector<MemoryAccess>& flushes() const { return flushes_; }

  // The `more` argument of each copy since ForgetMore.
  const std::vector<bool>& more() const { return more_; }
  void ForgetMore() { more_.clear(); }

  // An invalid region represents an unbound window.
  MemoryStatus Bind(const WindowBinding& binding) override {
    for (Region& region : regions_) {
      if (region.rkey != binding.rkey || region.valid) continue;
      region.valid = true;
      bindings_.push_back(binding);
      return MemoryStatus::kOk;
    }
    return MemoryStatus::kBadKey;
  }
  const std::vector<WindowBinding>& bindings() const { return bindings_; }

  bool NeedsOrder(uint32_t key) override {
    const Region* const region = FindLocal(key);
    return region != nullptr && region->needs_order;
  }
  bool HasDataError(uint32_t key) override {
    const Region* const region = FindLocal(key);
    return region != nullptr && region->data_error;
  }

  MemoryStatus ConfigureMkey(const MkeyConfiguration& configuration) override {
    Configured& copy = configured_.emplace_back();
    copy.configuration = configuration;
    copy.list.assign(configuration.list.begin(), configuration.list.end());
    copy.interleaved.assign(configuration.interleaved.begin(),
                            configuration.interleaved.end());
    copy.transform.assign(configuration.transform.begin(),
                          configuration.transform.end());
    for (const Region& region : regions_) {
      if (region.rkey == configuration.key) return MemoryStatus::kOk;
    }
    return MemoryStatus::kBadKey;
  }
  // All configurations of memory keys; the spans of the first member are
  // invalid.
  struct Configured {
    MkeyConfiguration configuration;
    std::vector<Sge> list;
    std::vector<InterleavedPiece> interleaved;
    std::vector<uint8_t> transform;
  };
  const std::vector<Configured>& configured() const { return configured_; }

  MemoryStatus Invalidate(const Invalidation& invalidation) override {
    invalidations_.push_back(invalidation);
    for (Region& region : regions_) {
      if (region.rkey != invalidation.rkey || region.pd != invalidation.pd ||
          !region.valid) {
        continue;
      }
      region.valid = false;
      return MemoryStatus::kOk;
    }
    return MemoryStatus::kBadKey;
  }
  const std::vector<Invalidation>& invalidations() const {
    return invalidations_;
  }

 private:
  const Region* FindLocal(uint32_t lkey) const {
    for (const Region& region : regions_) {
      if (region.lkey == lkey) return &region;
    }
    return nullptr;
  }
  bool Faulty(const uint8_t* address) const {
    for (const Region& region : regions_) {
      if (address >= region.bytes.data() &&
          address < region.bytes.data() + region.bytes.size()) {
        return region.faulty;
      }
    }
    return true;
  }

  std::deque<Region> regions_;
  size_t streamed_ = 0;
  std::vector<bool> more_;
  std::vector<MemoryAccess> flushes_;
  std::vector<WindowBinding> bindings_;
  std::vector<Configured> configured_;
  std::vector<Invalidation> invalidations_;
  uint32_t next_key_ = 0x1000;
};

}  // namespace transport

#endif  // TRANSPORT_TESTING_FAKE_MEMORY_H_
