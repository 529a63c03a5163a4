// Management datagrams (InfiniBand specification 13.4): 256 bytes, the first 24
// common to all classes. Sent as the payload of a UD SEND ONLY to queue pair 1.

#ifndef WIRE_MAD_H_
#define WIRE_MAD_H_

#include <cstddef>
#include <cstdint>

#include "wire/bytes.h"

namespace wire {

inline constexpr size_t kMadSize = 256;
// Offset of the attribute ID, two bytes.
inline constexpr size_t kMadAttributeOffset = 16;
inline constexpr size_t kMadHeaderSize = 24;
// The general services interface (3.9.4): queue pair and its Q_Key.
inline constexpr uint32_t kGsiQpn = 1;
inline constexpr uint32_t kGsiQkey = 0x80010000;

inline constexpr uint8_t kMadBaseVersion = 1;
inline constexpr uint8_t kMadClassCm = 0x07;
inline constexpr uint8_t kCmClassVersion = 2;
inline constexpr uint8_t kMadMethodSend = 0x03;

// The common MAD header (13.4.3).
struct MadHeader {
  uint8_t base_version = kMadBaseVersion;
  uint8_t management_class = 0;
  uint8_t class_version = 0;
  uint8_t method = 0;  // top bit set: response
  uint16_t status = 0;
  uint16_t class_specific = 0;
  uint64_t transaction_id = 0;
  uint16_t attribute_id = 0;
  uint32_t attribute_modifier = 0;

  bool operator==(const MadHeader&) const = default;
};

// Reads kMadHeaderSize bytes at `p`.
inline MadHeader LoadMadHeader(const uint8_t* p) {
  return {.base_version = p[0],
          .management_class = p[1],
          .class_version = p[2],
          .method = p[3],
          .status = LoadBe16(p + 4),
          .class_specific = LoadBe16(p + 6),
          .transaction_id = LoadBe64(p + 8),
          .attribute_id = LoadBe16(p + 16),
          .attribute_modifier = LoadBe32(p + 20)};
}

// Writes kMadHeaderSize bytes. The reserved field becomes zero.
inline void EmitMadHeader(const MadHeader& h, uint8_t* p) {
  p[0] = h.base_version;
  p[1] = h.management_class;
  p[2] = h.class_version;
  p[3] = h.method;
  StoreBe16(p + 4, h.status);
  StoreBe16(p + 6, h.class_specific);
  StoreBe64(p + 8, h.transaction_id);
  StoreBe16(p + 16, h.attribute_id);
  StoreBe16(p + 18, 0);
  StoreBe32(p + 20, h.attribute_modifier);
}

}  // namespace wire

#endif  // WIRE_MAD_H_
