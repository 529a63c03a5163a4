#include "transport/endpoint/packet_arena.h"

#include <utility>

namespace transport {

std::unique_ptr<PacketArena> PacketArenaPool::Take() {
  if (out_ == kMaxArenas) return nullptr;
  ++out_;
  if (kept_.empty()) return std::make_unique_for_overwrite<PacketArena>();
  std::unique_ptr<PacketArena> arena = std::move(kept_.back());
  kept_.pop_back();
  return arena;
}

void PacketArenaPool::Give(std::unique_ptr<PacketArena> arena) {
  if (arena == nullptr) return;
  --out_;
  if (kept_.size() < kKept) kept_.push_back(std::move(arena));
}

}  // namespace transport
