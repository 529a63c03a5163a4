// `rxe-user view`: what programs find of our devices in /sys and /dev.
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
  pid_t user = 0;  // the process that looks; 0: the one that started us
  bool leave = false;
  bool lazy = false;           // the index alone (tools/view/index_format.h)
  bool counters = false;       // and, then, counters
  bool known_devices = false;  // those that were found last, if any were
};

// Writes the folder (tools/view/tree.h) anew and prints its name; or, with
// `leave`, removes it if nobody else uses it. The exit status. `lazy` is for
// the preload library, which makes files of what the index says.
int RunView(const ViewOptions& options, std::FILE* out, std::FILE* err);

// Whether what a process reports is `device`, one of `devices`: by the
// interface and, where that is several devices, the name. A process may know
// the interface by another name of ours than we do, since others have come or
// gone meanwhile.
bool IsOf(const StatDevice& reported, const rxe_user::Device& device,
          const rxe_user::Devices& devices);

// The sums of each device's counters over all `processes`, by its name. Devices
// that no process reports are left out: theirs are 0.
std::map<std::string, view::Counters> SumByDevice(
    const rxe_user::Devices& devices,
    const std::vector<StatProcess>& processes);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_VIEW_H_
