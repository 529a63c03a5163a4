#include "tools/rxe_user_cli/stat_model.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "rxe_user/observe/stat_socket.h"

namespace rxe_user_cli {
namespace {

using rxe_user::ReportRecord;

// The process ID in the name of a socket, in the PID namespace of the process.
pid_t PidIn(const std::string& name) {
  const std::string prefix = "rxe_user-stat-";
  return static_cast<pid_t>(std::atol(name.c_str() + prefix.size()));
}

template <typename Processes>
auto FindSame(const StatProcess& process, Processes& all) {
  return std::ranges::find_if(all, [&](const StatProcess& other) {
    return other.pid == process.pid && other.instance == process.instance;
  });
}

void Add(StatProcess process, std::vector<StatProcess>* all) {
  const auto it = FindSame(process, *all);
  if (it == all->end()) {
    all->push_back(std::move(process));
    return;
  }
  for (StatDevice& device : process.devices) {
    it->devices.push_back(std::move(device));
  }
  for (ReportRecord& manager : process.managers) {
    it->managers.push_back(std::move(manager));
  }
}

// The same device in an earlier report; null if there is none.
const StatDevice* Find(const std::vector<StatProcess>& before,
                       const StatProcess& process, const StatDevice& device) {
  const auto it = FindSame(process, before);
  if (it == before.end()) return nullptr;
  for (const StatDevice& found : it->devices) {
    if (found.device.Word("name") == device.device.Word("name") &&
        found.device.Word("netdev") == device.device.Word("netdev")) {
      return &found;
    }
  }
  return nullptr;
}

}  // namespace

std::optional<StatProcess> ReadReport(pid_t pid, std::string_view text) {
  const auto records = rxe_user::ParseReport(text);
  if (!records) return std::nullopt;
  StatProcess process;
  process.pid = pid;
  for (const ReportRecord& record : *records) {
    if (record.kind == "process") {
      process.instance = record.Number("instance");
      process.command = record.Word("command");
    } else if (record.kind == "device") {
      process.devices.push_back({record, {}, {}});
    } else if (record.kind == "connection_manager") {
      process.managers.push_back(record);
    } else if (process.devices.empty()) {
      return std::nullopt;
    } else if (record.kind == "lane") {
      process.devices.back().lanes.push_back(record);
    } else if (record.kind == "queue_pair") {
      process.devices.back().queue_pairs.push_back(record);
    }
  }
  return process;
}

Stat AskAll(pid_t only, std::chrono::milliseconds patience) {
  Stat stat;
  auto names = rxe_user::ListStatSockets();
  if (!names.ok()) {
    stat.missing = std::string(names.status().message());
    return stat;
  }
  // If a socket has this number in its name, only that one is asked.
  if (only != 0 && std::ranges::find(*names, only, PidIn) != names->end()) {
    std::erase_if(*names,
                  [&](const auto& name) { return PidIn(name) != only; });
  }
  auto replies = rxe_user::AskForReports(*names, patience);
  for (size_t i = 0; i < names->size(); ++i) {
    const std::string& name = (*names)[i];
    auto& reply = replies[i];
    const auto complain = [&](std::string_view why) {
      stat.missing = "process " + std::to_string(PidIn(name)) + ": ";
      stat.missing += why;
    };
    if (!reply.ok()) {
      // Not worth a message: a process that has just ended, a process of
      // another user, and, if one process is wanted, failures of others.
      const bool expected =
          reply.status().code() == absl::StatusCode::kNotFound ||
          reply.status().code() == absl::StatusCode::kPermissionDenied;
      if (only == 0 ? !expected : PidIn(name) == only) {
        complain(
            {reply.status().message().data(), reply.status().message().size()});
      }
      continue;
    }
    const pid_t pid = reply->pid != 0 ? reply->pid : PidIn(name);
    if (only != 0 && pid != only) continue;
    std::optional<StatProcess> process =
        ReadReport(pid, std::exchange(reply->text, {}));
    if (!process) {
      complain("its library is of another version");
      continue;
    }
    Add(*std::move(process), &stat.processes);
  }
  std::ranges::sort(stat.processes, {}, &StatProcess::pid);
  return stat;
}

std::vector<StatProcess> Changes(const std::vector<StatProcess>& before,
                                 const std::vector<StatProcess>& now) {
  std::vector<StatProcess> changes;
  for (const StatProcess& process : now) {
    StatProcess changed = {
        process.pid, process.instance, process.command, {}, {}};
    for (const StatDevice& device : process.devices) {
      const StatDevice* const old = Find(before, process, device);
      if (old == nullptr) continue;
      StatDevice change = {device.device, {}, {}};
      for (auto& [name, value] : change.device.counters) {
        value -= std::min(value, CounterOf(old->device, name));
      }
      changed.devices.push_back(std::move(change));
    }
    if (!changed.devices.empty()) changes.push_back(std::move(changed));
  }
  return changes;
}

uint64_t CounterOf(const ReportRecord& record, std::string_view name) {
  for (const auto& [key, value] : record.counters) {
    if (key == name) return value;
  }
  return 0;
}

}  // namespace rxe_user_cli
