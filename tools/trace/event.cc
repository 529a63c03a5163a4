#include "tools/trace/event.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "tools/trace/time_text.h"
#include "wire/address.h"

namespace trace {
namespace {

using rxe_user::trace::EventField;
using rxe_user::trace::EventHeader;
using rxe_user::trace::FieldFormat;

// Sign-extended if the format is signed.
uint64_t Number(const EventField& field, const uint8_t* bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, std::min<size_t>(field.size, sizeof(value)));
  if (field.format == FieldFormat::kSigned && field.size < sizeof(value)) {
    const int shift = 64 - static_cast<int>(field.size) * 8;
    value =
        static_cast<uint64_t>(static_cast<int64_t>(value << shift) >> shift);
  }
  return value;
}

std::string Text(const EventField& field, uint64_t number,
                 const uint8_t* bytes) {
  switch (field.format) {
    case FieldFormat::kSigned:
      return std::to_string(static_cast<int64_t>(number));
    case FieldFormat::kHex:
      return absl::StrFormat("0x%x", number);
    case FieldFormat::kName: {
      const std::string_view name =
          rxe_user::trace::NameOf(field.names, number);
      return name.empty() ? std::to_string(number) : std::string(name);
    }
    case FieldFormat::kTime:
      return number == 0 ? "-" : TimeOfDay(static_cast<int64_t>(number), 9);
    case FieldFormat::kText:
      return std::string(
          reinterpret_cast<const char*>(bytes),
          strnlen(reinterpret_cast<const char*>(bytes), field.size));
    case FieldFormat::kBytes:
      return absl::BytesToHexString(
          {reinterpret_cast<const char*>(bytes), field.size});
    case FieldFormat::kAddress:
      return wire::IpAddress::FromGid(bytes).ToString();
    case FieldFormat::kNumber:
    case FieldFormat::kReserved:
      break;
  }
  return std::to_string(number);
}

}  // namespace

std::optional<Event> Event::Parse(std::span<const uint8_t> contents) {
  Event event;
  if (contents.size() < sizeof(EventHeader)) return std::nullopt;
  std::memcpy(&event.header_, contents.data(), sizeof(EventHeader));
  const EventHeader& h = event.header_;
  // A block is padded to a multiple of 4 bytes.
  if (h.magic != rxe_user::trace::kMagic || h.size < sizeof(EventHeader) ||
      h.size > contents.size()) {
    return std::nullopt;
  }
  event.bytes_.assign(contents.begin(), contents.begin() + h.size);
  event.header_.time = std::clamp<int64_t>(h.time, 0, kLatestTime);
  return event;
}

void Event::Copy(void* out, size_t size) const {
  std::memset(out, 0, size);
  std::memcpy(out, bytes_.data(), std::min(size, bytes_.size()));
}

std::string Event::name() const {
  const auto* const known = description();
  return known != nullptr ? std::string(known->name)
                          : "event " + std::to_string(header_.type);
}

std::vector<Event::Value> Event::Values() const {
  std::vector<Value> values;
  const auto* const known = description();
  if (known == nullptr) return values;
  std::vector<uint8_t> bytes(known->size);
  Copy(bytes.data(), bytes.size());
  for (const EventField& field : known->fields) {
    if (field.format == FieldFormat::kReserved) continue;
    const uint8_t* const at = bytes.data() + field.offset;
    const uint64_t number = Number(field, at);
    values.push_back({&field, number, Text(field, number, at)});
  }
  return values;
}

}  // namespace trace
