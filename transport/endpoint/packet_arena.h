// Memory in which queue pairs buffer packets out of order.
#ifndef TRANSPORT_ENDPOINT_PACKET_ARENA_H_
#define TRANSPORT_ENDPOINT_PACKET_ARENA_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace transport {

// The buffer of one queue pair: 256 KiB in equal slots, at most 512.
struct PacketArena {
  static constexpr size_t kBytes = 256 * 1024;
  static constexpr size_t kMaxPackets = 512;

  struct Entry {
    uint64_t psn;
    uint16_t slot;
    uint16_t size;  // bytes
  };

  uint8_t bytes[kBytes];
  Entry entries[kMaxPackets];  // ascending by PSN
  uint16_t free_slots[kMaxPackets];
};

// The arenas of one endpoint, limited in number. Allocated on demand; a few are
// cached.
class PacketArenaPool {
 public:
  static constexpr size_t kMaxArenas = 256;  // 64 MiB in total
  static constexpr size_t kKept = 8;

  // Null at the limit, or without memory.
  std::unique_ptr<PacketArena> Take();
  void Return(std::unique_ptr<PacketArena> arena);  // accepts null
  size_t in_use() const { return out_; }

 private:
  size_t out_ = 0;
  std::array<std::unique_ptr<PacketArena>, kKept> kept_;
  size_t kept_count_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_PACKET_ARENA_H_
