// Checks the packets of a capture against rules of the specification: what no
// endpoint may ever send, whatever device it is. docs/check.md lists the rules.
#ifndef TOOLS_TRACE_CHECK_H_
#define TOOLS_TRACE_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/trace/recording.h"
#include "wire/address.h"

namespace trace {

// The ids of all rules.
inline constexpr std::string_view kRules[] = {
    "icrc",        "payload-size",  "psn-hole",    "message-order",
    "ack-unsent",  "rnr-wait",      "retry-count", "early-repeat",
    "read-repeat", "read-response", "credits",     "ack-req",
    "nak-once",    "msn-back",      "cnp",         "datagram",
    "dc-session"};

// A packet that breaks a rule.
struct Finding {
  std::string_view rule;  // one of kRules, as in docs/check.md: "psn-hole"
  // Section of the InfiniBand specification, volume 1; empty: it is not in
  // there.
  std::string_view section;
  uint64_t frame = 0;  // in the file, from 1, as in Wireshark
  wire::IpAddress src;
  wire::IpAddress dst;
  uint32_t qpn = 0;  // destination
  uint32_t psn = 0;
  std::string what;  // one line
};

struct CheckOptions {
  // For files without directions: the addresses whose packets were captured
  // where they were sent, before any could be lost. Rules about what an
  // endpoint sends need that.
  std::vector<wire::IpAddress> senders = {};
  // Attributes of all queue pairs, as in ibv_modify_qp(3). If absent, they are
  // taken from a recording that has them.
  std::optional<uint8_t> retry_count = {};
  std::optional<uint8_t> timeout = {};
  // The minimum time between two CNPs to one queue pair, ns.
  int64_t cnp_interval = 4'000;
};

// Findings in the order of the file. A rule is applied only where the file
// shows everything that the rule needs: a capture of one end, or one that
// begins in the middle, yields no findings about what it does not show.
std::vector<Finding> CheckRecording(const Recording& recording,
                                    const CheckOptions& options);

}  // namespace trace

#endif  // TOOLS_TRACE_CHECK_H_
