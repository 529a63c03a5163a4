// Writes the pcap file format (draft-ietf-opsawg-pcap): a file header, then a
// record header and the bytes of each frame. No I/O: the caller writes what
// these functions return. Files are read with libpcap.

#ifndef WIRE_PCAP_H_
#define WIRE_PCAP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "wire/frame.h"

namespace wire {

// Header of a file with times in ns.
inline std::array<uint8_t, 24> PcapFileHeader(
    LinkType link_type = LinkType::kEthernet) {
  // Magic, version 2.4, two unused, maximum frame length, link type.
  const uint32_t fields[6] = {
      0xa1b23c4d, 4u << 16 | 2, 0, 0, 262144, static_cast<uint32_t>(link_type)};
  std::array<uint8_t, 24> header;
  static_assert(sizeof(fields) == sizeof(header));
  std::memcpy(header.data(), fields, sizeof(fields));
  return header;
}

// Record header of a frame of `size` bytes. `time_ns` counts from 1970 and is
// not negative.
inline std::array<uint8_t, 16> PcapRecordHeader(int64_t time_ns, size_t size) {
  const uint32_t fields[4] = {static_cast<uint32_t>(time_ns / 1'000'000'000),
                              static_cast<uint32_t>(time_ns % 1'000'000'000),
                              static_cast<uint32_t>(size),
                              static_cast<uint32_t>(size)};
  std::array<uint8_t, 16> header;
  static_assert(sizeof(fields) == sizeof(header));
  std::memcpy(header.data(), fields, sizeof(fields));
  return header;
}

}  // namespace wire

#endif  // WIRE_PCAP_H_
