// The reports of running engines, for `rxe-user stat`.
#ifndef TOOLS_RXE_USER_CLI_STAT_MODEL_H_
#define TOOLS_RXE_USER_CLI_STAT_MODEL_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rxe_user/observe/report_text.h"

namespace rxe_user_cli {

struct StatDevice {
  rxe_user::ReportRecord device;
  std::vector<rxe_user::ReportRecord> lanes;
  std::vector<rxe_user::ReportRecord> queue_pairs;
};

struct StatProcess {
  pid_t pid = 0;
  uint64_t instance = 0;  // distinguishes equal PIDs of two PID namespaces
  std::string command;
  std::vector<StatDevice> devices;
  std::vector<rxe_user::ReportRecord> managers;  // connection managers
};

struct Stat {
  std::vector<StatProcess> processes;  // in order of process IDs
  // Why a requested process is missing; empty if none is.
  std::string missing;
};

// Parses the report of one engine; absent if it is invalid.
std::optional<StatProcess> ReadReport(pid_t pid, std::string_view text);

// Asks all engines of this network namespace, or those of process `only` if it
// is not 0. Engines that do not answer within `patience` are missing.
Stat AskAll(pid_t only,
            std::chrono::milliseconds patience = std::chrono::seconds(1));

// The change of each counter since `before`, for devices that are in both. The
// result has the devices of `now` with changed counters, without lanes and
// queue pairs.
std::vector<StatProcess> Changes(const std::vector<StatProcess>& before,
                                 const std::vector<StatProcess>& now);

// 0 if there is no such counter.
uint64_t CounterOf(const rxe_user::ReportRecord& record, std::string_view name);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_STAT_MODEL_H_
