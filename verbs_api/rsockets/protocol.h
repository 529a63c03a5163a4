// The rsocket protocol of streams, as it is on the wire: rdma-core,
// librdmacm/docs/rsocket. No state.
//
// Data are RDMA writes into a buffer of the peer, with immediate data that say
// how many bytes they are. What a connection begins with is in the private data
// of the REQ and the REP.
#ifndef VERBS_API_RSOCKETS_PROTOCOL_H_
#define VERBS_API_RSOCKETS_PROTOCOL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace rsockets {

// What a message is: the upper three bits of the immediate data.
enum class Op : uint8_t {
  kData = 0,     // bytes that have been written into the buffer
  kWrite = 2,    // never sent: an RDMA write without immediate data
  kCredits = 4,  // the number of the message up to which the peer may send;
                 // perhaps an entry of its target list was written as well
  kIomap = 6,    // index of the I/O mapping that was written
  kControl = 7,
};

enum class Control : uint32_t {
  kDisconnect = 0,  // neither sends nor receives any more
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

// Entries are written in the byte order of the host that reads them: `swap` if
// it is not that of this host.
std::array<uint8_t, kBufferSize> EncodeBuffer(const Buffer& buffer, bool swap);
std::array<uint8_t, kIomapSize> EncodeIomap(const Iomap& iomap, bool swap);

// What both sides say of themselves when they connect.
struct ConnectionData {
  bool big_endian = false;  // this host's order
  bool has_iomap = true;    // understands I/O mappings
  uint16_t credits = 0;     // messages that the peer may send at first
  uint32_t iomap_entries = 0;
  Buffer target_list;  // `length` counts entries
  Buffer data;         // the first buffer
};
inline constexpr size_t kConnectionDataSize = 40;

std::array<uint8_t, kConnectionDataSize> Encode(const ConnectionData& data);
// Nothing if it is too short or of another version, or has no room for
// anything. Private data are longer than what was given: the rest is ignored.
std::optional<ConnectionData> ParseConnectionData(
    std::span<const uint8_t> bytes);

// The number of I/O mappings travels in eight bits: beyond 128 in steps of 256.
uint8_t ScaleIomapEntries(uint32_t entries);
uint32_t UnscaleIomapEntries(uint8_t scaled);
// The next number that can be said.
inline uint32_t RoundIomapEntries(uint32_t entries) {
  return UnscaleIomapEntries(ScaleIomapEntries(entries));
}

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_PROTOCOL_H_
