#include "tools/view/sysfs_files.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_format.h"
#include "rxe_user/devices/link_rate.h"
#include "rxe_user/observe/device_report.h"

namespace view {
namespace {

namespace fs = std::filesystem;
using rxe_user::Device;

// IBA vol. 1, 14.2.5.6: communication management, and GIDs that are IP
// addresses. ibv_query_port returns the same.
constexpr uint32_t kPortCapabilities = 1u << 16 | 1u << 26;
constexpr int kUverbsMajor = 231;  // of the kernel's uverbs devices
constexpr int kUverbsFirstMinor = 192;

// Reads a line without the newline; empty if it cannot be read.
std::string ReadLine(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Converts "0-3,8" to a mask of 32-bit words, the highest first: "0000010f".
std::string CpuMask(const std::string& list) {
  std::vector<uint32_t> words(1);
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    unsigned first = 0, last = 0;
    const int got = std::sscanf(range.c_str(), "%u-%u", &first, &last);
    if (got < 1) continue;
    if (got == 1) last = first;
    for (unsigned cpu = first; cpu <= last && cpu < 65536; ++cpu) {
      if (words.size() <= cpu / 32) words.resize(cpu / 32 + 1);
      words[cpu / 32] |= 1u << cpu % 32;
    }
  }
  std::string text;
  for (size_t i = words.size(); i-- > 0;) {
    absl::StrAppendFormat(&text, "%08x%s", words[i], i != 0 ? "," : "");
  }
  return text;
}

// Adds files to a folder.
class Folder {
 public:
  Folder(Files* files, std::string path)
      : files_(files), path_(std::move(path)) {}

  Folder In(const std::string& name) const {
    return Folder(files_, path_ + "/" + name);
  }
  // Attributes end with a newline.
  void File(const std::string& name, const std::string& text) const {
    (*files_)[path_ + "/" + name] = {false, text.empty() ? "" : text + "\n"};
  }
  void Link(const std::string& name, const std::string& target) const {
    (*files_)[path_ + "/" + name] = {true, target};
  }
  void Same(const std::string& name, const std::string& other) const {
    (*files_)[path_ + "/" + name] = {false, other, true};
  }

 private:
  Files* files_;
  std::string path_;
};

// Adds the target of the link `device`: the interface's own device, if there is
// one, with the attributes that programs look for.
void AddParent(const Device& device, const std::string& uverbs,
               const fs::path& sysfs, const Folder& folder) {
  const fs::path interface = sysfs / "class/net" / device.netdev;
  std::error_code error;
  const fs::path parent = fs::canonical(interface / "device", error);
  if (!error) {
    for (const char* name :
         {"class", "revision", "driver", "subsystem", "current_link_speed",
          "current_link_width", "max_link_speed", "max_link_width"}) {
      if (Exists(parent / name)) folder.Link(name, parent / name);
    }
    // Not for a device that looks like mlx5: UCX takes over the queues of a
    // device with the IDs of a ConnectX.
    for (const char* name : {"vendor", "device", "subsystem_vendor",
                             "subsystem_device", "modalias"}) {
      if (!device.mlx5 && Exists(parent / name)) {
        folder.Link(name, parent / name);
      }
    }
  }
  folder.File("uevent", "");

  // A virtio interface is a child of the PCI function that has the NUMA node.
  std::string node, cpus;
  for (const fs::path& p : {parent, parent.parent_path()}) {
    if (error || !node.empty()) break;
    node = ReadLine(p / "numa_node");
    cpus = ReadLine(p / "local_cpulist");
  }
  if (cpus.empty()) cpus = ReadLine(sysfs / "devices/system/cpu/online");
  folder.File("numa_node", node.empty() ? "-1" : node);
  folder.File("local_cpulist", cpus);
  folder.File("local_cpus", CpuMask(cpus));

  folder.In("net").Link(device.netdev, interface);
  // Relative to .../infiniband/NAME/device/infiniband.
  folder.In("infiniband").Link(device.name, "../../../" + device.name);
  folder.In("infiniband_verbs")
      .Link(uverbs, "../../../../infiniband_verbs/" + uverbs);
}

void AddPort(const Device& device, const Folder& port) {
  port.File("state", device.up ? "4: ACTIVE" : "1: DOWN");
  port.File("phys_state", device.up ? "5: LinkUp" : "3: Disabled");
  port.File("rate", rxe_user::LinkRateText(
                        rxe_user::LinkRateOf(device.NominalSpeed())));
  port.File("link_layer", "Ethernet");
  port.File("lid", "0x0");
  port.File("lid_mask_count", "0");
  port.File("sm_lid", "0x0");
  port.File("sm_sl", "0");
  port.File("cap_mask", absl::StrFormat("0x%08x", kPortCapabilities));
  port.In("pkeys").File("0", "0xffff");
  for (size_t i = 0; i < device.gids.size(); ++i) {
    const std::string index = std::to_string(i);
    port.In("gids").File(index, GidText(device.gids[i].address));
    // For an empty GID the kernel returns an error.
    if (device.gids[i].address.is_unspecified()) continue;
    port.In("gid_attrs/types").File(index, "RoCE v2");
    port.In("gid_attrs/ndevs").File(index, device.netdev);
  }
}

constexpr const char* kCounterFolders[] = {"counters", "hw_counters"};

void AddCounters(const Counters& counters, const Folder& port) {
  for (const auto& [name, value] : counters) {
    port.In(kCounterFolders[name.starts_with("port_") ? 0 : 1])
        .File(name, std::to_string(value));
  }
  // The time in milliseconds for which the kernel caches values.
  port.In(kCounterFolders[1]).File("lifespan", "0");
}

// Adds the links by which programs find the device of an interface.
void AddToInterface(const Device& device, const std::string& uverbs,
                    const Folder& interface) {
  const Folder parent = interface.In("device");
  const std::string virtuals = "../../../../../devices/virtual/";
  parent.In("infiniband")
      .Link(device.name, virtuals + "infiniband/" + device.name);
  parent.In("infiniband_verbs")
      .Link(uverbs, virtuals + "infiniband_verbs/" + uverbs);
}

// "." and ".." would lead to other folders.
bool IsName(const std::string& name) { return name != "." && name != ".."; }

constexpr char kDevices[] = "sys/devices/virtual/infiniband";

// All files except the counters.
Files WithoutCounters(const rxe_user::Devices& devices,
                      const std::string& sysfs) {
  Files files;
  const Folder classes(&files, "sys/class");
  const Folder virtuals(&files, "sys/devices/virtual");
  const Folder nodes(&files, "dev/infiniband");
  // Programs check that the character device can be opened, and use libibverbs
  // for the rest. Commands and ioctls on this one fail.
  nodes.Link("rdma_cm", "/dev/full");
  classes.In("infiniband_verbs").File("abi_version", "6");
  for (size_t i = 0; i < devices.size(); ++i) {
    const Device& device = *devices[i];
    if (!IsName(device.name)) continue;
    const std::string uverbs = "uverbs" + std::to_string(i);
    nodes.Link(uverbs, "/dev/full");

    classes.In("infiniband")
        .Link(device.name, "../../devices/virtual/infiniband/" + device.name);
    const Folder folder = virtuals.In("infiniband").In(device.name);
    folder.File("node_type", "1: CA");
    folder.File("node_guid", GuidText(device.guid));
    folder.File("sys_image_guid", GuidText(device.guid));
    folder.File("node_desc", "rxe_user");
    folder.File("fw_ver", "rxe_user");
    folder.File("hw_rev", "0");
    folder.File("hca_type", "rxe_user");
    folder.File("board_id", "rxe_user");
    // The interface, as in rxe.
    folder.File("parent", device.netdev);
    folder.File("uevent", "NAME=" + device.name);
    folder.Link("subsystem", "../../../../class/infiniband");
    AddParent(device, uverbs, sysfs, folder.In("device"));
    AddPort(device, folder.In("ports/1"));
    AddToInterface(device, uverbs, classes.In("net").In(device.netdev));

    classes.In("infiniband_verbs")
        .Link(uverbs, "../../devices/virtual/infiniband_verbs/" + uverbs);
    const Folder verbs = virtuals.In("infiniband_verbs").In(uverbs);
    verbs.File("ibdev", device.name);
    verbs.File("abi_version", "1");
    const int minor = kUverbsFirstMinor + static_cast<int>(i);
    verbs.File("dev", absl::StrFormat("%d:%d", kUverbsMajor, minor));
    verbs.File("uevent",
               absl::StrFormat("MAJOR=%d\nMINOR=%d\nDEVNAME=infiniband/%s",
                               kUverbsMajor, minor, uverbs));
    verbs.Link("device", "../../infiniband/" + device.name + "/device");
    verbs.Link("subsystem", "../../../../class/infiniband_verbs");
  }
  return files;
}

Folder PortOf(const std::string& device, Files* files) {
  return Folder(files, kDevices).In(device).In("ports/1");
}

}  // namespace

std::string GuidText(uint64_t guid) {
  return absl::StrFormat("%04x:%04x:%04x:%04x", guid >> 48, guid >> 32 & 0xffff,
                         guid >> 16 & 0xffff, guid & 0xffff);
}

std::string GidText(const wire::IpAddress& address) {
  std::string text;
  for (size_t i = 0; i < address.bytes.size(); i += 2) {
    absl::StrAppendFormat(&text, "%s%02x%02x", i == 0 ? "" : ":",
                          address.bytes[i], address.bytes[i + 1]);
  }
  return text;
}

Counters NoCounters() {
  rxe_user::DeviceReport report;
  report.lanes.resize(1);
  Counters counters;
  for (const rxe_user::CounterValue& value : CountersOf(report)) {
    counters.emplace_back(value.counter->name, value.value);
  }
  return counters;
}

Files SysfsFiles(const rxe_user::Devices& devices,
                 const std::map<std::string, Counters>& counters,
                 const std::string& sysfs) {
  Files files = WithoutCounters(devices, sysfs);
  const Counters none = NoCounters();
  for (const auto& device : devices) {
    if (!IsName(device->name)) continue;
    const auto values = counters.find(device->name);
    AddCounters(values != counters.end() ? values->second : none,
                PortOf(device->name, &files));
  }
  return files;
}

Files IndexFiles(const rxe_user::Devices& devices, const std::string& sysfs) {
  Files files = WithoutCounters(devices, sysfs);
  for (const auto& device : devices) {
    if (!IsName(device->name)) continue;
    for (const char* folder : kCounterFolders) {
      PortOf(device->name, &files).Same(folder, std::string("none/") + folder);
    }
  }
  AddCounters(NoCounters(), Folder(&files, "none"));
  return files;
}

Files CounterFiles(const std::map<std::string, Counters>& counters) {
  Files files;
  for (const auto& [device, values] : counters) {
    if (IsName(device)) AddCounters(values, PortOf(device, &files));
  }
  return files;
}

}  // namespace view
