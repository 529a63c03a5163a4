// Memory of the program that goes away for the device on command
// (docs/faults-on-command.md, `unmap`), in front of the registered regions. The
// bytes that a rule hits then lie on pages that cannot be accessed, as after
// munmap(2): the device finds out when it copies. Processes with faults off do
// not have it.
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
  // Both outlive it. Null if there is no address space for the pages.
  static std::unique_ptr<transport::Memory> Create(ProcessFaults& faults,
                                                   transport::Memory& behind);
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
  // What a rule took away, as long as the rule is valid.
  struct Gone {
    uint32_t key = 0;
    uint64_t va = 0;
    uint64_t length = 0;
    const transport::faults::Rule* rule = nullptr;
  };

  FaultedMemory(ProcessFaults& faults, transport::Memory& behind,
                uint8_t* pages)
      : faults_(faults), behind_(behind), pages_(pages) {}

  // Whether bytes of the access are gone, or go now.
  bool IsGone(const transport::MemoryAccess& access);

  ProcessFaults& faults_;
  transport::Memory& behind_;
  uint8_t* const pages_;  // that cannot be accessed
  std::atomic<bool> has_gone_ = false;
  std::mutex mutex_;
  std::vector<Gone> gone_;  // guarded by mutex_
};

}  // namespace rxe_user

#endif  // RXE_USER_FAULTS_FAULTED_MEMORY_H_
