// Device memory (ibv_alloc_dm(3)): memory of the process that only the device's
// calls and keys access.
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
  // Zeroed. EINVAL: no length, or alignment beyond kMaxLogDeviceMemoryAlign.
  // ENOMEM: less than `length` is left of the context's kMaxDeviceMemory.
  static int Allocate(Context& context, uint64_t length, uint32_t log_align,
                      std::shared_ptr<DeviceMemory>* out);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  uint64_t length() const { return length_; }
  uint8_t* bytes() { return bytes_.get(); }
  Context& context() { return context_; }

  // ibv_import_dm(3): the number of handles. `gone`: the memory was freed
  // through one of them; the others can then only be unimported.
  std::atomic<int> handles{0};
  std::atomic<bool> gone{false};

  // Copy between application memory `host` and the bytes at `offset`. EINVAL:
  // out of range, or not in words of four bytes, as with hardware. EFAULT:
  // `host` is not mapped.
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
