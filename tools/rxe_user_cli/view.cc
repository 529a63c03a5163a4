#include "tools/rxe_user_cli/view.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "rxe_user/devices/usable_devices.h"
#include "tools/view/tree.h"

namespace rxe_user_cli {
namespace {

// A program waits for its file, and others for the tree.
constexpr std::chrono::milliseconds kPatience(100);

int Fail(const absl::Status& status, std::FILE* err) {
  std::fprintf(err, "rxe-user view: %s\n",
               std::string(status.message()).c_str());
  return 1;
}

}  // namespace

bool IsOf(const StatDevice& reported, const rxe_user::Device& device,
          const rxe_user::Devices& devices) {
  if (reported.device.Word("netdev") != device.netdev) return false;
  const std::string name = reported.device.Word("name");
  return name == device.name ||
         std::ranges::none_of(devices, [&](const auto& other) {
           return other->name == name && other->netdev == device.netdev;
         });
}

std::map<std::string, view::Counters> SumByDevice(
    const rxe_user::Devices& devices,
    const std::vector<StatProcess>& processes) {
  std::map<std::string, view::Counters> sums;
  for (const auto& device : devices) {
    view::Counters& counters = sums[device->name];
    counters = view::NoCounters();
    for (const StatProcess& process : processes) {
      for (const StatDevice& reported : process.devices) {
        if (!IsOf(reported, *device, devices)) continue;
        for (auto& [name, value] : counters) {
          value += CounterOf(reported.device, name);
        }
      }
    }
  }
  return sums;
}

int RunView(const ViewOptions& options, std::FILE* out, std::FILE* err) {
  umask(022);  // the program's own may keep us from what we make
  const pid_t user = options.user != 0 ? options.user : getppid();
  const absl::StatusOr<std::string> place =
      view::BaseFolder(std::getenv("XDG_RUNTIME_DIR"));
  if (!place.ok()) return Fail(place.status(), err);
  const std::string& base = *place;
  const std::string key = view::TreeKey(std::getenv("RXE_USER_DEVICES"));
  if (options.leave) {
    absl::StatusOr<view::Tree> tree = view::Tree::Open(base, key);
    if (!tree.ok()) return Fail(tree.status(), err);
    tree->Leave(user);
    return 0;
  }

  // Before values are read: who comes later then writes later values.
  absl::StatusOr<view::Tree> tree = view::Tree::Open(base, key);
  if (!tree.ok()) return Fail(tree.status(), err);
  if (tree->made()) view::Tree::RemoveUnused(base);
  absl::StatusOr<rxe_user::Devices> devices = rxe_user::ListDevices();
  if (devices.ok()) devices = rxe_user::KeepUsable(*devices);
  absl::Status status = devices.status();
  if (status.ok()) status = tree->Join(user);
  if (status.ok()) {
    status = tree->Write(view::SysfsFiles(
        *devices, SumByDevice(*devices, AskAll(0, kPatience).processes),
        "/sys"));
  }
  if (!status.ok()) {
    tree->Leave(user);
    return Fail(status, err);
  }
  std::fprintf(out, "%s\n", tree->root().c_str());
  return std::fflush(out) == 0 ? 0 : 1;
}

}  // namespace rxe_user_cli
