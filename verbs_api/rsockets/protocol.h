// The wire format of stream rsockets: rdma-core, librdmacm/docs/rsocket. No
// state.
//
// Data is sent by RDMA WRITE into a buffer of the peer. The immediate data
// gives the number of bytes. The private data of REQ and REP carries the
// initial parameters.
#ifndef VERBS_API_RSOCKETS_PROTOCOL_H_
#define VERBS_API_RSOCKETS_PROTOCOL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace rsockets {

// The kind of a message: the upper three bits of the immediate data.
enum class Op : uint8_t {
  kData = 0,   // bytes written into the peer's buffer
  kWrite = 2,  // never on the wire: an RDMA WRITE without immediate data
  // The number of the first message that the peer may not send yet; may also
  // announce a new entry of its target list.
  kCredits = 4,
  kIomap = 6,  // index of the I/O mapping that was written
  kControl = 7,
};

enum class Control : uint32_t {
  kDisconnect = 0,  // sends and receives no more
  kKeepalive = 1,
  kShutdown = 2,  // sends no more
};

struct Message {
  Op op;
  uint32_t data;  // 29 bits
};
inline constexpr uint32_t kMaxMessageData = (uint32_t{1} << 29) - 1;

constexpr uint32_t Encode(Message message) {
  return uint32_t{static_cast<uint8_t>(message.op)} << 29 |
         (message.data & kMaxMessageData);
}
constexpr Message Decode(uint32_t immediate) {
  return {static_cast<Op>(immediate >> 29), immediate & kMaxMessageData};
}

// Memory of the peer: an entry of a target list.
struct Buffer {
  uint64_t address = 0;
  uint32_t key = 0;
  uint32_t length = 0;  // bytes

  bool operator==(const Buffer&) const = default;
};
inline constexpr size_t kBufferSize = 16;
static_assert(sizeof(Buffer) == kBufferSize);

// Memory that the peer's riowrite(3) finds by its offset.
struct Iomap {
  uint64_t offset = 0;
  Buffer buffer;
};
inline constexpr size_t kIomapSize = 24;

// Entries are written in the byte order of the host that reads them. `swap`:
// that order differs from this host's.
std::array<uint8_t, kBufferSize> EncodeBuffer(const Buffer& buffer, bool swap);
std::array<uint8_t, kIomapSize> EncodeIomap(const Iomap& iomap, bool swap);

// The parameters that each side sends when connecting.
struct ConnectionData {
  bool big_endian = false;  // the byte order of the sending host
  bool has_iomap = true;    // supports I/O mappings
  uint16_t credits = 0;     // messages that the peer may send initially
  uint32_t iomap_entries = 0;
  Buffer target_list;  // `length` counts entries
  Buffer data;         // the first buffer
};
inline constexpr size_t kConnectionDataSize = 40;

std::array<uint8_t, kConnectionDataSize> Encode(const ConnectionData& data);
// Absent if it is too short, of another version, or its target list is empty.
// Private data is padded; extra bytes are ignored.
std::optional<ConnectionData> ParseConnectionData(
    std::span<const uint8_t> bytes);

// The number of I/O mappings is sent in eight bits: in steps of 256 if above
// 128.
uint8_t ScaleIomapEntries(uint32_t entries);
uint32_t UnscaleIomapEntries(uint8_t scaled);
// Rounds to a number that can be sent.
inline uint32_t RoundIomapEntries(uint32_t entries) {
  return UnscaleIomapEntries(ScaleIomapEntries(entries));
}

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_PROTOCOL_H_
