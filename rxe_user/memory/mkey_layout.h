// The layout of a memory key: the pieces of regions that make up its bytes
// (mlx5dv_wr_post(3)).
#ifndef RXE_USER_MEMORY_MKEY_LAYOUT_H_
#define RXE_USER_MEMORY_MKEY_LAYOUT_H_

#include <cstdint>
#include <memory>
#include <span>

#include "transport/base/memory.h"
#include "transport/base/types.h"

namespace rxe_user {

// A list of pieces. An interleaved layout repeats the list; with each
// repetition, each piece moves by its stride (Entry::stride). Byte 0 of the key
// is the first byte of the first piece.
//
// Not thread-safe; the owner guards it.
class MkeyLayout {
 public:
  // Allocates `capacity` entries, so that no later call does. May throw
  // bad_alloc.
  explicit MkeyLayout(uint16_t capacity);

  // Replaces the layout. False, without effect: more entries than the capacity,
  // or values that transport::InterleavedPiece does not permit.
  bool Set(std::span<const transport::Sge> list);
  bool Set(std::span<const transport::InterleavedPiece> pieces,
           uint32_t repeat_count);

  // Bytes; below 2^55.
  uint64_t length() const { return uint64_t{repeat_count_} * round_; }

  // Contiguous bytes in a region.
  struct Piece {
    uint32_t lkey = 0;
    uint64_t va = 0;
    uint64_t length = 0;  // bytes
  };

  // Reads the pieces in order. The layout must not change meanwhile.
  class Cursor {
   public:
    // Starts at byte `offset`, which must be less than the length. Takes time
    // logarithmic in the number of entries, whatever the offset.
    Cursor(const MkeyLayout& layout, uint64_t offset);
    // Returns the next 1 to `most` bytes of one piece. False: their address is
    // beyond 2^64. Must not be called at the end of the layout.
    bool Next(uint64_t most, Piece* out);

   private:
    const MkeyLayout& layout_;
    uint64_t repetition_;
    uint32_t entry_;
    uint64_t position_;  // bytes from the start of the repetition
  };

 private:
  struct Entry {
    uint64_t addr;  // of its piece in repetition 0
    uint64_t end;   // of its piece, bytes from the start of the repetition
    uint32_t lkey;
    uint32_t stride;  // bytes between its pieces
  };
  uint64_t BeginOf(uint32_t entry) const {
    return entry == 0 ? 0 : entries_[entry - 1].end;
  }

  std::unique_ptr<Entry[]> entries_;
  uint64_t round_ = 0;  // bytes of one repetition
  uint32_t repeat_count_ = 1;
  uint16_t count_ = 0;  // of entries
  uint16_t capacity_;
};

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_MKEY_LAYOUT_H_
