// The output of `rxe-user stat`.
#ifndef TOOLS_RXE_USER_CLI_STAT_FORMAT_H_
#define TOOLS_RXE_USER_CLI_STAT_FORMAT_H_

#include <string>
#include <vector>

#include "tools/rxe_user_cli/stat_model.h"

namespace rxe_user_cli {

// Tables for people: each device with its lanes, its queue pairs, and the
// non-zero counters with their meaning.
std::string StatAsText(const std::vector<StatProcess>& processes);

// For programs: {"processes": [{"pid", "command", "devices": [{"name",
// "netdev", "queue_pair_count", "queue_pairs_left_out", "counters": {...},
// "lanes": [{"index", "slot", "queue_pair_count", "counters"}], "queue_pairs":
// [{"lane", "qpn", "type", "state", "peer_qpn", "address", "peer_address",
// "source_port", "medium" ("udp", "memory"), "path_mtu", "window", "in_flight",
// "paused", "smoothed_rtt_ns", "send_psn", "unacked_psn", "expected_psn",
// "send_queued", "recv_queued", "counters"}]}]}]}. Members that depend on the
// peer are absent before RTR. Counters have the names of their tables; zeros
// are included.
std::string StatAsJson(const std::vector<StatProcess>& processes);

// The header of --watch, and one line for each device of `changes`. `time`: a
// time of day.
std::string WatchHeader();
std::string WatchLines(const std::vector<StatProcess>& changes,
                       const std::string& time);
// One line of JSON: {"time", "processes"} as above. Counters are changes; lanes
// and queue pairs are omitted.
std::string WatchJson(const std::vector<StatProcess>& changes,
                      const std::string& time);

// Counters that grow with every packet or call, and indicate no problem.
const std::vector<std::string>& UsualCounters();

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_STAT_FORMAT_H_
