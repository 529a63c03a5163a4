// What a device can really do: the numbers that ibv_query_device reports and
// that creation enforces.
#ifndef RXE_USER_OBJECTS_LIMITS_H_
#define RXE_USER_OBJECTS_LIMITS_H_

#include <cstdint>

#include "transport/work.h"

namespace rxe_user {

inline constexpr uint32_t kMaxQp = 32768;
inline constexpr uint32_t kMaxQpWr = 32768;
inline constexpr uint32_t kMaxSge = transport::kMaxSge;
inline constexpr uint32_t kMaxInlineData = 1024;  // bytes
inline constexpr uint32_t kMaxCqe = 1u << 22;
inline constexpr uint32_t kMaxSrqWr = 32768;
inline constexpr uint32_t kMaxObjects = 1u << 20;  // of each other kind
inline constexpr uint32_t kMaxRdAtomic = 128;      // each direction, per QP
inline constexpr uint64_t kMaxRegion = uint64_t{1} << 47;  // bytes
inline constexpr uint32_t kMaxMessage = 1u << 31;          // bytes
inline constexpr uint16_t kDefaultPkey = 0xffff;
inline constexpr int kCompletionVectors = 1;

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_LIMITS_H_
