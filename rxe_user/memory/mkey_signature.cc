#include "rxe_user/memory/mkey_signature.h"

#include <utility>

namespace rxe_user {

void MkeySignature::Set(const std::optional<SignatureConfig>& config,
                        uint64_t memory_length) {
  config_ = config;
  converter_.reset();
  if (config) converter_.emplace(*config, memory_length);
  ++generation_;
  slots_ = {};
}

MkeySignature::Conversion MkeySignature::Begin(uint64_t place, bool scatters) {
  Conversion conversion = {.converter = *converter_,
                           .begin = place,
                           .generation = generation_,
                           .scatters = scatters};
  std::lock_guard<std::mutex> lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.cursor.place == place && slot.scatters == scatters) {
      conversion.cursor = std::exchange(slot.cursor, {});
      break;
    }
  }
  return conversion;
}

void MkeySignature::End(const Conversion& conversion) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (error_.kind == SignatureError::Kind::kNone) error_ = conversion.error;
  const uint64_t place = conversion.cursor.place;
  if (conversion.generation != generation_) return;
  if (conversion.scatters) {
    for (Slot& slot : slots_) {
      const uint64_t at = slot.cursor.place;
      if (at != SignatureCursor::kNowhere && at > conversion.begin &&
          conversion.converter.CursorBegin(at) < place) {
        slot = {};
      }
    }
  }
  if (!conversion.converter.UsesCursor(place)) return;
  // Replaces a cursor that an earlier transfer left at this place.
  Slot* to = nullptr;
  for (Slot& slot : slots_) {
    if (slot.cursor.place == place && slot.scatters == conversion.scatters) {
      to = &slot;
      break;
    }
    if (slot.cursor.place == SignatureCursor::kNowhere) to = &slot;
  }
  if (to == nullptr) to = &slots_[oldest_++ % slots_.size()];
  *to = {conversion.cursor, conversion.scatters};
}

SignatureError MkeySignature::TakeError() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(error_, {});
}

bool MkeySignature::has_error() {
  std::lock_guard<std::mutex> lock(mutex_);
  return error_.kind != SignatureError::Kind::kNone;
}

}  // namespace rxe_user
