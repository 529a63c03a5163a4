// The index of a view: every path in it, and its contents. `rxe-user view`
// writes it (index.h). The preload library creates files from it when a program
// accesses them (preload/fill.h). The format is simple, because that library
// only uses libc.
#ifndef TOOLS_VIEW_INDEX_FORMAT_H_
#define TOOLS_VIEW_INDEX_FORMAT_H_

#include <stdint.h>

namespace view {

// In the root of the tree. The counters file holds only non-zero counters and
// takes precedence over the index.
inline constexpr char kIndexFile[] = ".index";
inline constexpr char kCountersFile[] = ".counters";

enum class IndexKind : uint32_t {
  kFile,
  kLink,
  kSame,  // a folder with the contents of the folder `text`
};

// Numbers are in host byte order. Offsets are in bytes from the start of the
// file. Strings end with a zero byte.
struct IndexEntry {
  uint32_t path;  // from the root of the tree, without a leading slash
  uint32_t text;  // the content of the file, or the target of the link
  uint32_t text_size;
  IndexKind kind;
};

// Followed by `count` entries, ordered by path as strcmp(3) orders them.
// Folders exist implicitly.
struct IndexHeader {
  char magic[8];
  uint32_t count;
  uint32_t size;  // bytes of the whole file
};
inline constexpr char kIndexMagic[8] = {'r', 'x', 'e', 'u', 'i', 'd', 'x', '1'};

}  // namespace view

#endif  // TOOLS_VIEW_INDEX_FORMAT_H_
