// The text of reports that one process sends to another. Versions with more or
// fewer counters can read it.
//
//   rxe_user-stat 2                          the version of this format
//   process pid=12 instance=7 command="ib_write_bw"
//   device name="rxeu0" ... | sent_pkts=5 ...   counters follow the bar
//   refusal call="ibv_modify_qp" errno=22 ...  of the process
//   fault_rule number=1 fired=3 ...            likewise
//   lane index=0 | ...                       of the device above
//   queue_pair lane=0 qpn=65553 ... | ...
//   event lane=0 qpn=65553 kind="ack_timeout" ...  the flight recorder's
//   end
//
// The report of an RDMA CM has, instead of devices,
//
//   connection_manager connections=3 | cm_tx_msgs_req=5 ...
//
// A value is a number or a quoted word without blanks and quotes. Times ("_ns")
// are of CLOCK_MONOTONIC; the device's now_ns is the time of the report.
#ifndef RXE_USER_OBSERVE_REPORT_TEXT_H_
#define RXE_USER_OBSERVE_REPORT_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "rxe_user/observe/device_report.h"

namespace rxe_user {

inline constexpr int kReportVersion = 2;
// Words contain no blanks. These characters replace the blanks in the word
// `check` of a refusal, and in the word `text` of a fault rule.
inline constexpr char kBlank = '~';
inline constexpr char kRuleBlank = '`';
// The longest text that is read from another process, in bytes.
inline constexpr size_t kMaxReportText = 32 << 20;

std::string ReportText(const DeviceReport& device);

// The report of a connection manager.
struct ManagerReport {
  uint64_t connections = 0;  // connections in memory
  std::vector<std::pair<std::string, uint64_t>> counters;
};
std::string ReportText(const ManagerReport& manager);

// One line.
struct ReportRecord {
  using Value = std::variant<uint64_t, std::string>;

  std::string kind;  // "device"
  std::vector<std::pair<std::string, Value>> attributes;
  std::vector<std::pair<std::string, uint64_t>> counters;

  // 0 or empty if it is absent or of the other kind.
  uint64_t Number(std::string_view name) const;
  std::string Word(std::string_view name) const;
};

// The lines between the first and the last one. Absent if the text is of
// another version, incomplete or malformed: its writer is not trusted. Also
// absent if it has more lines and values than one per 8 bytes, which limits the
// memory of the result to ten times the text.
std::optional<std::vector<ReportRecord>> ParseReport(std::string_view text);

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_REPORT_TEXT_H_
