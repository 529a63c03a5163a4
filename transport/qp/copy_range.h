// Copies from one local range of memory to another (mlx5dv_wr_memcpy).
#ifndef TRANSPORT_QP_COPY_RANGE_H_
#define TRANSPORT_QP_COPY_RANGE_H_

#include "transport/base/memory.h"

namespace transport {

// Copies `from` to `to`, of the same length. Both are checked first, as far as
// Memory::Translate checks at once; a later part that fails leaves the earlier
// ones copied. Ranges that overlap end up with undefined contents.
MemoryStatus CopyRange(Memory* memory, MemoryAccess from, MemoryAccess to);

}  // namespace transport

#endif  // TRANSPORT_QP_COPY_RANGE_H_
