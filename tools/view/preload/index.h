// Reads an index (index_format.h). Context: any. May change errno.
#ifndef TOOLS_VIEW_PRELOAD_INDEX_H_
#define TOOLS_VIEW_PRELOAD_INDEX_H_

#include <stddef.h>

#include "tools/view/index_format.h"

namespace view {

// A mapped index. Empty before Open and after a failure.
class Index {
 public:
  Index() = default;
  Index(const Index&) = delete;
  ~Index();

  // `folder`: the descriptor of the index's folder.
  void Open(int folder, const char* name);

  uint32_t size() const { return count_; }
  const IndexEntry& operator[](uint32_t i) const { return entries_[i]; }
  const char* Path(uint32_t i) const { return base_ + entries_[i].path; }
  const char* Text(const IndexEntry& entry) const { return base_ + entry.text; }

  // The first entry whose path is not less than `path`.
  uint32_t LowerBound(const char* path) const;
  // The entry of exactly this path; null if there is none.
  const IndexEntry* Find(const char* path) const;

 private:
  const char* base_ = nullptr;
  const IndexEntry* entries_ = nullptr;
  uint32_t count_ = 0;
  size_t mapped_ = 0;
};

}  // namespace view

#endif  // TOOLS_VIEW_PRELOAD_INDEX_H_
