// Memory keys for several pieces of memory (mlx5dv_create_mkey(3)). Work
// requests of queue pairs configure them
// (transport::SendOpcode::kConfigureMkey).
#ifndef RXE_USER_OBJECTS_MEMORY_KEY_H_
#define RXE_USER_OBJECTS_MEMORY_KEY_H_

#include <cstdint>

#include "rxe_user/memory/region_table.h"
#include "rxe_user/objects/context.h"

namespace rxe_user {

// Thread: any.
class MemoryKey {
 public:
  using Options = RegionTable::MkeyOptions;

  // A layout has at most `max_entries` entries. May throw bad_alloc.
  MemoryKey(ProtectionDomain& pd, uint16_t max_entries, Options options)
      : pd_(pd),
        key_(pd.context.regions().AddMkey(pd.id, max_entries, options)),
        max_entries_(max_entries),
        signatures_(options.signatures) {
    ++pd.users;
  }
  // On return nothing accesses memory through it. The regions of its pieces do
  // not refer to it, and may be deregistered first.
  ~MemoryKey() {
    pd_.context.regions().RemoveMkey(key_);
    pd_.context.WaitForLanes();
    --pd_.users;
  }
  MemoryKey(const MemoryKey&) = delete;
  MemoryKey& operator=(const MemoryKey&) = delete;

  ProtectionDomain& domain() const { return pd_; }
  // The first key; L_Key and R_Key are the same number. Later ones differ only
  // in the lower 8 bits, which are 0 here.
  uint32_t key() const { return key_; }
  uint16_t max_entries() const { return max_entries_; }
  // Whether it was created for signatures.
  bool signatures() const { return signatures_; }
  // RegionTable::TakeMkeyError.
  int TakeError(SignatureError* out) {
    return pd_.context.regions().TakeMkeyError(key_, out);
  }

 private:
  ProtectionDomain& pd_;
  const uint32_t key_;
  const uint16_t max_entries_;
  const bool signatures_;
};

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_MEMORY_KEY_H_
