// Times between the packets of a capture.
#ifndef TOOLS_TRACE_LATENCIES_H_
#define TOOLS_TRACE_LATENCIES_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "tools/trace/recording.h"

namespace trace {

// From one packet to another that follows from it, as the capture saw them.
struct Latency {
  std::string_view name;  // "request to ACK"
  // Where it was captured: "requester", "responder", or "capture" if the file
  // does not tell.
  std::string_view where;
  uint64_t count = 0;
  int64_t median = 0;  // ns
  int64_t p99 = 0;     // ns: 99 of 100 are at most this
  int64_t most = 0;    // ns
};

// Those that occur and take less than an hour. Requests that were sent more
// than once are left out: it is not known which of them was answered.
std::vector<Latency> MeasureLatencies(const Recording& recording);

}  // namespace trace

#endif  // TOOLS_TRACE_LATENCIES_H_
