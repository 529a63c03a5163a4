#include "tools/rxe_user_cli/view.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <utility>

#include "rxe_user/devices/usable_devices.h"
#include "tools/view/tree.h"

namespace rxe_user_cli {
namespace {

// Short, because a program waits for its file, and others wait for the lock of
// the tree.
constexpr std::chrono::milliseconds kStatTimeout(100);

constexpr char kSysfs[] = "/sys";

// A line for each device: what IsOf needs.
constexpr char kNamesFile[] = ".devices";

std::string ToNames(const rxe_user::Devices& devices) {
  std::string text = "\n";  // the list may be empty
  for (const auto& device : devices) {
    text += device->netdev + "/" + device->name + "\n";
  }
  return text;
}

rxe_user::Devices FromNames(const std::string& text) {
  rxe_user::Devices devices;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    auto device = std::make_shared<rxe_user::Device>();
    device->netdev = line.substr(0, slash);
    device->name = line.substr(slash + 1);
    devices.push_back(std::move(device));
  }
  return devices;
}

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
  std::map<std::string, rxe_user::Devices> by_netdev;
  for (const auto& device : devices) {
    by_netdev[device->netdev].push_back(device);
  }
  std::map<std::string, view::Counters> sums;
  for (const StatProcess& process : processes) {
    for (const StatDevice& reported : process.devices) {
      const auto found = by_netdev.find(reported.device.Word("netdev"));
      if (found == by_netdev.end()) continue;
      for (const auto& device : found->second) {
        if (!IsOf(reported, *device, found->second)) continue;
        view::Counters& counters = sums[device->name];
        if (counters.empty()) counters = view::NoCounters();
        for (auto& [name, value] : counters) {
          value += CounterOf(reported.device, name);
        }
      }
    }
  }
  return sums;
}

int RunView(const ViewOptions& options, std::FILE* out, std::FILE* err) {
  umask(022);  // the program's umask must not hide our files from us
  const pid_t user = options.user != 0 ? options.user : getppid();
  const absl::StatusOr<std::string> place =
      view::BaseFolder(std::getenv("XDG_RUNTIME_DIR"));
  if (!place.ok()) return Fail(place.status(), err);
  const std::string& base = *place;
  const std::string key = view::TreeKey(std::getenv("RXE_USER_DEVICES"),
                                        std::getenv("RXE_USER_MLX5"));
  if (options.leave) {
    absl::StatusOr<view::Tree> tree = view::Tree::Open(base, key);
    if (!tree.ok()) return Fail(tree.status(), err);
    tree->Leave(user);
    return 0;
  }

  // Lock before reading values, so that a later process writes later values.
  absl::StatusOr<view::Tree> tree = view::Tree::Open(base, key);
  if (!tree.ok()) return Fail(tree.status(), err);
  if (tree->made()) view::Tree::RemoveUnused(base);
  std::string names;
  if (options.lazy && options.known_devices) names = tree->Get(kNamesFile);
  absl::StatusOr<rxe_user::Devices> devices = FromNames(names);
  if (names.empty()) {
    devices = rxe_user::ListDevices();
    if (devices.ok()) devices = rxe_user::KeepUsable(*devices);
  }
  absl::Status status = devices.status();
  if (status.ok()) status = tree->Join(user);
  if (status.ok() && options.lazy && names.empty()) {
    status = tree->WriteIndex(view::IndexFiles(*devices, kSysfs));
    if (status.ok()) status = tree->Put(kNamesFile, ToNames(*devices));
  }
  if (status.ok() && (!options.lazy || options.counters)) {
    const auto counters =
        SumByDevice(*devices, AskAll(0, kStatTimeout).processes);
    status = options.lazy
                 ? tree->WriteCounters(view::CounterFiles(counters))
                 : tree->Write(view::SysfsFiles(*devices, counters, kSysfs));
  }
  if (!status.ok()) {
    tree->Leave(user);
    return Fail(status, err);
  }
  std::fprintf(out, "%s\n", tree->root().c_str());
  return std::fflush(out) == 0 ? 0 : 1;
}

}  // namespace rxe_user_cli
