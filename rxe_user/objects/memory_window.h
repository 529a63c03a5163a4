// Memory windows (ibv_alloc_mw(3)). Work requests of queue pairs bind them;
// their keys are in the region table.
#ifndef RXE_USER_OBJECTS_MEMORY_WINDOW_H_
#define RXE_USER_OBJECTS_MEMORY_WINDOW_H_

#include <cstdint>

#include "rxe_user/memory/region_table.h"
#include "rxe_user/objects/context.h"

namespace rxe_user {

// Thread: any.
class MemoryWindow {
 public:
  using Type = RegionTable::WindowType;

  MemoryWindow(ProtectionDomain& pd, Type type)
      : pd_(pd),
        type_(type),
        key_(pd.context.regions().AddWindow(pd.id, type)) {
    ++pd.users;
  }
  // Unbinds it. On return nothing accesses memory through it.
  ~MemoryWindow() {
    pd_.context.regions().RemoveWindow(key_);
    pd_.context.WaitForLanes();
    --pd_.users;
  }
  MemoryWindow(const MemoryWindow&) = delete;
  MemoryWindow& operator=(const MemoryWindow&) = delete;

  ProtectionDomain& domain() const { return pd_; }
  Type type() const { return type_; }
  // The first key. Later ones differ only in the lower 8 bits.
  uint32_t key() const { return key_; }
  // Its key with the lower 8 bits of `rkey`. These are the consumer's; the
  // others are the device's (IBA vol. 1, 10.6.7.2).
  uint32_t KeyLike(uint32_t rkey) const {
    return (key_ & ~0xffu) | (rkey & 0xff);
  }

 private:
  ProtectionDomain& pd_;
  const Type type_;
  const uint32_t key_;
};

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_MEMORY_WINDOW_H_
