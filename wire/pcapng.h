// Writes the pcapng file format (draft-ietf-opsawg-pcapng). No I/O and, with
// enough capacity in `out`, no allocation: the caller writes what is appended.
// All numbers are little-endian. Wireshark, tshark and libpcap read the result;
// libpcap skips Custom Blocks.
#ifndef WIRE_PCAPNG_H_
#define WIRE_PCAPNG_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "wire/frame.h"

namespace wire::pcapng {

// Block types.
inline constexpr uint32_t kSectionHeader = 0x0a0d0d0a;
inline constexpr uint32_t kInterfaceDescription = 1;
inline constexpr uint32_t kObsoletePacket = 2;
inline constexpr uint32_t kSimplePacket = 3;
inline constexpr uint32_t kEnhancedPacket = 6;
inline constexpr uint32_t kCustom = 0x00000bad;  // may be copied to other files

// Read in the byte order of its section.
inline constexpr uint32_t kByteOrderMagic = 0x1a2b3c4d;

// Option codes. Those below 2 and of kOptionCustom exist in every block.
inline constexpr uint16_t kOptionEnd = 0;
inline constexpr uint16_t kOptionComment = 1;
inline constexpr uint16_t kOptionCustom = 2989;  // binary, may be copied
inline constexpr uint16_t kSectionApplication = 4;
inline constexpr uint16_t kInterfaceName = 2;
inline constexpr uint16_t kInterfaceResolution = 9;
inline constexpr uint16_t kInterfaceOffset = 14;
inline constexpr uint16_t kPacketFlags = 2;

// Bits 0 and 1 of kPacketFlags.
enum class Direction : uint8_t { kUnknown = 0, kReceived = 1, kSent = 2 };

// Appends a Section Header Block, which begins a file. Interfaces are numbered
// from 0 in each section.
void AppendSection(std::string_view application, std::vector<uint8_t>* out);

// Appends an Interface Description Block with times in ns and no length limit.
// An empty name is omitted.
void AppendInterface(LinkType link_type, std::string_view name,
                     std::vector<uint8_t>* out);

// Appends a Custom Block with these contents for a Private Enterprise Number.
void AppendCustom(uint32_t enterprise, std::span<const uint8_t> contents,
                  std::vector<uint8_t>* out);

struct Packet {
  uint32_t interface = 0;
  int64_t time = 0;  // ns since 1970; not negative
  // The captured bytes of the frame are those of `headers` followed by those of
  // `rest`.
  std::span<const uint8_t> headers = {};
  std::span<const uint8_t> rest = {};
  size_t original_size = 0;  // of the frame, bytes
  Direction direction = Direction::kUnknown;
  std::string_view comment = {};         // UTF-8; empty: none
  uint32_t enterprise = 0;               // of `custom`
  std::span<const uint8_t> custom = {};  // a custom option; empty: none
};

// Appends an Enhanced Packet Block. A comment is cut at 4 KB.
void AppendPacket(const Packet& packet, std::vector<uint8_t>* out);

}  // namespace wire::pcapng

#endif  // WIRE_PCAPNG_H_
