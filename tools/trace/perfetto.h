// Writes the time line as Chrome trace JSON, for https://ui.perfetto.dev and
// chrome://tracing. Each end is a process with a track for each queue pair and
// thread:
//
//   work requests   asynchronous slices, since they overlap: from post to
//                   completion; of captures, the messages of packets
//   calls           slices of their threads
//   posts, polls    short slices of their threads; completions, of their queue
//                   pairs. An arrow leads from the post over the completion to
//                   the poll
//   packets         instants of the queue pairs that sent and received them
//   other events    instants of their queue pairs
#ifndef TOOLS_TRACE_PERFETTO_H_
#define TOOLS_TRACE_PERFETTO_H_

#include <cstdio>

#include "tools/trace/conversation.h"
#include "tools/trace/timeline.h"

namespace trace {

// Writes in order of time, which counts from the first packet or event. Slices
// of one track are nested: a slice that would end after the enclosing one ends
// with it. False, with errno set, if `out` cannot be written.
bool WritePerfetto(const Timeline& timeline, const Conversation& conversation,
                   std::FILE* out);

}  // namespace trace

#endif  // TOOLS_TRACE_PERFETTO_H_
