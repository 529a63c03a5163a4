// The files under which our devices appear in /sys and /dev, with the names and
// formats of the kernel (its Documentation/ABI/stable/sysfs-class-infiniband).
#ifndef TOOLS_VIEW_SYSFS_FILES_H_
#define TOOLS_VIEW_SYSFS_FILES_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rxe_user/devices/device.h"
#include "wire/address.h"

namespace view {

// A file, a symbolic link, or a folder with the contents of another folder.
struct Entry {
  bool link = false;
  std::string text;   // the content, the target, or the other folder
  bool same = false;  // a folder like `text`; only in an index (index.h)

  bool operator==(const Entry&) const = default;
};

// By path from the root, without a leading slash. Folders exist implicitly.
using Files = std::map<std::string, Entry>;

// "0000:00ff:fe00:00ab", for a GUID in host order.
std::string GuidText(uint64_t guid);
// All eight groups of a GID.
std::string GidText(const wire::IpAddress& address);

using Counters = std::vector<std::pair<std::string, uint64_t>>;

// Every counter of a device, with the value 0.
Counters NoCounters();

// `counters`: by device name. `sysfs`: where interfaces and processors are
// described, usually "/sys". The uverbs number of a device is its position in
// `devices`, as in libibverbs.
Files SysfsFiles(const rxe_user::Devices& devices,
                 const std::map<std::string, Counters>& counters,
                 const std::string& sysfs);

// The same for an index. All devices share one set of counters with value 0.
Files IndexFiles(const rxe_user::Devices& devices, const std::string& sysfs);

// Only the files of `counters`.
Files CounterFiles(const std::map<std::string, Counters>& counters);

}  // namespace view

#endif  // TOOLS_VIEW_SYSFS_FILES_H_
