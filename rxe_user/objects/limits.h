// The limits of a device: ibv_query_device reports them, and creation enforces
// them. Of objects that are not named here there may be kMaxObjects - 1.
#ifndef RXE_USER_OBJECTS_LIMITS_H_
#define RXE_USER_OBJECTS_LIMITS_H_

#include <algorithm>
#include <bit>
#include <cstdint>

#include "rxe_user/engine/engine.h"
#include "rxe_user/objects/handle_table.h"
#include "transport/base/work.h"

namespace rxe_user {

inline constexpr uint32_t kMaxQp = kMaxOpenQueuePairs;
inline constexpr uint32_t kMaxQpWr = 32768;
inline constexpr uint32_t kMaxSge = transport::kMaxSge;
inline constexpr uint32_t kMaxInlineData = 1024;  // bytes
// Segmented sends: the header of each segment, and the whole payload; bytes.
inline constexpr uint32_t kMaxTsoHeader = 512;
inline constexpr uint32_t kMaxTso = 256 << 10;
// Receive side scaling.
inline constexpr uint32_t kMaxRwqTable = 4096;
inline constexpr uint32_t kMaxCqe = 1u << 22;
// The capacity of a CQ for a request of `cqe` entries, up to kMaxCqe: one less
// than a power of two, as with mlx5 (ibv_create_cq(3): at least as many as
// requested), and at least 7. Programs rely on the spare entries: perftest asks
// for one entry and takes one completion for each event, so after one lost ACK
// it stays one completion behind.
constexpr uint32_t CqCapacity(uint32_t cqe) {
  return std::min(std::max(std::bit_ceil(cqe + 1), 8u) - 1, kMaxCqe);
}
// Moderation of completion events: completions, and us. As with mlx5.
inline constexpr uint16_t kMaxCqCount = 0xffff;
inline constexpr uint16_t kMaxCqPeriod = 4095;
inline constexpr uint32_t kMaxSrqWr = 32768;
inline constexpr uint32_t kMaxRdAtomic = 128;  // each direction, per QP
inline constexpr uint64_t kMaxRegion = uint64_t{1} << 47;  // bytes
inline constexpr uint64_t kMaxDeviceMemory = 64 << 20;     // bytes, per context
inline constexpr uint32_t kMaxLogDeviceMemoryAlign = 21;   // 2 MiB
inline constexpr uint16_t kDefaultPkey = 0xffff;
inline constexpr int kCompletionVectors = 1;

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_LIMITS_H_
