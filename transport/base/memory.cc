#include "transport/base/memory.h"

#include <algorithm>
#include <array>

namespace transport {

bool Memory::Copy(uint8_t* to, const uint8_t* from, size_t bytes) {
  std::array<uint8_t, 4096> buffer;
  while (bytes > 0) {
    const size_t part = std::min(bytes, buffer.size());
    if (!CopyFrom(buffer.data(), from, part, false) ||
        !CopyTo(to, buffer.data(), part, false)) {
      return false;
    }
    from += part;
    to += part;
    bytes -= part;
  }
  return true;
}

}  // namespace transport
