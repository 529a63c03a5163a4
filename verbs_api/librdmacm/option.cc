// rdma_set_option(3), and enhanced connection establishment:
// rdma_set_local_ece(3), rdma_get_remote_ece(3). Our devices have no options to
// negotiate; options of the application's own queue pairs are carried in the
// messages.
#include <cerrno>
#include <cstring>

#include "verbs_api/librdmacm/address.h"
#include "verbs_api/librdmacm/id.h"

namespace librdmacm {
namespace {

template <typename T>
bool ReadOption(const void* value, size_t length, T* out) {
  if (value == nullptr || length != sizeof(T)) return false;
  std::memcpy(out, value, sizeof(T));
  return true;
}

// Sharing options of the address that the id is or will be bound to.
int ShareAddress(Id& id, bool ipv6_only, bool reuse) {
  if (id.reserved != 0) {
    if (const int error = id.service->Share(id.reserved, ipv6_only, reuse)) {
      return error;
    }
  }
  std::lock_guard<std::mutex> lock(id.mutex);
  id.options.ipv6_only = ipv6_only;
  id.options.reuse_address = reuse;
  return 0;
}

// The states in which an option may be set are those of the kernel's rdma_cm.
int SetIdOption(Id& id, int name, const void* value, size_t length) {
  uint8_t byte = 0;
  int flag = 0;
  IdState state;
  {
    std::lock_guard<std::mutex> lock(id.mutex);
    state = id.state;
  }
  switch (name) {
    case RDMA_OPTION_ID_TOS: {
      if (!ReadOption(value, length, &byte)) return EINVAL;
      std::lock_guard<std::mutex> lock(id.mutex);
      id.options.tos = byte;
      return 0;
    }
    case RDMA_OPTION_ID_REUSEADDR:
      if (!ReadOption(value, length, &flag)) return EINVAL;
      if (state == IdState::kListening) return EINVAL;
      if (flag == 0 && state != IdState::kIdle) return EINVAL;
      return ShareAddress(id, id.options.ipv6_only, flag != 0);
    case RDMA_OPTION_ID_AFONLY:
      if (!ReadOption(value, length, &flag)) return EINVAL;
      if (state != IdState::kIdle && state != IdState::kBound) return EINVAL;
      return ShareAddress(id, flag != 0, id.options.reuse_address);
    case RDMA_OPTION_ID_ACK_TIMEOUT: {
      if (!ReadOption(value, length, &byte) || byte > 31) return EINVAL;
      if (id.is_datagram()) return EINVAL;
      std::lock_guard<std::mutex> lock(id.mutex);
      id.options.ack_timeout = byte;
      return 0;
    }
    default:
      return ENOSYS;
  }
}

}  // namespace

CM_EXPORT int rdma_set_option(rdma_cm_id* pointer, int level, int name,
                              void* value, size_t length) {
  const int result = IdCall(pointer, [&](Id& id) -> int {
    if (level == RDMA_OPTION_IB &&
        ResumesWait(id, WaitingCall::kResolveRoute)) {
      return 0;
    }
    switch (level) {
      case RDMA_OPTION_ID:
        return SetIdOption(id, name, value, length);
      case RDMA_OPTION_IB:
        return name == RDMA_OPTION_IB_PATH ? TakePath(id, value, length)
                                           : ENOSYS;
      default:
        return ENOSYS;
    }
  });
  // Setting a path produces an event.
  if (result != 0 || level != RDMA_OPTION_IB) return result;
  return Complete(pointer, WaitingCall::kResolveRoute);
}

CM_EXPORT int rdma_set_local_ece(rdma_cm_id* pointer, ibv_ece* ece) {
  return IdCall(pointer, [&](Id& id) -> int {
    constexpr uint32_t kMaxVendors = 1u << 24;
    if (ece == nullptr || ece->comp_mask != 0) return EINVAL;
    if (ece->vendor_id == 0 || ece->vendor_id >= kMaxVendors) return EINVAL;
    // Only for queue pairs that the application created itself.
    if (id.part.qp != nullptr) return EINVAL;
    std::lock_guard<std::mutex> lock(id.mutex);
    id.local_ece = *ece;
    return 0;
  });
}

CM_EXPORT int rdma_get_remote_ece(rdma_cm_id* pointer, ibv_ece* ece) {
  return IdCall(pointer, [&](Id& id) -> int {
    if (ece == nullptr || id.part.qp != nullptr) return EINVAL;
    std::lock_guard<std::mutex> lock(id.mutex);
    *ece = id.remote_ece;
    return 0;
  });
}

}  // namespace librdmacm
