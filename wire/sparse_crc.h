// CRC-32 of IEEE 802.3 from loads and exclusive ors only, for processors
// without carry-less multiplication, emulated ones above all. Five loads and a
// store for eight bytes; a table needs a lookup for each byte.

#ifndef WIRE_SPARSE_CRC_H_
#define WIRE_SPARSE_CRC_H_

#include <cstddef>
#include <cstdint>

namespace wire {

// Continues `crc` (0 to start) with `data`, like zlib's crc32_z.
uint32_t SparseCrc(uint32_t crc, const uint8_t* data, size_t size);

}  // namespace wire

#endif  // WIRE_SPARSE_CRC_H_
