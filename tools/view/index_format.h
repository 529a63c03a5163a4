// The index of a view: every path that programs may look at, and what is there.
// `rxe-user view` writes it (index.h), and the preload library makes of it the
// files that a program looks at (preload/fill.h). Plain: the library has libc
// alone.
#ifndef TOOLS_VIEW_INDEX_FORMAT_H_
#define TOOLS_VIEW_INDEX_FORMAT_H_

#include <stdint.h>

namespace view {

// In the tree's root. The second holds counters that are not 0, and stands
// before the first.
inline constexpr char kIndexFile[] = ".index";
inline constexpr char kCountersFile[] = ".counters";

enum class IndexKind : uint32_t {
  kFile,
  kLink,
  kSame,  // a folder with the files of another one, which `text` names
};

// Numbers are in the host's order. Offsets are bytes from the beginning of the
// file; strings end with a zero.
struct IndexEntry {
  uint32_t path;  // from the root of the tree, without a slash in front
  uint32_t text;  // what is in the file, or where the link leads
  uint32_t text_size;
  IndexKind kind;
};

// `count` entries follow, ordered by path as strcmp(3) does. Folders are
// implied.
struct IndexHeader {
  char magic[8];
  uint32_t count;
  uint32_t size;  // of the whole file
};
inline constexpr char kIndexMagic[8] = {'r', 'x', 'e', 'u', 'i', 'd', 'x', '1'};

}  // namespace view

#endif  // TOOLS_VIEW_INDEX_FORMAT_H_
