// Times between the packets of a capture.
#ifndef TOOLS_TRACE_LATENCIES_H_
#define TOOLS_TRACE_LATENCIES_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "tools/trace/recording.h"

namespace trace {

// The time from one packet to another that follows from it, as captured.
struct Latency {
  std::string_view name;  // "request to ACK"
  // Where it was captured: "requester", "responder", or "capture" if the file
  // does not contain directions.
  std::string_view where;
  uint64_t count = 0;
  int64_t median = 0;  // ns
  int64_t p99 = 0;     // ns: 99 of 100 are at most this
  int64_t most = 0;    // ns
};

// Latencies that occur and are less than an hour. Requests that were sent more
// than once are left out, since it is unknown which copy was answered.
std::vector<Latency> MeasureLatencies(const Recording& recording);

}  // namespace trace

#endif  // TOOLS_TRACE_LATENCIES_H_
