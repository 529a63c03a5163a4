#include "rxe_user/objects/device_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "rxe_user/memory/guarded_copy.h"
#include "rxe_user/objects/limits.h"

namespace rxe_user {
namespace {

constexpr uint64_t kMinAlign = 4096;
constexpr uint64_t kWord = 4;

}  // namespace

int DeviceMemory::Allocate(Context& context, uint64_t length,
                           uint32_t log_align,
                           std::shared_ptr<DeviceMemory>* out) {
  if (length == 0 || log_align > kMaxLogDeviceMemoryAlign) return EINVAL;
  if (!context.TakeDeviceMemory(length)) return ENOMEM;
  const uint64_t align = std::max(kMinAlign, uint64_t{1} << log_align);
  const uint64_t size = (length + align - 1) & ~(align - 1);
  Bytes bytes(static_cast<uint8_t*>(std::aligned_alloc(align, size)));
  if (bytes == nullptr) {
    context.ReturnDeviceMemory(length);
    return ENOMEM;
  }
  std::memset(bytes.get(), 0, size);
  PrepareGuardedAccess();
  out->reset(new DeviceMemory(context, length, std::move(bytes)));
  return 0;
}

DeviceMemory::~DeviceMemory() { context_.ReturnDeviceMemory(length_); }

bool DeviceMemory::Contains(uint64_t offset, uint64_t length) const {
  return offset <= length_ && length <= length_ - offset;
}

int DeviceMemory::CopyIn(uint64_t offset, const void* host, uint64_t length) {
  if (!Contains(offset, length) || offset % kWord != 0 || length % kWord != 0) {
    return EINVAL;
  }
  return GuardedCopyFrom(bytes() + offset, host, length) ? 0 : EFAULT;
}

int DeviceMemory::CopyOut(void* host, uint64_t offset, uint64_t length) {
  if (!Contains(offset, length) || offset % kWord != 0 || length % kWord != 0) {
    return EINVAL;
  }
  return GuardedCopyTo(host, bytes() + offset, length) ? 0 : EFAULT;
}

}  // namespace rxe_user
