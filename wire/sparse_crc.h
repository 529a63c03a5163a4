// CRC-32 of IEEE 802.3 by nothing but loads and exclusive ors, for processors
// without carry-less multiplication, emulated ones above all: there a table
// takes a look-up for each byte, this five loads and a store for each eight.

#ifndef WIRE_SPARSE_CRC_H_
#define WIRE_SPARSE_CRC_H_

#include <cstddef>
#include <cstdint>

namespace wire {

// The CRC of `data` behind what gave `crc` (0: nothing), as zlib's crc32_z.
uint32_t SparseCrc(uint32_t crc, const uint8_t* data, size_t size);

}  // namespace wire

#endif  // WIRE_SPARSE_CRC_H_
