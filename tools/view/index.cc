#include "tools/view/index.h"

#include <algorithm>
#include <vector>

#include "tools/view/index_format.h"

namespace view {
namespace {

IndexKind KindOf(const Entry& entry) {
  if (entry.same) return IndexKind::kSame;
  return entry.link ? IndexKind::kLink : IndexKind::kFile;
}

template <typename T>
void Append(const T* values, size_t count, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

}  // namespace

std::string MakeIndex(const Files& files) {
  IndexHeader header{};
  std::copy(std::begin(kIndexMagic), std::end(kIndexMagic), header.magic);
  header.count = static_cast<uint32_t>(files.size());
  const size_t first_string =
      sizeof(header) + files.size() * sizeof(IndexEntry);
  std::vector<IndexEntry> entries;
  entries.reserve(files.size());
  std::string strings;
  const auto add = [&](const std::string& text) {
    const size_t at = first_string + strings.size();
    strings.append(text.c_str(), text.size() + 1);
    return static_cast<uint32_t>(at);
  };
  for (const auto& [path, entry] : files) {
    entries.push_back({add(path), add(entry.text),
                       static_cast<uint32_t>(entry.text.size()),
                       KindOf(entry)});
  }
  header.size = static_cast<uint32_t>(first_string + strings.size());
  std::string bytes;
  bytes.reserve(header.size);
  Append(&header, 1, &bytes);
  Append(entries.data(), entries.size(), &bytes);
  return bytes + strings;
}

}  // namespace view
