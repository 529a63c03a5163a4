// What `rxe-user stat` has been told by the engines that run.
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
  uint64_t instance = 0;  // tells apart two of one number (PID namespaces)
  std::string command;
  std::vector<StatDevice> devices;
  std::vector<rxe_user::ReportRecord> managers;  // of connections
};

struct Stat {
  std::vector<StatProcess> processes;  // by process number
  // Why one that was asked for is not among them; empty if none is missing.
  std::string missing;
};

// One engine's report; nothing if it makes no sense.
std::optional<StatProcess> ReadReport(pid_t pid, std::string_view text);

// Asks every engine of this network namespace, or those of process `only`, if
// it is not 0. Those that do not answer within `patience` are missing.
Stat AskAll(pid_t only,
            std::chrono::milliseconds patience = std::chrono::seconds(1));

// The change of every counter since `before`, of devices that are in both: a
// device's of `now` with its counters replaced, its lanes and queue pairs left
// out.
std::vector<StatProcess> Changes(const std::vector<StatProcess>& before,
                                 const std::vector<StatProcess>& now);

// 0 if it is not there.
uint64_t CounterOf(const rxe_user::ReportRecord& record, std::string_view name);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_STAT_MODEL_H_
