#include "rxe_user/memory/mkey_layout.h"

#include <algorithm>

namespace rxe_user {
namespace {

constexpr uint32_t kMaxStride = 65535;  // bytes

}  // namespace

MkeyLayout::MkeyLayout(uint16_t capacity)
    : entries_(std::make_unique_for_overwrite<Entry[]>(capacity)),
      capacity_(capacity) {}

bool MkeyLayout::Set(std::span<const transport::Sge> list) {
  if (list.size() > capacity_) return false;
  count_ = 0;
  repeat_count_ = 1;
  round_ = 0;
  for (const transport::Sge& sge : list) {
    round_ += sge.length;
    entries_[count_++] = {sge.addr, round_, sge.lkey, 0};
  }
  return true;
}

bool MkeyLayout::Set(std::span<const transport::InterleavedPiece> pieces,
                     uint32_t repeat_count) {
  if (pieces.size() > capacity_ || repeat_count == 0) return false;
  for (const transport::InterleavedPiece& piece : pieces) {
    if (uint32_t{piece.bytes} + piece.skip > kMaxStride) return false;
  }
  count_ = 0;
  repeat_count_ = repeat_count;
  round_ = 0;
  for (const transport::InterleavedPiece& piece : pieces) {
    round_ += piece.bytes;
    entries_[count_++] = {piece.addr, round_, piece.lkey,
                          uint32_t{piece.bytes} + piece.skip};
  }
  return true;
}

MkeyLayout::Cursor::Cursor(const MkeyLayout& layout, uint64_t offset)
    : layout_(layout),
      repetition_(offset / layout.round_),
      position_(offset % layout.round_) {
  const std::span<const Entry> entries(layout.entries_.get(), layout.count_);
  const auto found =
      std::upper_bound(entries.begin(), entries.end(), position_,
                       [](uint64_t position, const Entry& entry) {
                         return position < entry.end;
                       });
  entry_ = static_cast<uint32_t>(found - entries.begin());
}

bool MkeyLayout::Cursor::Next(uint64_t most, Piece* out) {
  // Pieces of 0 bytes are skipped.
  while (position_ == layout_.entries_[entry_].end) {
    if (++entry_ == layout_.count_) {
      entry_ = 0;
      position_ = 0;
      ++repetition_;
    }
  }
  const Entry& entry = layout_.entries_[entry_];
  out->lkey = entry.lkey;
  out->length = std::min(entry.end - position_, most);
  const uint64_t offset =
      repetition_ * entry.stride + (position_ - layout_.BeginOf(entry_));
  uint64_t end;
  if (__builtin_add_overflow(entry.addr, offset, &out->va) ||
      __builtin_add_overflow(out->va, out->length - 1, &end)) {
    return false;
  }
  position_ += out->length;
  return true;
}

}  // namespace rxe_user
