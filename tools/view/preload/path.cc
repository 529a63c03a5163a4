#include "tools/view/preload/path.h"

#include <string.h>

namespace view {
namespace {

// The remainder of `path` after its first component, if that component is
// `name`. Otherwise null, also if `path` does not start with a slash.
const char* After(const char* path, const char* name) {
  if (*path != '/') return nullptr;
  while (*path == '/') ++path;
  while (*name != 0 && *path == *name) {
    ++path;
    ++name;
  }
  return *name == 0 && (*path == '/' || *path == 0) ? path : nullptr;
}

// The same after any first component.
const char* AfterAny(const char* path) {
  if (*path != '/') return nullptr;
  while (*path == '/') ++path;
  if (*path == 0) return nullptr;
  while (*path != '/' && *path != 0) ++path;
  return path;
}

}  // namespace

bool IsViewed(const char* path) {
  if (path == nullptr || path[0] != '/') return false;
  if (const char* rest = After(path, "sys")) {
    const char* folder = After(rest, "class");
    if (folder == nullptr) {
      folder = After(rest, "devices");
      if (folder != nullptr) folder = After(folder, "virtual");
    } else if (const char* interface = After(folder, "net")) {
      folder = AfterAny(interface);
      if (folder != nullptr) folder = After(folder, "device");
    }
    return folder != nullptr && (After(folder, "infiniband") != nullptr ||
                                 After(folder, "infiniband_verbs") != nullptr);
  }
  const char* rest = After(path, "dev");
  return rest != nullptr && After(rest, "infiniband") != nullptr;
}

bool IsCounter(const char* viewed_path) {
  constexpr const char* kFolders[] = {"/counters/", "/hw_counters/"};
  for (const char* folder : kFolders) {
    const char* const found = strstr(viewed_path, folder);
    if (found != nullptr && found[strlen(folder)] != 0) return true;
  }
  return false;
}

bool IsInSys(const char* viewed_path) {
  return After(viewed_path, "sys") != nullptr;
}

}  // namespace view
