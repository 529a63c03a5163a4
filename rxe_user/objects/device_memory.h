// Device memory (ibv_alloc_dm(3)): here, memory of the process that only the
// device's calls and keys reach.
#ifndef RXE_USER_OBJECTS_DEVICE_MEMORY_H_
#define RXE_USER_OBJECTS_DEVICE_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "rxe_user/objects/context.h"

namespace rxe_user {

// Thread: any.
class DeviceMemory {
 public:
  // All zero. EINVAL: no length, alignment beyond kMaxLogDeviceMemoryAlign.
  // ENOMEM: the context has less than that left of kMaxDeviceMemory.
  static int Allocate(Context& context, uint64_t length, uint32_t log_align,
                      std::shared_ptr<DeviceMemory>* out);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  uint64_t length() const { return length_; }
  uint8_t* bytes() { return bytes_.get(); }
  Context& context() { return context_; }

  // ibv_import_dm(3): how many handles there are, and whether it was freed by
  // one of them; the others can only be taken back then.
  std::atomic<int> handles{0};
  std::atomic<bool> gone{false};

  // Copies between application memory `host` and the bytes at `offset`. EINVAL:
  // outside of it, or not in words of four bytes, which is what hardware
  // copies. EFAULT: `host` is not there.
  int CopyIn(uint64_t offset, const void* host, uint64_t length);
  int CopyOut(void* host, uint64_t offset, uint64_t length);
  // Whether [offset, offset + length) is inside.
  bool Contains(uint64_t offset, uint64_t length) const;

 private:
  struct Free {
    void operator()(uint8_t* bytes) const { std::free(bytes); }
  };
  using Bytes = std::unique_ptr<uint8_t, Free>;

  DeviceMemory(Context& context, uint64_t length, Bytes bytes)
      : context_(context), length_(length), bytes_(std::move(bytes)) {}

  Context& context_;
  const uint64_t length_;
  const Bytes bytes_;
};

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_DEVICE_MEMORY_H_
