#include "tools/rxe_user_cli/devices.h"

#include <net/if.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_format.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/ports/socket_io.h"
#include "tools/rxe_user_cli/output.h"
#include "tools/rxe_user_cli/table.h"
#include "tools/view/sysfs_files.h"

namespace rxe_user_cli {
namespace {

using rxe_user::Device;
using rxe_user::LocalAddress;
using Json = nlohmann::ordered_json;

std::string Mac(const std::array<uint8_t, 6>& m) {
  return absl::StrFormat("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2],
                         m[3], m[4], m[5]);
}

std::string Scope(uint32_t ifindex) {
  char name[IF_NAMESIZE];
  return if_indextoname(ifindex, name) != nullptr ? name
                                                  : std::to_string(ifindex);
}

std::string Speed(uint64_t mbps) {
  if (mbps == 0) return "-";
  if (mbps % 1000 == 0) return std::to_string(mbps / 1000) + " Gb/s";
  return std::to_string(mbps) + " Mb/s";
}

std::string AsTables(const Devices& devices, const PortTrouble& trouble,
                     const std::string& alone, const rxe_user::SocketIo& io) {
  std::vector<Row> rows = {
      {"DEVICE", "NETDEV", "STATE", "MTU", "ROCE MTU", "SPEED", "GUID"}};
  for (const auto& d : devices) {
    rows.push_back({d->name, d->netdev, d->up ? "up" : "down",
                    std::to_string(d->mtu), std::to_string(d->roce_mtu),
                    Speed(d->speed_mbps), view::GuidText(d->guid)});
  }
  if (std::ranges::any_of(devices, [](const auto& d) { return d->mlx5; })) {
    rows[0].push_back("LOOKS LIKE");
    for (size_t i = 0; i < devices.size(); ++i) {
      rows[i + 1].push_back(devices[i]->mlx5 ? "mlx5" : "-");
    }
  }
  std::string text = Aligned(rows);

  const std::string available =
      alone.empty() ? "available" : "available to one process at a time";
  rows = {{"DEVICE", "GID", "ADDRESS", "UDP PORT 4791"}};
  for (const auto& d : devices) {
    for (size_t i = 0; i < d->gids.size(); ++i) {
      const std::string why = trouble(d->gids[i]);
      rows.push_back({d->name, std::to_string(i), d->gids[i].ToString(),
                      why.empty() ? available : why});
    }
  }
  text += "\n" + Aligned(rows) + "\n";
  if (!alone.empty()) text += "One process at a time: " + alone + "\n";
  return text + "I/O: " + io.uses + " (" + io.why + ")\n";
}

// Asks for all addresses at once, because each query examines all sockets of
// the host.
PortTrouble FindTrouble(const Devices& devices) {
  std::vector<LocalAddress> addresses;
  for (const auto& device : devices) {
    addresses.insert(addresses.end(), device->gids.begin(), device->gids.end());
  }
  const auto uses = rxe_user::ProbePorts(addresses);
  if (!uses.ok()) {
    return [why = std::string(uses.status().message())](const LocalAddress&) {
      return why;
    };
  }
  std::map<std::pair<std::array<uint8_t, 16>, uint32_t>, std::string> errors;
  for (size_t i = 0; i < addresses.size(); ++i) {
    errors[{addresses[i].address.bytes, addresses[i].scope_id}] =
        (*uses)[i].error;
  }
  return [errors](const LocalAddress& gid) {
    return errors.at({gid.address.bytes, gid.scope_id});
  };
}

}  // namespace

std::string DevicesAsText(const Devices& devices, const Others& others,
                          const PortTrouble& trouble, const std::string& alone,
                          const rxe_user::SocketIo& io) {
  std::string text =
      devices.empty() ? "" : AsTables(devices, trouble, alone, io);
  if (others.empty()) return text;
  std::vector<Row> rows = {{"NETDEV", "NO DEVICE, BECAUSE"}};
  for (const rxe_user::UnusedInterface& other : others) {
    rows.push_back({other.netdev, other.reason});
  }
  return text + (text.empty() ? "" : "\n") + Aligned(rows);
}

std::string DevicesAsJson(const Devices& devices, const Others& others,
                          const PortTrouble& trouble, const std::string& alone,
                          const rxe_user::SocketIo& io) {
  Json list = Json::array();
  for (const auto& d : devices) {
    Json device = {{"name", d->name},
                   {"netdev", d->netdev},
                   {"ifindex", d->ifindex},
                   {"state", d->up ? "up" : "down"},
                   {"mtu", d->mtu},
                   {"roce_mtu", d->roce_mtu},
                   {"loopback", d->loopback},
                   {"mac", Mac(d->mac)},
                   {"guid", view::GuidText(d->guid)}};
    if (d->speed_mbps != 0) device["speed_mbps"] = d->speed_mbps;
    if (d->mlx5) device["looks_like"] = "mlx5";
    Json gids = Json::array();
    for (size_t i = 0; i < d->gids.size(); ++i) {
      const LocalAddress& g = d->gids[i];
      const std::string why = trouble(g);
      Json gid = {{"index", i},
                  {"type", "RoCE v2"},
                  {"gid", view::GidText(g.address)},
                  {"address", g.address.ToString()}};
      if (g.scope_id != 0) gid["scope"] = Scope(g.scope_id);
      gid["port_available"] = why.empty();
      if (!why.empty()) gid["port_trouble"] = why;
      gids.push_back(std::move(gid));
    }
    device["gids"] = std::move(gids);
    list.push_back(std::move(device));
  }
  Json none = Json::array();
  for (const rxe_user::UnusedInterface& other : others) {
    none.push_back({{"netdev", other.netdev}, {"reason", other.reason}});
  }
  Json all = {{"devices", std::move(list)}, {"no_devices", std::move(none)}};
  if (!alone.empty()) all["port_not_shared"] = alone;
  all["io"] = {{"uses", io.uses}, {"why", io.why}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int RunDevices(bool json, std::FILE* out, std::FILE* err) {
  const auto present = rxe_user::ListDevices();
  if (!present.ok()) {
    std::fprintf(err, "rxe-user devices: %s\n",
                 std::string(present.status().message()).c_str());
    return 1;
  }
  const Devices& devices = *present;
  if (devices.empty()) {
    std::fprintf(err, "rxe-user devices: %s\n",
                 rxe_user::NoDeviceText().c_str());
  }
  const auto others = rxe_user::ListUnusedInterfaces(devices);
  if (!others.ok()) {
    std::fprintf(err, "rxe-user devices: %s\n",
                 std::string(others.status().message()).c_str());
    return 1;
  }
  // Other reasons are shown with each address.
  const absl::Status sharing = rxe_user::PortSharing();
  const std::string alone(absl::IsUnimplemented(sharing) ? sharing.message()
                                                         : "");
  const PortTrouble trouble = FindTrouble(devices);
  const rxe_user::SocketIo io = rxe_user::FindSocketIo();
  const std::string text =
      json ? DevicesAsJson(devices, *others, trouble, alone, io)
           : DevicesAsText(devices, *others, trouble, alone, io);
  if (!WriteText(text, out)) return OutputFailed("rxe-user devices", err);
  return devices.empty() ? 1 : 0;
}

}  // namespace rxe_user_cli
