#include "verbs_api/rsockets/protocol.h"

#include <algorithm>
#include <cstring>

#include "wire/bytes.h"

namespace rsockets {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint8_t kFlagBigEndian = 1;
constexpr uint8_t kFlagIomap = 2;
// Offsets into the connection data.
constexpr size_t kFlags = 1;
constexpr size_t kCredits = 2;
constexpr size_t kIomapEntries = 7;
constexpr size_t kTargetList = 8;
constexpr size_t kData = 24;
// Above this, the number of mappings is in steps of 256.
constexpr uint32_t kUnscaled = 128;

template <typename T>
void Put(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

void PutBuffer(uint8_t* to, const Buffer& buffer, bool swap) {
  Put(to, swap ? __builtin_bswap64(buffer.address) : buffer.address);
  Put(to + 8, swap ? __builtin_bswap32(buffer.key) : buffer.key);
  Put(to + 12, swap ? __builtin_bswap32(buffer.length) : buffer.length);
}

Buffer GetNetBuffer(const uint8_t* from) {
  return {wire::LoadBe64(from), wire::LoadBe32(from + 8),
          wire::LoadBe32(from + 12)};
}

}  // namespace

std::array<uint8_t, kBufferSize> EncodeBuffer(const Buffer& buffer, bool swap) {
  std::array<uint8_t, kBufferSize> bytes;
  PutBuffer(bytes.data(), buffer, swap);
  return bytes;
}

std::array<uint8_t, kIomapSize> EncodeIomap(const Iomap& iomap, bool swap) {
  std::array<uint8_t, kIomapSize> bytes;
  Put(bytes.data(), swap ? __builtin_bswap64(iomap.offset) : iomap.offset);
  PutBuffer(bytes.data() + 8, iomap.buffer, swap);
  return bytes;
}

std::array<uint8_t, kConnectionDataSize> Encode(const ConnectionData& data) {
  std::array<uint8_t, kConnectionDataSize> bytes = {};
  bytes[0] = kVersion;
  bytes[kFlags] = static_cast<uint8_t>((data.big_endian ? kFlagBigEndian : 0) |
                                       (data.has_iomap ? kFlagIomap : 0));
  wire::StoreBe16(&bytes[kCredits], data.credits);
  bytes[kIomapEntries] = ScaleIomapEntries(data.iomap_entries);
  PutBuffer(&bytes[kTargetList], data.target_list, /*swap=*/true);
  PutBuffer(&bytes[kData], data.data, /*swap=*/true);
  return bytes;
}

std::optional<ConnectionData> ParseConnectionData(
    std::span<const uint8_t> bytes) {
  if (bytes.size() < kConnectionDataSize || bytes[0] != kVersion) {
    return std::nullopt;
  }
  ConnectionData data;
  data.big_endian = (bytes[kFlags] & kFlagBigEndian) != 0;
  data.has_iomap = (bytes[kFlags] & kFlagIomap) != 0;
  data.credits = wire::LoadBe16(&bytes[kCredits]);
  if (data.has_iomap) {
    data.iomap_entries = UnscaleIomapEntries(bytes[kIomapEntries]);
  }
  data.target_list = GetNetBuffer(&bytes[kTargetList]);
  data.data = GetNetBuffer(&bytes[kData]);
  if (data.target_list.length == 0) return std::nullopt;
  return data;
}

uint8_t ScaleIomapEntries(uint32_t entries) {
  if (entries <= kUnscaled) return static_cast<uint8_t>(entries);
  return static_cast<uint8_t>(kUnscaled |
                              std::min(entries >> 8, kUnscaled - 1));
}

uint32_t UnscaleIomapEntries(uint8_t scaled) {
  if (scaled <= kUnscaled) return scaled;
  return (scaled & (kUnscaled - 1)) << 8;
}

}  // namespace rsockets
