#include "rxe_user/memory/signature/signature_converter.h"

#include <bit>
#include <cstring>

namespace rxe_user {
namespace {

constexpr uint64_t kT10GuardShift = 48;
constexpr uint64_t kT10AppShift = 32;
constexpr uint64_t kT10Guard = uint64_t{0xffff} << kT10GuardShift;
constexpr uint64_t kT10App = uint64_t{0xffff} << kT10AppShift;
constexpr uint64_t kT10Ref = 0xffffffff;

// Converts a mask of bytes to a mask of the bits of a signature's value.
uint64_t BitsOf(uint8_t bytes, GuardKind kind) {
  if (SignatureSize(kind) == 4) bytes >>= 4;
  uint64_t bits = 0;
  for (unsigned byte = 0; byte < 8; ++byte) {
    if ((bytes >> byte & 1) != 0) bits |= uint64_t{0xff} << (8 * byte);
  }
  return bits;
}

uint64_t GuardBits(GuardKind kind) {
  return IsT10(kind) ? kT10Guard : BitsOf(0xff, kind);
}

// The guard kind by which to read the copy mask. Unless that is 0, its bits
// mean the same for both domains.
GuardKind AnyKind(const SignatureConfig& config) {
  return config.memory.guard != GuardKind::kNone ? config.memory.guard
                                                 : config.wire.guard;
}

bool HaveSameGuard(const SignatureConfig& config) {
  return config.memory.guard == config.wire.guard &&
         config.memory.ones_seed == config.wire.ones_seed &&
         config.memory.block_size == config.wire.block_size;
}

}  // namespace

SignatureConverter::SignatureConverter(const SignatureConfig& config,
                                       uint64_t memory_length)
    : config_(config),
      memory_form_(config.memory),
      wire_form_(config.wire),
      memory_length_(memory_length),
      wire_length_(wire_form_.LengthOf(memory_form_.DataBefore(memory_length))),
      copy_(BitsOf(config.copy_mask, AnyKind(config))) {}

uint64_t SignatureConverter::ValueOf(GuardKind kind, const Fields& fields) {
  uint64_t value;
  std::memcpy(&value, fields.data(), sizeof(value));
  if (IsT10(kind)) return __builtin_bswap64(value);
  return SignatureSize(kind) == 4 ? value & 0xffffffff : value;
}

SignatureConverter::Fields SignatureConverter::FieldsOf(GuardKind kind,
                                                        uint64_t value) {
  if (IsT10(kind)) value = __builtin_bswap64(value);
  Fields fields;
  std::memcpy(fields.data(), &value, sizeof(value));
  return fields;
}

uint64_t SignatureConverter::Computed(const SignatureDomain& domain,
                                      uint64_t block, uint64_t guard_state) {
  const uint64_t guard = FinishGuard(domain.guard, guard_state);
  if (!IsT10(domain.guard)) return guard;
  const auto ref =
      static_cast<uint32_t>(domain.ref_tag + (domain.counts_up ? block : 0));
  return guard << kT10GuardShift | uint64_t{domain.app_tag} << kT10AppShift |
         ref;
}

uint64_t SignatureConverter::FirstData(uint64_t place) const {
  const uint64_t data = wire_form_.DataBefore(place);
  // At a place in a signature, the block is the one that has just ended.
  const bool ended = wire_form_.IsSignature(place);
  uint64_t first = data;
  for (const BlockForm* form : {&memory_form_, &wire_form_}) {
    if (!form->has_signatures()) continue;
    const uint64_t within =
        data % form->data() == 0 && ended ? form->data() : data % form->data();
    first = std::min(first, data - within);
  }
  return first;
}

SignatureConverter::Range SignatureConverter::MemoryRange(uint64_t begin,
                                                          uint64_t end,
                                                          bool resumes) const {
  uint64_t first = memory_form_.PlaceOfData(
      resumes ? wire_form_.DataBefore(begin) : FirstData(begin));
  if (copy_ != 0 && wire_form_.IsSignature(begin)) {
    first = std::min(first,
                     memory_form_.PlaceOfSignature(wire_form_.BlockOf(begin)));
  }
  const uint64_t last = memory_form_.PlaceOfData(wire_form_.DataBefore(end));
  return {first, std::min(last, memory_length_)};
}

bool SignatureConverter::UsesCursor(uint64_t place) const {
  return wire_form_.IsSignature(place) ||
         FirstData(place) != wire_form_.DataBefore(place);
}

bool SignatureConverter::NeedsGuard(const SignatureDomain& domain,
                                    bool is_output) const {
  const uint64_t guard = GuardBits(domain.guard);
  const uint64_t used =
      is_output ? ~copy_ : BitsOf(config_.check_mask, domain.guard);
  return (used & guard) != 0;
}

bool SignatureConverter::ReadData(uint64_t data, std::span<uint8_t> out,
                                  MemoryForm& memory) const {
  while (!out.empty()) {
    const size_t bytes =
        std::min<uint64_t>(out.size(), memory_form_.RestOfBlock(data));
    if (!memory.Read(memory_form_.PlaceOfData(data), out.first(bytes))) {
      return false;
    }
    data += bytes;
    out = out.subspan(bytes);
  }
  return true;
}

void SignatureConverter::AddData(uint64_t data, std::span<const uint8_t> bytes,
                                 Direction direction,
                                 SignatureCursor* cursor) const {
  const bool gathers = direction == Direction::kGather;
  const auto add = [&](const SignatureDomain& domain, const BlockForm& form,
                       uint64_t* state) {
    const uint64_t within = data % form.data();
    if (within == 0) *state = BeginGuard(domain);
    *state = ExtendGuard(domain.guard, *state, bytes, within);
  };
  const bool of_memory =
      memory_form_.has_signatures() && NeedsGuard(config_.memory, !gathers);
  const bool of_wire =
      wire_form_.has_signatures() && NeedsGuard(config_.wire, gathers);
  if (of_memory) add(config_.memory, memory_form_, &cursor->memory_guard);
  if (!of_wire) return;
  if (of_memory && HaveSameGuard(config_)) {
    cursor->wire_guard = cursor->memory_guard;
  } else {
    add(config_.wire, wire_form_, &cursor->wire_guard);
  }
}

bool SignatureConverter::Rebuild(uint64_t place, Direction direction,
                                 MemoryForm& memory,
                                 SignatureCursor* cursor) const {
  *cursor = {};
  cursor->place = place;
  if (wire_form_.IsSignature(place)) {
    cursor->known_from =
        static_cast<uint8_t>(place % wire_form_.size() - wire_form_.data());
  }
  const uint64_t end = wire_form_.DataBefore(place);
  std::array<uint8_t, 4096> buffer;
  for (uint64_t data = FirstData(place); data < end;) {
    const size_t bytes = std::min<uint64_t>({end - data, buffer.size(),
                                             memory_form_.RestOfBlock(data),
                                             wire_form_.RestOfBlock(data)});
    const std::span<uint8_t> part(buffer.data(), bytes);
    if (!ReadData(data, part, memory)) return false;
    AddData(data, part, direction, cursor);
    data += bytes;
  }
  return true;
}

bool SignatureConverter::ReadMemorySignature(uint64_t block, MemoryForm& memory,
                                             Fields* fields) const {
  *fields = {};
  return memory.Read(memory_form_.PlaceOfSignature(block),
                     std::span(*fields).first(memory_form_.signature()));
}

void SignatureConverter::Check(const SignatureDomain& domain,
                               const BlockForm& form, uint64_t block,
                               uint64_t guard_state, const Fields& fields,
                               SignatureError* error) const {
  if (error->kind != SignatureError::Kind::kNone) return;
  const uint64_t expected = ValueOf(domain.guard, fields);
  const uint64_t actual = Computed(domain, block, guard_state);
  const uint64_t different =
      (expected ^ actual) & BitsOf(config_.check_mask, domain.guard);
  if (different == 0) return;
  using Kind = SignatureError::Kind;
  const auto report = [&](Kind kind, uint64_t mask) {
    const int shift = std::countr_zero(mask);
    *error = {kind, (actual & mask) >> shift, (expected & mask) >> shift,
              block * form.size()};
  };
  if (!IsT10(domain.guard)) {
    return report(Kind::kGuard, GuardBits(domain.guard));
  }
  const bool app_escapes = (expected & kT10App) == kT10App;
  const bool ref_escapes = (expected & kT10Ref) == kT10Ref;
  if ((domain.escape == GuardEscape::kAppTag && app_escapes) ||
      (domain.escape == GuardEscape::kAppAndRefTag && app_escapes &&
       ref_escapes)) {
    return;
  }
  if ((different & kT10Guard) != 0) return report(Kind::kGuard, kT10Guard);
  if ((different & kT10App) != 0) return report(Kind::kAppTag, kT10App);
  report(Kind::kRefTag, kT10Ref);
}

SignatureConverter::Fields SignatureConverter::Output(
    const SignatureDomain& domain, uint64_t block, uint64_t guard_state,
    const Fields& input) const {
  uint64_t value = Computed(domain, block, guard_state);
  if (copy_ != 0) {
    value = (value & ~copy_) | (ValueOf(domain.guard, input) & copy_);
  }
  return FieldsOf(domain.guard, value);
}

bool SignatureConverter::Gather(uint64_t place, std::span<uint8_t> out,
                                MemoryForm& memory, SignatureCursor* cursor,
                                SignatureError* error) const {
  if (cursor->place != place &&
      !Rebuild(place, Direction::kGather, memory, cursor)) {
    return false;
  }
  const bool checks = memory_form_.has_signatures() &&
                      BitsOf(config_.check_mask, config_.memory.guard) != 0;
  while (!out.empty()) {
    size_t bytes;
    if (wire_form_.IsSignature(place)) {
      const uint64_t block = wire_form_.BlockOf(place);
      Fields input{};
      if (copy_ != 0 && HasMemorySignature(block) &&
          !ReadMemorySignature(block, memory, &input)) {
        return false;
      }
      const Fields fields =
          Output(config_.wire, block, cursor->wire_guard, input);
      const uint64_t within = place - wire_form_.PlaceOfSignature(block);
      bytes = std::min<uint64_t>(out.size(), wire_form_.signature() - within);
      std::memcpy(out.data(), fields.data() + within, bytes);
    } else {
      const uint64_t data = wire_form_.DataBefore(place);
      bytes = std::min<uint64_t>({out.size(), wire_form_.RestOfBlock(data),
                                  memory_form_.RestOfBlock(data)});
      const std::span<uint8_t> part = out.first(bytes);
      if (!memory.Read(memory_form_.PlaceOfData(data), part)) return false;
      AddData(data, part, Direction::kGather, cursor);
      const uint64_t end = data + bytes;
      if (checks && memory_form_.IsBlockEnd(end)) {
        const uint64_t block = end / memory_form_.data() - 1;
        Fields fields;
        if (HasMemorySignature(block)) {
          if (!ReadMemorySignature(block, memory, &fields)) return false;
          Check(config_.memory, memory_form_, block, cursor->memory_guard,
                fields, error);
        }
      }
    }
    place += bytes;
    out = out.subspan(bytes);
  }
  cursor->place = place;
  return true;
}

bool SignatureConverter::Scatter(uint64_t place, std::span<const uint8_t> bytes,
                                 MemoryForm& memory, SignatureCursor* cursor,
                                 SignatureError* error) const {
  if (cursor->place != place &&
      !Rebuild(place, Direction::kScatter, memory, cursor)) {
    return false;
  }
  const auto write_signature = [&](uint64_t block, const Fields& input) {
    if (!HasMemorySignature(block)) return true;
    const Fields fields =
        Output(config_.memory, block, cursor->memory_guard, input);
    return memory.Write(memory_form_.PlaceOfSignature(block),
                        std::span(fields).first(memory_form_.signature()));
  };
  while (!bytes.empty()) {
    size_t taken;
    if (wire_form_.IsSignature(place)) {
      const uint64_t block = wire_form_.BlockOf(place);
      const uint64_t within = place - wire_form_.PlaceOfSignature(block);
      if (within == 0) {
        cursor->fields = {};
        cursor->known_from = 0;
      }
      taken = std::min<uint64_t>(bytes.size(), wire_form_.signature() - within);
      std::memcpy(cursor->fields.data() + within, bytes.data(), taken);
      if (within + taken == wire_form_.signature() && cursor->known_from == 0) {
        Check(config_.wire, wire_form_, block, cursor->wire_guard,
              cursor->fields, error);
        if (copy_ != 0 && !write_signature(block, cursor->fields)) {
          return false;
        }
      }
    } else {
      const uint64_t data = wire_form_.DataBefore(place);
      taken = std::min<uint64_t>({bytes.size(), wire_form_.RestOfBlock(data),
                                  memory_form_.RestOfBlock(data)});
      const std::span<const uint8_t> part = bytes.first(taken);
      if (!memory.Write(memory_form_.PlaceOfData(data), part)) return false;
      AddData(data, part, Direction::kScatter, cursor);
      const uint64_t end = data + taken;
      if (copy_ == 0 && memory_form_.IsBlockEnd(end) &&
          !write_signature(end / memory_form_.data() - 1, {})) {
        return false;
      }
    }
    place += taken;
    bytes = bytes.subspan(taken);
  }
  cursor->place = place;
  return true;
}

}  // namespace rxe_user
