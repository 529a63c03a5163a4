// Memory keys with block signatures. Their bytes are converted when they are
// copied, so Translate returns addresses that only the copies here understand.
#include <algorithm>
#include <cerrno>
#include <mutex>
#include <optional>

#include "rxe_user/memory/region_table.h"

namespace rxe_user {
namespace {

using transport::MemoryStatus;
using transport::SpanList;

// The bits of such an address: kSignedMemory, the number of the memory key, and
// the offset in its wire form.
constexpr unsigned kPlaceBits = 38;
constexpr unsigned kIdBits = 24;
static_assert(kSignedMemory >> (kIdBits + kPlaceBits) == 1);

uint8_t* AddressOf(uint32_t id, uint64_t place) {
  return reinterpret_cast<uint8_t*>(kSignedMemory | uint64_t{id} << kPlaceBits |
                                    place);
}
uint32_t IdOfAddress(uint64_t address) {
  return static_cast<uint32_t>(address >> kPlaceBits) & ((1u << kIdBits) - 1);
}
uint64_t PlaceOf(uint64_t address) {
  return address & ((uint64_t{1} << kPlaceBits) - 1);
}

}  // namespace

// A part of a key's layout. Regions are looked up when they are reached.
class RegionTable::SignedPieces final : public MemoryForm {
 public:
  SignedPieces(RegionTable& table, uint32_t id, uint32_t access,
               SignatureConverter::Range range)
      : table_(table), id_(id), access_(access), range_(range) {}

  bool Read(uint64_t place, std::span<uint8_t> out) override {
    return ForEach(place, out.size(), [&](uint8_t* bytes, size_t at, size_t n) {
      return table_.CopyFrom(out.data() + at, bytes, n, false);
    });
  }
  bool Write(uint64_t place, std::span<const uint8_t> in) override {
    return ForEach(place, in.size(), [&](uint8_t* bytes, size_t at, size_t n) {
      return table_.CopyTo(bytes, in.data() + at, n, false);
    });
  }

 private:
  template <typename Copy>
  bool ForEach(uint64_t place, size_t bytes, Copy&& copy) {
    for (size_t done = 0; done < bytes;) {
      if (!Find(place + done)) return false;
      const transport::Span& span = spans_[next_];
      const uint64_t within = place + done - begin_;
      const size_t part =
          std::min<uint64_t>(bytes - done, span.length - within);
      if (!copy(span.data + within, done, part)) return false;
      done += part;
    }
    return true;
  }
  // Advances spans_[next_], which begins at begin_, to the span that contains
  // `place`.
  bool Find(uint64_t place) {
    if (place < begin_) spans_.clear();
    while (next_ < spans_.size()) {
      if (place - begin_ < spans_[next_].length) return true;
      begin_ += spans_[next_++].length;
    }
    spans_.clear();
    next_ = 0;
    begin_ = place;
    std::shared_lock lock(table_.mutex_);
    const auto found = table_.mkeys_.find(id_);
    // The key may have another layout by now.
    if (found == table_.mkeys_.end() || place >= range_.end ||
        range_.end > found->second.layout.length()) {
      return false;
    }
    return table_.AppendPieces(
               found->second,
               {.access = access_, .va = place, .length = range_.end - place},
               &spans_) == MemoryStatus::kOk;
  }

  RegionTable& table_;
  const uint32_t id_;
  const uint32_t access_;
  const SignatureConverter::Range range_;
  SpanList spans_;
  size_t next_ = 0;
  uint64_t begin_ = 0;
};

MemoryStatus RegionTable::TranslateSigned(const Mkey& mkey,
                                          const SignatureConverter& converter,
                                          const transport::MemoryAccess& access,
                                          SpanList* out) {
  // Atomics are refused: their bytes have no signature.
  if ((access.access & transport::kAccessRemoteAtomic) != 0) {
    return MemoryStatus::kNoRight;
  }
  const SignatureConverter::Range range = converter.MemoryRange(
      access.va, access.va + access.length, /*resumes=*/true);
  if (range.begin < range.end) {
    SpanList pieces;
    const MemoryStatus status =
        AppendPieces(mkey,
                     {.access = access.access,
                      .va = range.begin,
                      .length = range.end - range.begin},
                     &pieces);
    if (status != MemoryStatus::kOk) return status;
  }
  out->push_back({AddressOf(IdOf(mkey.key), access.va), access.length, false});
  return MemoryStatus::kOk;
}

bool RegionTable::CopySigned(uint64_t address, uint8_t* out, const uint8_t* in,
                             size_t bytes) {
  const uint32_t id = IdOfAddress(address);
  const uint64_t place = PlaceOf(address);
  const bool scatters = in != nullptr;
  // The key may have changed since the translation.
  std::shared_lock lock(mutex_);
  const auto mkey = mkeys_.find(id);
  const auto found = signatures_.find(id);
  if (found == signatures_.end() || !mkey->second.valid ||
      !found->second.converter().has_value()) {
    return false;
  }
  const uint64_t length = found->second.converter()->wire_length();
  if (place > length || bytes > length - place) return false;
  MkeySignature::Conversion conversion = found->second.Begin(place, scatters);
  lock.unlock();

  const bool resumes = conversion.cursor.place == place;
  SignedPieces memory(
      *this, id,
      scatters ? transport::kAccessLocalWrite : transport::kAccessLocalRead,
      conversion.converter.MemoryRange(place, place + bytes, resumes));
  const bool done =
      scatters
          ? conversion.converter.Scatter(place, {in, bytes}, memory,
                                         &conversion.cursor, &conversion.error)
          : conversion.converter.Gather(place, {out, bytes}, memory,
                                        &conversion.cursor, &conversion.error);
  if (!done) return false;
  lock.lock();
  const auto again = signatures_.find(id);
  if (again != signatures_.end()) again->second.End(conversion);
  return true;
}

int RegionTable::TakeMkeyError(uint32_t key, SignatureError* out) {
  std::shared_lock lock(mutex_);
  MkeySignature* const signature = FindSignature(key);
  if (signature == nullptr) return EINVAL;
  *out = signature->TakeError();
  return 0;
}

bool RegionTable::NeedsOrder(uint32_t key) {
  std::shared_lock lock(mutex_);
  const MkeySignature* const signature = FindSignature(key);
  return signature != nullptr && signature->converter().has_value();
}

bool RegionTable::HasDataError(uint32_t key) {
  std::shared_lock lock(mutex_);
  MkeySignature* const signature = FindSignature(key);
  return signature != nullptr && signature->has_error();
}

MemoryStatus RegionTable::ReadTransform(
    const Mkey& mkey, const transport::MkeyConfiguration& configuration,
    uint64_t memory_length, std::optional<SignatureConfig>* out) {
  using Transform = transport::MkeyConfiguration::Transform;
  const MkeySignature* const signature = SignatureOf(mkey);
  switch (configuration.change) {
    case Transform::kNone:
      return MemoryStatus::kOk;
    case Transform::kKeep:
      if (signature != nullptr) *out = signature->config();
      break;
    case Transform::kSet:
      if (signature == nullptr) return MemoryStatus::kNoRight;
      if (!Unpack(configuration.transform, &out->emplace())) {
        return MemoryStatus::kOutOfRange;
      }
      break;
  }
  if (!out->has_value()) return MemoryStatus::kOk;
  const SignatureConverter converter(**out, memory_length);
  return converter.wire_length() <= uint64_t{1} << kPlaceBits
             ? MemoryStatus::kOk
             : MemoryStatus::kOutOfRange;
}

}  // namespace rxe_user
