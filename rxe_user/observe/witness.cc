// Collects the reports of other processes for explanations (explain.h).
#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "rxe_user/observe/explain.h"
#include "rxe_user/observe/stat_socket.h"

namespace rxe_user {
namespace {

// The process ID in a socket's name, as numbered in that process's PID
// namespace.
pid_t PidIn(const std::string& name) {
  const std::string prefix = "rxe_user-stat-";
  return name.starts_with(prefix)
             ? static_cast<pid_t>(std::atol(name.c_str() + prefix.size()))
             : 0;
}

// A process may give itself any name, so characters that a terminal could act
// on are replaced, as in reports.
std::string CommandOf(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/comm");
  std::string command;
  std::getline(in, command);
  std::replace_if(
      command.begin(), command.end(),
      [](char c) { return c <= ' ' || c >= 0x7f || c == '"'; }, '?');
  return command;
}

}  // namespace

absl::StatusOr<std::vector<Witness>> AskWitnesses(
    pid_t but, std::chrono::milliseconds patience) {
  auto names = ListStatSockets();
  if (!names.ok()) return names.status();
  if (but != 0) {
    std::erase_if(
        *names, [but](const std::string& name) { return PidIn(name) == but; });
  }
  auto replies = AskForReports(*names, patience);
  std::map<pid_t, Witness> processes;
  for (size_t i = 0; i < replies.size(); ++i) {
    const pid_t named = PidIn((*names)[i]);
    if (!replies[i].ok()) {
      if (replies[i].status().code() != absl::StatusCode::kDeadlineExceeded) {
        continue;
      }
      Witness& silent = processes[named];
      if (!silent.records.empty()) continue;
      silent.pid = named;
      silent.command = CommandOf(named);
      silent.silent = true;
      silent.stopped = replies[i].status().message() == "it is stopped";
      continue;
    }
    const pid_t pid = replies[i]->pid != 0 ? replies[i]->pid : named;
    Witness one = WitnessOf(pid, replies[i]->text);
    if (one.records.empty()) continue;
    Witness& all = processes[pid];
    all.pid = pid;
    all.command = one.command;
    all.silent = all.stopped = false;
    for (ReportRecord& record : one.records) {
      all.records.push_back(std::move(record));
    }
  }
  std::vector<Witness> witnesses;
  for (auto& [pid, process] : processes)
    witnesses.push_back(std::move(process));
  return witnesses;
}

}  // namespace rxe_user
