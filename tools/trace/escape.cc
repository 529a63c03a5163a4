#include "tools/trace/escape.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_replace.h"

namespace trace {
namespace {

// The size of the UTF-8 character at the start of `text`; 0: it is not valid or
// not printable.
size_t CharacterSize(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return first < 0x20 || first == 0x7f ? 0 : 1;
  const size_t size = first >= 0xf0 ? 4 : (first >= 0xe0 ? 3 : 2);
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  uint32_t code = first & (0x7f >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kMin[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kMin[size] || code > 0x10ffff) return 0;
  if (code >= 0xd800 && code <= 0xdfff) return 0;
  // C1 controls, marks that change the direction, and characters that XML
  // forbids.
  if (code < 0xa0 || (code >= 0x200e && code <= 0x200f) ||
      (code >= 0x2028 && code <= 0x202e) ||
      (code >= 0x2066 && code <= 0x2069) || (code & 0xfffe) == 0xfffe) {
    return 0;
  }
  return size;
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t size = CharacterSize(text);
    if (size == 0) {
      out += '?';
      text.remove_prefix(1);
    } else {
      out += text.substr(0, size);
      text.remove_prefix(size);
    }
  }
  return out;
}

std::string EscapeXml(std::string_view text) {
  return absl::StrReplaceAll(Printable(text), {{"&", "&amp;"},
                                               {"<", "&lt;"},
                                               {">", "&gt;"},
                                               {"\"", "&quot;"},
                                               {"'", "&#39;"}});
}

}  // namespace trace
