// Converts between the two forms of a memory key with block signatures
// (mlx5dv_wr_set_mkey_sig_block(3)): the memory form, which is the bytes of its
// layout, and the wire form, which work requests and peers address. Either may
// have a signature after each complete block of data; the data are the same.
#ifndef RXE_USER_MEMORY_SIGNATURE_SIGNATURE_CONVERTER_H_
#define RXE_USER_MEMORY_SIGNATURE_SIGNATURE_CONVERTER_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "rxe_user/memory/signature/guard.h"
#include "rxe_user/memory/signature/signature_config.h"

namespace rxe_user {

// The positions of data and signatures in one form. All numbers are bytes.
class BlockForm {
 public:
  explicit BlockForm(const SignatureDomain& domain)
      : data_(domain.guard == GuardKind::kNone ? 0 : domain.block_size),
        size_(data_ + SignatureSize(domain.guard)) {}

  bool has_signatures() const { return data_ != 0; }
  uint64_t data() const { return data_; }  // of a block
  uint64_t size() const { return size_; }  // of a block and its signature
  uint64_t signature() const { return size_ - data_; }
  uint64_t BlockOf(uint64_t place) const { return place / size_; }
  // The position of byte `data` of the data.
  uint64_t PlaceOfData(uint64_t data) const {
    return has_signatures() ? data + data / data_ * signature() : data;
  }
  uint64_t PlaceOfSignature(uint64_t block) const {
    return block * size_ + data_;
  }
  // The number of data bytes before `place`.
  uint64_t DataBefore(uint64_t place) const {
    if (!has_signatures()) return place;
    return place / size_ * data_ + std::min(place % size_, data_);
  }
  // The length of `data` bytes of data with the signatures of complete blocks.
  uint64_t LengthOf(uint64_t data) const { return PlaceOfData(data); }
  // Whether `place` is inside or at the start of a signature.
  bool IsSignature(uint64_t place) const {
    return has_signatures() && place % size_ >= data_;
  }
  // The number of bytes from byte `data` of the data to the end of its block.
  uint64_t RestOfBlock(uint64_t data) const {
    return has_signatures() ? data_ - data % data_
                            : std::numeric_limits<uint64_t>::max();
  }
  bool IsBlockEnd(uint64_t data) const {
    return has_signatures() && data % data_ == 0;
  }

 private:
  uint64_t data_;
  uint64_t size_;
};

// The memory form, starting at byte 0 of it.
class MemoryForm {
 public:
  // False: the memory is gone.
  virtual bool Read(uint64_t place, std::span<uint8_t> out) = 0;
  virtual bool Write(uint64_t place, std::span<const uint8_t> bytes) = 0;

 protected:
  ~MemoryForm() = default;
};

// A wrong signature.
struct SignatureError {
  enum class Kind : uint8_t { kNone, kGuard, kAppTag, kRefTag };
  Kind kind = Kind::kNone;
  uint64_t actual = 0;    // computed from the data, or configured
  uint64_t expected = 0;  // in the signature
  uint64_t offset = 0;    // of the block, in the form that was checked
};

// The state at a place inside a block, from which the next bytes can continue.
// Without a cursor, the preceding bytes of the block are read from memory.
struct SignatureCursor {
  static constexpr uint64_t kNowhere = std::numeric_limits<uint64_t>::max();

  uint64_t place = kNowhere;  // in the wire form
  uint64_t memory_guard = 0;  // guard states of the current blocks
  uint64_t wire_guard = 0;
  // The part of the signature that was received, from byte `known_from` on.
  std::array<uint8_t, 8> fields{};
  uint8_t known_from = 0;
};

class SignatureConverter {
 public:
  // `memory_length`: the length of the memory form.
  SignatureConverter(const SignatureConfig& config, uint64_t memory_length);

  uint64_t wire_length() const { return wire_length_; }

  // A part of the memory form.
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  // The part of the memory form that a conversion of [begin, end) of the wire
  // form accesses. `resumes`: there is a cursor for `begin`.
  Range MemoryRange(uint64_t begin, uint64_t end, bool resumes) const;
  // Whether a conversion that begins at `place` can use a cursor.
  bool UsesCursor(uint64_t place) const;
  // The start, in the wire form, of the bytes that the states of a cursor for
  // `place` cover.
  uint64_t CursorBegin(uint64_t place) const {
    return wire_form_.PlaceOfData(FirstData(place));
  }

  // Convert from memory to the wire, and from the wire to memory: as many bytes
  // as the span has, starting at byte `place` of the wire form, within the
  // length. They use `*cursor` if it is for that place, and leave it at the
  // end. They check the signatures of blocks that end; `*error` gets the first
  // wrong one unless it holds one already. False: the memory is gone, and
  // `*cursor` is undefined.
  bool Gather(uint64_t place, std::span<uint8_t> out, MemoryForm& memory,
              SignatureCursor* cursor, SignatureError* error) const;
  bool Scatter(uint64_t place, std::span<const uint8_t> bytes,
               MemoryForm& memory, SignatureCursor* cursor,
               SignatureError* error) const;

 private:
  enum class Direction : uint8_t { kGather, kScatter };
  using Fields = std::array<uint8_t, 8>;

  // A signature's bytes as one number.
  static uint64_t ValueOf(GuardKind kind, const Fields& fields);
  static Fields FieldsOf(GuardKind kind, uint64_t value);
  static uint64_t Computed(const SignatureDomain& domain, uint64_t block,
                           uint64_t guard_state);

  bool HasMemorySignature(uint64_t block) const {
    return memory_form_.PlaceOfSignature(block) + memory_form_.signature() <=
           memory_length_;
  }
  // The first byte of data before `place` that the states of blocks must
  // include.
  uint64_t FirstData(uint64_t place) const;
  bool NeedsGuard(const SignatureDomain& domain, bool is_output) const;
  // Makes a cursor for `place` by reading memory.
  bool Rebuild(uint64_t place, Direction direction, MemoryForm& memory,
               SignatureCursor* cursor) const;
  bool ReadData(uint64_t data, std::span<uint8_t> out,
                MemoryForm& memory) const;
  // Adds `bytes`, which begin at byte `data` of the data, to the states.
  void AddData(uint64_t data, std::span<const uint8_t> bytes,
               Direction direction, SignatureCursor* cursor) const;
  void Check(const SignatureDomain& domain, const BlockForm& form,
             uint64_t block, uint64_t guard_state, const Fields& fields,
             SignatureError* error) const;
  // The signature to write: computed, with the bytes of `input` that copy_
  // selects.
  Fields Output(const SignatureDomain& domain, uint64_t block,
                uint64_t guard_state, const Fields& input) const;
  bool ReadMemorySignature(uint64_t block, MemoryForm& memory,
                           Fields* fields) const;

  SignatureConfig config_;
  BlockForm memory_form_;
  BlockForm wire_form_;
  uint64_t memory_length_;
  uint64_t wire_length_;
  uint64_t copy_;  // mask of bits, of the values that ValueOf returns
};

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_SIGNATURE_SIGNATURE_CONVERTER_H_
