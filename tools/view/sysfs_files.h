// What programs find of our devices below /sys and /dev: names and formats of
// the kernel (its Documentation/ABI/stable/sysfs-class-infiniband).
#ifndef TOOLS_VIEW_SYSFS_FILES_H_
#define TOOLS_VIEW_SYSFS_FILES_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rxe_user/devices/device.h"

namespace view {

// A file, or a symbolic link; or a folder that has the files of another one.
struct Entry {
  bool link = false;
  std::string text;   // what is in it, where it leads, or the other folder
  bool same = false;  // the folder; only in an index (index.h)

  bool operator==(const Entry&) const = default;
};

// By path from the root, without a slash in front; folders are implied.
using Files = std::map<std::string, Entry>;

using Counters = std::vector<std::pair<std::string, uint64_t>>;

// Every counter that a device has, at 0.
Counters NoCounters();

// `counters`: of each device, by its name. `sysfs` is read for what is known of
// the interfaces and of the processors: "/sys". The devices' uverbs numbers are
// their places in `devices`, as libibverbs has them.
Files SysfsFiles(const rxe_user::Devices& devices,
                 const std::map<std::string, Counters>& counters,
                 const std::string& sysfs);

// The same for an index: counters, all at 0, are there once for all devices.
Files IndexFiles(const rxe_user::Devices& devices, const std::string& sysfs);

// The files that hold `counters` alone.
Files CounterFiles(const std::map<std::string, Counters>& counters);

}  // namespace view

#endif  // TOOLS_VIEW_SYSFS_FILES_H_
