// How `rxe-user stat` shows what it has been told.
#ifndef TOOLS_RXE_USER_CLI_STAT_FORMAT_H_
#define TOOLS_RXE_USER_CLI_STAT_FORMAT_H_

#include <string>
#include <vector>

#include "tools/rxe_user_cli/stat_model.h"

namespace rxe_user_cli {

// Tables for people: each device with its lanes, its queue pairs and the
// counters that are not zero, with what they mean.
std::string StatAsText(const std::vector<StatProcess>& processes);

// For programs: {"processes": [{"pid", "command", "devices": [{"name",
// "netdev", "queue_pair_count", "queue_pairs_left_out", "counters": {...},
// "lanes": [{"index", "slot", "queue_pair_count", "counters"}],
// "queue_pairs": [{"lane", "qpn", "type", "state", "peer_qpn", "address",
// "peer_address", "source_port", "path_mtu", "window", "in_flight",
// "paused", "smoothed_rtt_ns", "send_psn", "unacked_psn", "expected_psn",
// "send_queued", "recv_queued", "counters"}]}]}]}. What a peer determines is
// absent before RTR. Counters bear the names of their tables, zeros included.
std::string StatAsJson(const std::vector<StatProcess>& processes);

// The header of the lines of --watch; one line for each device of `changes`.
// `time` is a time of day.
std::string WatchHeader();
std::string WatchLines(const std::vector<StatProcess>& changes,
                       const std::string& time);
// One line: {"time", "processes"} as above, counters being changes, without
// lanes and queue pairs.
std::string WatchJson(const std::vector<StatProcess>& changes,
                      const std::string& time);

// Counters that grow with every packet or call: not worth a word by themselves.
const std::vector<std::string>& UsualCounters();

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_STAT_FORMAT_H_
