// Writes an index (index_format.h).
#ifndef TOOLS_VIEW_INDEX_H_
#define TOOLS_VIEW_INDEX_H_

#include <string>

#include "tools/view/sysfs_files.h"

namespace view {

// The bytes of an index of `files`.
std::string MakeIndex(const Files& files);

}  // namespace view

#endif  // TOOLS_VIEW_INDEX_H_
