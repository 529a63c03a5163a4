#include "tools/view/preload/path.h"

namespace view {
namespace {

// What of `path` follows the component `name`, if that comes first; or null.
// `path` begins with a slash, or nothing matches.
const char* After(const char* path, const char* name) {
  if (*path != '/') return nullptr;
  while (*path == '/') ++path;
  while (*name != 0 && *path == *name) {
    ++path;
    ++name;
  }
  return *name == 0 && (*path == '/' || *path == 0) ? path : nullptr;
}

}  // namespace

bool IsViewed(const char* path) {
  if (path == nullptr || path[0] != '/') return false;
  if (const char* rest = After(path, "sys")) {
    const char* folder = After(rest, "class");
    if (folder == nullptr) {
      folder = After(rest, "devices");
      if (folder != nullptr) folder = After(folder, "virtual");
    }
    return folder != nullptr && (After(folder, "infiniband") != nullptr ||
                                 After(folder, "infiniband_verbs") != nullptr);
  }
  const char* rest = After(path, "dev");
  return rest != nullptr && After(rest, "infiniband") != nullptr;
}

bool IsInSys(const char* viewed_path) {
  return After(viewed_path, "sys") != nullptr;
}

}  // namespace view
