#include "rxe_user/devices/device.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "rxe_user/base/environment.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/only_one.h"
#include "rxe_user/base/settings.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/base/warn_once.h"
#include "rxe_user/devices/device_list.h"
#include "rxe_user/devices/netdev.h"
#include "rxe_user/faults/fault_settings.h"

namespace rxe_user {
namespace {

// IPv6, UDP, BTH, XRCETH, RETH, immediate, ICRC: the largest headers of a
// packet with payload.
constexpr uint32_t kMaxHeaders = 40 + 8 + 12 + 4 + 16 + 4 + 4;
constexpr size_t kMaxConfig = 1 << 20;
constexpr size_t kMaxNameLength = 63;  // IBV_SYSFS_NAME_MAX without its zero

uint64_t Mix(uint64_t h) {  // splitmix64's finalizer
  h ^= h >> 30;
  h *= 0xbf58476d1ce4e5b9;
  h ^= h >> 27;
  h *= 0x94d049bb133111eb;
  return h ^ h >> 31;
}

// FNV-1a, then Mix. The same in every process, unlike absl::Hash.
uint64_t StableHash(const std::string& text) {
  uint64_t h = 0xcbf29ce484222325;
  for (const unsigned char c : text) h = (h ^ c) * 0x100000001b3;
  return Mix(h);
}

bool HasMac(const Interface& interface) {
  return std::ranges::any_of(interface.mac, [](uint8_t b) { return b != 0; });
}

// The modified EUI-64 of the MAC address if that is unique. VLANs share their
// parent's address, ipvlans even across namespaces, and loopback has none: for
// these it is a hash, marked as locally administered.
uint64_t Guid(const Interface& interface, bool mac_is_unique,
              const std::string& host_identity) {
  const auto& m = interface.mac;
  if (HasMac(interface) && mac_is_unique && interface.kind != "ipvlan") {
    const uint8_t eui[8] = {static_cast<uint8_t>(m[0] ^ 2),
                            m[1],
                            m[2],
                            0xff,
                            0xfe,
                            m[3],
                            m[4],
                            m[5]};
    uint64_t guid = 0;
    for (const uint8_t b : eui) guid = guid << 8 | b;
    return guid;
  }
  const std::string mac(m.begin(), m.end());
  const uint64_t hash =
      StableHash(absl::StrCat(host_identity, "\n", interface.name, "\n", mac));
  // Universal/local bit clear (local, in modified EUI-64), group bit clear.
  return (hash & ~(uint64_t{3} << 56)) | uint64_t{1} << 63;
}

Device MakeDevice(const Interface& interface, std::string name, uint64_t guid) {
  return {.name = std::move(name),
          .netdev = interface.name,
          .ifindex = interface.index,
          .mtu = interface.mtu,
          .roce_mtu = RoceMtu(interface.mtu),
          .up = interface.up && interface.running,
          .loopback = interface.loopback,
          .speed_mbps = interface.speed_mbps,
          .mac = interface.mac,
          .guid = guid,
          .gids = interface.addresses,
          .public_addresses = {}};
}

// An option of an entry: `name` or `name=value`.
struct Option {
  std::string name;
  std::string value;
  bool has_value;
};

struct Choice {
  std::string name;  // empty: rxeuN
  std::string netdev;
  int line = 0;
  std::vector<Option> options;
};

// The parts of `text` before and after its first '='. Without a '=', the first
// part is all of it.
std::pair<std::string, std::string> Halves(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(text, absl::MaxSplits('=', 1));
  return {std::string(absl::StripAsciiWhitespace(halves.first)),
          std::string(absl::StripAsciiWhitespace(halves.second))};
}

Choice ParseChoice(absl::string_view entry, int line) {
  const std::vector<absl::string_view> parts = absl::StrSplit(entry, '/');
  Choice choice;
  choice.line = line;
  auto [name, netdev] = Halves(parts[0]);
  const bool named = absl::StrContains(parts[0], '=');
  choice.netdev = named ? netdev : name;
  if (named) choice.name = name;
  for (size_t i = 1; i < parts.size(); ++i) {
    auto [option, value] = Halves(parts[i]);
    choice.options.push_back({std::move(option), std::move(value),
                              absl::StrContains(parts[i], '=')});
  }
  return choice;
}

std::vector<Choice> ParseChoices(const std::string& entries) {
  std::vector<Choice> choices;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(entries, '\n')) {
    ++number;
    for (absl::string_view part : absl::StrSplit(line, ',')) {
      part = part.substr(0, part.find('#'));
      part = absl::StripAsciiWhitespace(part);
      if (part.empty()) continue;
      choices.push_back(ParseChoice(part, number));
    }
  }
  return choices;
}

// Replaces an address of `device`'s interface by the public address `known`.
// False if the interface has no suitable address.
bool SetPublic(const wire::IpAddress& known, Device* device) {
  const auto found =
      std::ranges::find_if(device->gids, [&](const LocalAddress& gid) {
        return gid.address.is_v4() == known.is_v4() &&
               !IsLinkLocal(gid.address) &&
               std::ranges::none_of(device->public_addresses,
                                    [&](const PublicAddress& other) {
                                      return other.known == gid.address;
                                    });
      });
  if (found == device->gids.end()) return false;
  device->public_addresses.push_back({known, found->address});
  *found = {known, 0};
  return true;
}

// The text of an error in an entry. It quotes the value of the variable, but
// not the file, whose content may be secret.
std::string Problem(const DeviceConfig& config, int line,
                    absl::string_view quoted, absl::string_view unquoted) {
  if (config.file.empty()) return absl::StrCat("RXE_USER_DEVICES: ", quoted);
  return absl::StrCat("RXE_USER_DEVICES: line ", line, " of ", config.file,
                      ": ", unquoted);
}

// Applies an option of an entry to `device`. Returns the text of an error,
// empty if there is none.
std::string Apply(const Option& option, const std::string& netdev,
                  Device* device) {
  if (option.name == "mlx5") {
    if (option.has_value) return "option 'mlx5' has no value";
    device->mlx5 = true;
    return "";
  }
  if (option.name != "public") {
    return absl::StrCat("there is no option '", option.name, "'");
  }
  const std::optional<wire::IpAddress> known =
      wire::IpAddress::Parse(option.value);
  if (!known.has_value() || known->is_unspecified() || known->is_multicast() ||
      IsLinkLocal(*known)) {
    return absl::StrCat("'", option.value, "' is not a public address");
  }
  if (!SetPublic(*known, device)) {
    return absl::StrCat("interface '", netdev, "' has no address that ",
                        option.value, " could replace");
  }
  return "";
}

// Abseil's string views are not the standard's.
std::string Joined(std::span<const std::string_view> words) {
  return absl::StrJoin(std::vector<std::string>(words.begin(), words.end()),
                       ", ");
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Identifies the host (machine-id; and boot_id, since cloned images share the
// machine-id) and the network namespace.
std::string HostIdentity() {
  struct stat ns {};
  ::stat("/proc/self/ns/net", &ns);
  return absl::StrCat(ReadFile("/etc/machine-id"),
                      ReadFile("/proc/sys/kernel/random/boot_id"), ns.st_ino);
}

// Reads a regular file of at most kMaxConfig bytes. False for any other file:
// it does not open one that blocks (a FIFO) or has side effects (a device).
bool ReadRegularFile(const char* path, std::string* text) {
  const UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat file;
  if (!fd.valid() || ::fstat(fd.get(), &file) != 0 || !S_ISREG(file.st_mode)) {
    return false;
  }
  text->resize(kMaxConfig + 1);
  const ssize_t got = ::pread(fd.get(), text->data(), text->size(), 0);
  if (got < 0 || static_cast<size_t>(got) > kMaxConfig) return false;
  text->resize(static_cast<size_t>(got));
  return true;
}

}  // namespace

DeviceConfig ReadDeviceConfig(const char* value,
                              std::vector<std::string>* problems) {
  if (value == nullptr) return {};
  if (value[0] != '/') return {value, ""};
  DeviceConfig config;
  if (!ReadRegularFile(value, &config.entries)) {
    problems->push_back(absl::StrCat("RXE_USER_DEVICES: cannot read ", value));
    return {};
  }
  config.file = value;
  return config;
}

uint32_t RoceMtu(uint32_t interface_mtu) {
  for (uint32_t mtu = 4096; mtu >= 256; mtu /= 2) {
    if (mtu + kMaxHeaders <= interface_mtu) return mtu;
  }
  return 0;
}

const std::string& DeviceNames::Of(const Interface& interface,
                                   const std::set<std::string>& taken) {
  std::string& name = names_[{interface.index, interface.name}];
  while (name.empty() || taken.contains(name)) {
    name = absl::StrCat("rxeu", next_++);
  }
  return name;
}

std::string WhyUnusable(const Interface& interface) {
  if (!interface.up) return "it is down";
  if (interface.addresses.empty()) return "it has no address";
  if (RoceMtu(interface.mtu) == 0) {
    return absl::StrCat("its MTU of ", interface.mtu,
                        " bytes is too small: the smallest RoCE MTU needs ",
                        256 + kMaxHeaders);
  }
  return "";
}

std::string WhyLeftOut(const Interface& interface) {
  for (const char* kind : {"bridge", "bond", "team", "openvswitch"}) {
    if (interface.master_kind == kind) {
      return absl::StrCat("it is a port of ", kind, " ", interface.master,
                          "; RXE_USER_DEVICES may name it");
    }
  }
  return "";
}

Devices BuildDevices(const std::vector<Interface>& interfaces,
                     const DeviceConfig& config,
                     const std::string& host_identity, DeviceNames* names,
                     std::vector<std::string>* problems) {
  // GUIDs depend on all interfaces, not only on the chosen ones.
  std::map<uint32_t, uint64_t> guids;
  std::set<std::array<uint8_t, 6>> seen;
  for (const Interface& interface : interfaces) {
    guids[interface.index] =
        Guid(interface, seen.insert(interface.mac).second, host_identity);
  }
  std::vector<std::pair<Choice, const Interface*>> chosen;
  const std::vector<Choice> choices = ParseChoices(config.entries);
  for (const Choice& choice : choices) {
    const auto found =
        std::ranges::find(interfaces, choice.netdev, &Interface::name);
    if (found == interfaces.end()) {
      problems->push_back(
          Problem(config, choice.line,
                  absl::StrCat("there is no interface '", choice.netdev, "'"),
                  "there is no such interface"));
    } else if (const std::string why = WhyUnusable(*found); !why.empty()) {
      problems->push_back(
          Problem(config, choice.line,
                  absl::StrCat("interface '", choice.netdev, "': ", why),
                  absl::StrCat("the interface: ", why)));
    } else if (choice.name.size() > kMaxNameLength) {
      problems->push_back(Problem(
          config, choice.line,
          absl::StrCat("'", choice.name, "' is not a valid device name"),
          "the name is not a valid device name"));
    } else {
      chosen.emplace_back(choice, &*found);
    }
  }
  if (choices.empty()) {
    for (const bool loopback : {false, true}) {
      for (const Interface& interface : interfaces) {
        if (interface.loopback == loopback && WhyUnusable(interface).empty() &&
            WhyLeftOut(interface).empty()) {
          chosen.emplace_back(Choice(), &interface);
        }
      }
    }
  }

  Devices devices;
  std::set<std::string> configured;
  for (const auto& [choice, _] : chosen) configured.insert(choice.name);
  std::set<std::string> given;
  for (const auto& [choice, interface] : chosen) {
    std::string unique =
        choice.name.empty() ? names->Of(*interface, configured) : choice.name;
    if (!given.insert(unique).second) {
      problems->push_back(Problem(
          config, choice.line, absl::StrCat("two devices named '", unique, "'"),
          "a device before it has the same name"));
      continue;
    }
    Device device =
        MakeDevice(*interface, std::move(unique), guids[interface->index]);
    device.mlx5 = config.all_mlx5;
    for (const Option& option : choice.options) {
      const std::string quoted = Apply(option, interface->name, &device);
      if (!quoted.empty()) {
        problems->push_back(Problem(config, choice.line, quoted,
                                    "an option of the device is wrong"));
      }
    }
    devices.push_back(std::make_shared<const Device>(std::move(device)));
  }
  return devices;
}

namespace {

// The results of ListDevices, for the next call.
struct KnownDevices {
  ForkSafeMutex mutex;
  DeviceNames names;
  // Absent if the program may have no device, since its fault rules are wrong.
  std::optional<DeviceConfig> config;
  bool has_config = false;
};

// Reads the environment, and notes the result for ListDevicesAgain.
std::optional<DeviceConfig> ReadConfig(std::vector<std::string>* problems) {
  std::optional<DeviceConfig> config;
  FaultSettings faults;
  // If faults are requested, the program must not run without them.
  if (const auto wrong = ReadFaultSettings(&faults)) {
    WarnOnceAbout("faults", absl::StrCat(*wrong, "; there is no device"));
  } else {
    config = ReadDeviceConfig(Environment("RXE_USER_DEVICES"), problems);
    config->all_mlx5 = AllMlx5();
  }
  KnownDevices& known = OnlyOne<KnownDevices>();
  const std::lock_guard<ForkSafeMutex> lock(known.mutex);
  known.config = config;
  known.has_config = true;
  return config;
}

absl::StatusOr<Devices> DevicesOf(const DeviceConfig& config,
                                  std::vector<std::string> problems) {
  const auto interfaces = ReadInterfaces();
  if (!interfaces.ok()) return interfaces.status();
  Devices devices;
  {
    const std::string host = HostIdentity();
    KnownDevices& known = OnlyOne<KnownDevices>();
    const std::lock_guard<ForkSafeMutex> lock(known.mutex);
    devices = BuildDevices(*interfaces, config, host, &known.names, &problems);
  }
  std::vector<PublicAddress> translated;
  for (const auto& device : devices) {
    translated.insert(translated.end(), device->public_addresses.begin(),
                      device->public_addresses.end());
  }
  AddPublicAddresses(translated);
  for (const std::string& problem : problems) WarnOnce(problem);
  return devices;
}

}  // namespace

absl::StatusOr<Devices> ListDevices() {
  std::vector<std::string> problems;
  const std::optional<DeviceConfig> config = ReadConfig(&problems);
  if (!config.has_value()) return Devices();
  const auto devices = DevicesOf(*config, std::move(problems));
  if (!devices.ok()) return devices.status();
  if (const auto unknown = UnknownSettings(); !unknown.empty()) {
    WarnOnceAbout(
        "settings",
        absl::StrCat("there is no setting ", absl::StrJoin(unknown, ", "),
                     "; the settings are ", Joined(SettingNames())));
  }
  return devices;
}

absl::StatusOr<Devices> ListDevicesAgain() {
  std::optional<DeviceConfig> config;
  bool has_config = false;
  {
    KnownDevices& known = OnlyOne<KnownDevices>();
    const std::lock_guard<ForkSafeMutex> lock(known.mutex);
    config = known.config;
    has_config = known.has_config;
  }
  if (!has_config) return ListDevices();
  if (!config.has_value()) return Devices();
  return DevicesOf(*config, {});
}

void ReadPublicAddresses() {
  static std::atomic<bool> read = false;
  if (read.load(std::memory_order_acquire)) return;
  if (Environment("RXE_USER_DEVICES") != nullptr) {
    (void)ListDevices();
  } else {
    std::vector<std::string> problems;
    (void)ReadConfig(&problems);
  }
  read.store(true, std::memory_order_release);
}

absl::StatusOr<std::shared_ptr<const Device>> ReadDevice(const Device& before) {
  const absl::StatusOr<std::optional<Interface>> now =
      ReadInterface(before.ifindex);
  if (!now.ok()) return now.status();
  if (!now->has_value() || (*now)->name != before.netdev ||
      !WhyUnusable(**now).empty()) {
    return nullptr;
  }
  Device device = MakeDevice(**now, before.name, before.guid);
  for (LocalAddress& gid : device.gids) gid = Known(gid);
  device.public_addresses = before.public_addresses;
  device.mlx5 = before.mlx5;
  return std::make_shared<const Device>(std::move(device));
}

absl::StatusOr<std::vector<UnusedInterface>> ListUnusedInterfaces(
    const Devices& devices) {
  const auto interfaces = ReadInterfaces();
  if (!interfaces.ok()) return interfaces.status();
  std::set<uint32_t> used;
  for (const auto& device : devices) used.insert(device->ifindex);
  std::vector<UnusedInterface> others;
  for (const Interface& interface : *interfaces) {
    if (used.contains(interface.index)) continue;
    std::string why = WhyUnusable(interface);
    if (why.empty()) why = WhyLeftOut(interface);
    if (why.empty()) why = "RXE_USER_DEVICES does not name it";
    others.push_back({interface.name, std::move(why)});
  }
  return others;
}

std::string NoDeviceText() {
  const char* const named = Environment("RXE_USER_DEVICES");
  return named != nullptr && *named != '\0'
             ? "no device: none of those that RXE_USER_DEVICES names"
             : "no device: no interface is up and has an address (see "
               "rxe-user devices)";
}

}  // namespace rxe_user
