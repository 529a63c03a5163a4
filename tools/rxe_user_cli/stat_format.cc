#include "tools/rxe_user_cli/stat_format.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "rxe_user/observe/device_report.h"
#include "tools/rxe_user_cli/table.h"

namespace rxe_user_cli {
namespace {

using Json = nlohmann::ordered_json;
using rxe_user::ReportRecord;

std::string Text(uint64_t number) { return std::to_string(number); }

std::string Hex(uint64_t number) { return absl::StrFormat("0x%06x", number); }

std::string OrDash(const std::string& text) {
  return text.empty() ? "-" : text;
}

// Counters that are not zero and not in UsualCounters: "retrans_pkts=2
// np_cnp_sent=1".
std::string Unusual(const ReportRecord& record) {
  std::string text;
  for (const auto& [name, value] : record.counters) {
    if (value == 0 || std::ranges::count(UsualCounters(), name) != 0) continue;
    text += (text.empty() ? "" : " ") + name + "=" + Text(value);
  }
  return OrDash(text);
}

// The medium, if it is not UDP, and the counters of Unusual.
std::string Others(const ReportRecord& qp) {
  const std::string unusual = Unusual(qp);
  if (qp.Word("medium") != "memory") return unusual;
  return unusual == "-" ? "medium=memory" : "medium=memory " + unusual;
}

std::string Meaning(const std::string& name) {
  static const auto known = rxe_user::CountersOf(rxe_user::LaneReport());
  for (const rxe_user::CounterValue& value : known) {
    if (value.counter->name == name) return std::string(value.counter->help);
  }
  return "";  // unknown: from a later version
}

std::string Rtt(const ReportRecord& qp) {
  const uint64_t ns = qp.Number("smoothed_rtt_ns");
  return ns == 0 ? "-" : Text((ns + 500) / 1000) + " us";
}

std::string LaneTable(const StatDevice& device) {
  std::vector<Row> rows = {{"LANE", "SLOT", "QUEUE PAIRS", "SENT PKTS",
                            "RCVD PKTS", "ROUNDS", "HELPER WAKES"}};
  for (const ReportRecord& lane : device.lanes) {
    rows.push_back({Text(lane.Number("index")), Text(lane.Number("slot")),
                    Text(lane.Number("queue_pair_count")),
                    Text(CounterOf(lane, "port_xmit_packets")),
                    Text(CounterOf(lane, "port_rcv_packets")),
                    Text(CounterOf(lane, "lane_rounds")),
                    Text(CounterOf(lane, "helper_wakes"))});
  }
  return Aligned(rows);
}

std::string QueuePairTable(const StatDevice& device) {
  std::vector<Row> rows = {{"QPN", "TYPE", "STATE", "PEER QPN", "PEER ADDRESS",
                            "SEND PSN", "UNACKED", "EXPECTED", "QUEUED",
                            "IN FLIGHT", "PAUSED", "WINDOW", "RTT", "SENT PKTS",
                            "RCVD PKTS", "OTHER"}};
  for (const ReportRecord& qp : device.queue_pairs) {
    const std::string peer = qp.Word("peer_address");
    const bool connected = !peer.empty();
    const auto known = [&](std::string text) {
      return connected ? text : std::string("-");
    };
    rows.push_back(
        {Hex(qp.Number("qpn")), qp.Word("type"), qp.Word("state"),
         known(Hex(qp.Number("peer_qpn"))), OrDash(peer),
         Text(qp.Number("send_psn")), Text(qp.Number("unacked_psn")),
         Text(qp.Number("expected_psn")), Text(qp.Number("send_queued")),
         known(Text(qp.Number("in_flight"))), known(Text(qp.Number("paused"))),
         known(Text(qp.Number("window"))), Rtt(qp),
         Text(CounterOf(qp, "sent_pkts")), Text(CounterOf(qp, "rcvd_pkts")),
         Others(qp)});
  }
  return Aligned(rows);
}

std::string CounterTable(const ReportRecord& record) {
  std::vector<Row> rows = {{"COUNTER", "VALUE", "MEANING"}};
  for (const auto& [name, value] : record.counters) {
    if (value != 0) rows.push_back({name, Text(value), Meaning(name)});
  }
  return Aligned(rows);
}

std::string DeviceText(const StatProcess& process, const StatDevice& device) {
  const ReportRecord& record = device.device;
  std::string text = Aligned(
      {{"PROCESS", "COMMAND", "DEVICE", "NETDEV", "LANES", "QUEUE PAIRS"},
       {Text(static_cast<uint64_t>(process.pid)), OrDash(process.command),
        record.Word("name"), record.Word("netdev"), Text(device.lanes.size()),
        Text(record.Number("queue_pair_count"))}});
  text += "\n" + LaneTable(device);
  if (!device.queue_pairs.empty()) text += "\n" + QueuePairTable(device);
  if (const uint64_t more = record.Number("queue_pairs_left_out"); more != 0) {
    text += "and " + Text(more) + " more queue pairs\n";
  }
  return text + "\n" + CounterTable(record);
}

// Message types in the order of the report, then the other counters.
std::string ManagerText(const StatProcess& process,
                        const ReportRecord& manager) {
  constexpr std::string_view kSent = "cm_tx_msgs_";
  std::vector<Row> messages = {
      {"MESSAGE", "SENT", "RETRIES", "RECEIVED", "DUPLICATES"}};
  std::vector<Row> others = {{"COUNTER", "VALUE"}};
  for (const auto& [name, value] : manager.counters) {
    if (name.starts_with(kSent)) {
      const std::string kind = name.substr(kSent.size());
      const uint64_t received = CounterOf(manager, "cm_rx_msgs_" + kind);
      if (value == 0 && received == 0) continue;
      messages.push_back(
          {kind, Text(value), Text(CounterOf(manager, "cm_tx_retries_" + kind)),
           Text(received),
           Text(CounterOf(manager, "cm_rx_duplicates_" + kind))});
    } else if (!name.starts_with("cm_tx_") && !name.starts_with("cm_rx_") &&
               value != 0) {
      others.push_back({name, Text(value)});
    }
  }
  std::string text =
      Aligned({{"PROCESS", "COMMAND", "CONNECTIONS"},
               {Text(static_cast<uint64_t>(process.pid)),
                OrDash(process.command), Text(manager.Number("connections"))}});
  text += "\n" + Aligned(messages);
  if (others.size() > 1) text += "\n" + Aligned(others);
  return text;
}

Json AsJson(const ReportRecord& record) {
  Json json = Json::object();
  for (const auto& [name, value] : record.attributes) {
    std::visit([&, &key = name](const auto& v) { json[key] = v; }, value);
  }
  json["counters"] = Json::object();
  for (const auto& [name, value] : record.counters) {
    json["counters"][name] = value;
  }
  return json;
}

Json AsJson(const std::vector<ReportRecord>& records) {
  Json list = Json::array();
  for (const ReportRecord& record : records) list.push_back(AsJson(record));
  return list;
}

Json AsJson(const std::vector<StatProcess>& processes, bool whole) {
  Json list = Json::array();
  for (const StatProcess& process : processes) {
    Json devices = Json::array();
    for (const StatDevice& device : process.devices) {
      Json json = AsJson(device.device);
      if (whole) {
        json["lanes"] = AsJson(device.lanes);
        json["queue_pairs"] = AsJson(device.queue_pairs);
      }
      devices.push_back(std::move(json));
    }
    list.push_back({{"pid", process.pid},
                    {"command", process.command},
                    {"devices", std::move(devices)}});
    if (whole) {
      list.back()["connection_managers"] = AsJson(process.managers);
    }
  }
  return list;
}

// `columns`, padded to the least width of each, and `rest`.
constexpr std::array kWatchWidths = {-8, 7, -15, -8, 5, 10, 13, 10, 13};
std::string WatchLine(
    const std::array<std::string, kWatchWidths.size()>& columns,
    const std::string& rest) {
  std::string line;
  for (size_t i = 0; i < columns.size(); ++i) {
    const int width = kWatchWidths[i];
    const std::string& text = columns[i];
    const size_t least = static_cast<size_t>(std::abs(width));
    const std::string fill(least - std::min(least, text.size()), ' ');
    line += width < 0 ? text + fill : fill + text;
    line += "  ";
  }
  return line + rest + "\n";
}

}  // namespace

const std::vector<std::string>& UsualCounters() {
  static const std::vector<std::string> usual = {
      "sent_pkts",         "sent_bytes",       "rcvd_pkts",
      "rcvd_bytes",        "port_rcv_packets", "port_rcv_data",
      "port_xmit_packets", "port_xmit_data",   "tx_bursts",
      "rx_calls",          "rx_batches",       "tx_calls",
      "tx_sends",          "lane_rounds",      "helper_wakes",
      "polling_modes",     "posts_batched",    "poll_yields",
      "memory_rx_batches", "memory_tx_sends",  "memory_tx_full",
      "memory_wakes"};
  return usual;
}

std::string StatAsText(const std::vector<StatProcess>& processes) {
  std::string text;
  for (const StatProcess& process : processes) {
    for (const StatDevice& device : process.devices) {
      if (!text.empty()) text += "\n\n";
      text += DeviceText(process, device);
    }
    for (const ReportRecord& manager : process.managers) {
      if (!text.empty()) text += "\n\n";
      text += ManagerText(process, manager);
    }
  }
  return text;
}

std::string StatAsJson(const std::vector<StatProcess>& processes) {
  return Json{{"processes", AsJson(processes, true)}}.dump(2) + "\n";
}

std::string WatchHeader() {
  return WatchLine({"TIME", "PROCESS", "COMMAND", "DEVICE", "QPS", "SENT PKTS",
                    "SENT BYTES", "RCVD PKTS", "RCVD BYTES"},
                   "OTHER");
}

std::string WatchLines(const std::vector<StatProcess>& changes,
                       const std::string& time) {
  std::string text;
  for (const StatProcess& process : changes) {
    for (const StatDevice& device : process.devices) {
      const ReportRecord& record = device.device;
      const auto counter = [&](const char* name) {
        return Text(CounterOf(record, name));
      };
      text += WatchLine(
          {time, Text(static_cast<uint64_t>(process.pid)), process.command,
           record.Word("name"), Text(record.Number("queue_pair_count")),
           counter("sent_pkts"), counter("sent_bytes"), counter("rcvd_pkts"),
           counter("rcvd_bytes")},
          Unusual(record));
    }
  }
  return text;
}

std::string WatchJson(const std::vector<StatProcess>& changes,
                      const std::string& time) {
  return Json{{"time", time}, {"processes", AsJson(changes, false)}}.dump() +
         "\n";
}

}  // namespace rxe_user_cli
