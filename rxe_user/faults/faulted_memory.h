// Takes memory of the program away from the device on command
// (docs/faults-on-command.md, `unmap`), in front of the registered regions. The
// bytes that a rule hits are translated to pages that cannot be accessed, as
// after munmap(2), so the device's copy fails. Without address space for these
// pages, the translation fails. Processes with faults off do not have it.
#ifndef RXE_USER_FAULTS_FAULTED_MEMORY_H_
#define RXE_USER_FAULTS_FAULTED_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "rxe_user/faults/process_faults.h"
#include "transport/base/memory.h"

namespace rxe_user {

// Thread: as transport::Memory.
class FaultedMemory final : public transport::Memory {
 public:
  // Both must outlive this object.
  FaultedMemory(ProcessFaults& faults, transport::Memory& behind)
      : faults_(faults), behind_(behind) {}
  ~FaultedMemory() override;

  // --- transport::Memory
  transport::MemoryStatus Translate(const transport::MemoryAccess& access,
                                    transport::SpanList* out) override;
  transport::MemoryStatus Flush(const transport::MemoryAccess& access,
                                bool whole_region) override;
  bool CopyFrom(uint8_t* to, const uint8_t* from, size_t bytes,
                bool more) override {
    return behind_.CopyFrom(to, from, bytes, more);
  }
  bool CopyFromWithIcrc(uint8_t* to, const uint8_t* from, size_t bytes,
                        bool more, uint32_t* icrc) override {
    return behind_.CopyFromWithIcrc(to, from, bytes, more, icrc);
  }
  bool CopyTo(uint8_t* to, const uint8_t* from, size_t bytes,
              bool more) override {
    return behind_.CopyTo(to, from, bytes, more);
  }
  bool Copy(uint8_t* to, const uint8_t* from, size_t bytes) override {
    return behind_.Copy(to, from, bytes);
  }
  bool CompareSwap(uint8_t* word, uint64_t compare, uint64_t swap,
                   uint64_t* original) override {
    return behind_.CompareSwap(word, compare, swap, original);
  }
  bool FetchAdd(uint8_t* word, uint64_t add, uint64_t* original) override {
    return behind_.FetchAdd(word, add, original);
  }
  transport::MemoryStatus Bind(
      const transport::WindowBinding& binding) override {
    return behind_.Bind(binding);
  }
  transport::MemoryStatus ConfigureMkey(
      const transport::MkeyConfiguration& configuration) override {
    return behind_.ConfigureMkey(configuration);
  }
  bool NeedsOrder(uint32_t key) override { return behind_.NeedsOrder(key); }
  bool HasDataError(uint32_t key) override { return behind_.HasDataError(key); }
  transport::MemoryStatus Invalidate(
      const transport::Invalidation& what) override {
    return behind_.Invalidate(what);
  }

 private:
  // Memory that a rule took away, for as long as the rule is valid.
  struct UnmappedRange {
    uint32_t key = 0;
    uint64_t va = 0;
    uint64_t length = 0;
    const transport::faults::Rule* rule = nullptr;
  };

  // Whether bytes of the access are gone, or a rule takes them away now.
  // Without that, the access would succeed.
  bool IsGone(const transport::MemoryAccess& access);
  // Pages that cannot be accessed. They take 2 GiB of address space, so the
  // first call maps them. Null if there is no address space.
  uint8_t* Pages();

  ProcessFaults& faults_;
  transport::Memory& behind_;
  std::atomic<bool> has_gone_ = false;
  std::mutex mutex_;  // guards what follows
  uint8_t* pages_ = nullptr;
  std::vector<UnmappedRange> gone_;
};

}  // namespace rxe_user

#endif  // RXE_USER_FAULTS_FAULTED_MEMORY_H_
