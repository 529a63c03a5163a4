#include "transport/endpoint/packet_arena.h"

#include <new>
#include <utility>

namespace transport {

std::unique_ptr<PacketArena> PacketArenaPool::Take() {
  if (out_ == kMaxArenas) return nullptr;
  std::unique_ptr<PacketArena> arena =
      kept_count_ != 0
          ? std::move(kept_[--kept_count_])
          : std::unique_ptr<PacketArena>(new (std::nothrow) PacketArena);
  if (arena != nullptr) ++out_;
  return arena;
}

void PacketArenaPool::Return(std::unique_ptr<PacketArena> arena) {
  if (arena == nullptr) return;
  --out_;
  if (kept_count_ < kKept) kept_[kept_count_++] = std::move(arena);
}

}  // namespace transport
