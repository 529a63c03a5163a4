// Reports on their way from one process to another: lines of text, which
// versions with more or fewer counters read as well.
//
//   rxe_user-stat 2                          the version of this format
//   process pid=12 instance=7 command="ib_write_bw"
//   device name="rxeu0" ... | sent_pkts=5 ...   counters are behind the bar
//   lane index=0 | ...                       of the device before it
//   queue_pair lane=0 qpn=65553 ... | ...
//   end
//
// What the RDMA CM of a process tells has in place of devices
//
//   connection_manager connections=3 | cm_tx_msgs_req=5 ...
//
// A value is a number or, in quotes, a word; words have no blanks or quotes.
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
// What is read from another process is no longer than that, in bytes.
inline constexpr size_t kMaxReportText = 32 << 20;

std::string ReportText(const DeviceReport& device);

// What is to be told of a connection manager.
struct ManagerReport {
  uint64_t connections = 0;  // that take memory
  std::vector<std::pair<std::string, uint64_t>> counters;
};
std::string ReportText(const ManagerReport& manager);

// One line.
struct ReportRecord {
  using Value = std::variant<uint64_t, std::string>;

  std::string kind;  // "device"
  std::vector<std::pair<std::string, Value>> attributes;
  std::vector<std::pair<std::string, uint64_t>> counters;

  // 0 or empty if it is not there, or not of that kind.
  uint64_t Number(std::string_view name) const;
  std::string Word(std::string_view name) const;
};

// The lines between the first and the last. Nothing if the text is not of this
// version, not whole, or malformed: whoever wrote it is not trusted. Nor of
// more lines and values than one for 8 bytes, which bounds the memory: ten
// times the text.
std::optional<std::vector<ReportRecord>> ParseReport(std::string_view text);

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_REPORT_TEXT_H_
