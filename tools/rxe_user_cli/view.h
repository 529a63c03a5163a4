// `rxe-user view`: the files that show our devices in /sys and /dev.
#ifndef TOOLS_RXE_USER_CLI_VIEW_H_
#define TOOLS_RXE_USER_CLI_VIEW_H_

#include <sys/types.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "tools/rxe_user_cli/stat_model.h"
#include "tools/view/sysfs_files.h"

namespace rxe_user_cli {

struct ViewOptions {
  pid_t user = 0;  // the process that uses the view; 0: our parent
  bool leave = false;
  bool lazy = false;      // write only the index (tools/view/index_format.h)
  bool counters = false;  // with `lazy`: also write counters
  bool known_devices = false;  // use the devices of the last call, if any
};

// Writes the tree (tools/view/tree.h) and prints its path; with `leave`,
// removes it if no other process uses it. Returns the exit status. `lazy` is
// for the preload library, which creates files from the index.
int RunView(const ViewOptions& options, std::FILE* out, std::FILE* err);

// Whether a process reports on `device`, one of `devices`: the interface is the
// same and, if it has several devices, the name too. The name alone is not
// enough: interfaces may have changed since the process numbered its devices.
bool IsOf(const StatDevice& reported, const rxe_user::Device& device,
          const rxe_user::Devices& devices);

// The sums of each device's counters over all `processes`, by device name.
// Devices that no process reports on are omitted; their counters are 0.
std::map<std::string, view::Counters> SumByDevice(
    const rxe_user::Devices& devices,
    const std::vector<StatProcess>& processes);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_VIEW_H_
