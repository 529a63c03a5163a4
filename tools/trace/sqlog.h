// Writes the time line as a qlog file (draft-ietf-quic-qlog-main-schema) in its
// streaming form: records of JSON text sequences (RFC 7464). The first record
// describes the file; each other one is an event of the namespace `rdma`:
//
//   rdma:packet_sent, packet_received, packet_dropped, packet_lost
//   rdma:NAME  each event of recordings (docs/trace-format.md)
//
// `group_id` is the end and its queue pair, `trigger` in the data is the cause
// of the event, `system_info` is the process and thread.
#ifndef TOOLS_TRACE_SQLOG_H_
#define TOOLS_TRACE_SQLOG_H_

#include <cstdio>
#include <memory>
#include <string>

#include "tools/trace/conversation.h"
#include "tools/trace/text_view.h"
#include "tools/trace/timeline.h"

namespace trace {

// Writes to `out`, which the caller keeps: in order of time, in ms since the
// first packet or event.
std::unique_ptr<PartWriter> MakeSqlogWriter(std::FILE* out);

// A JSON Schema (draft 2020-12) of one record. It contains the importance of
// each event. Made from the table of events.
std::string SqlogSchema();

}  // namespace trace

#endif  // TOOLS_TRACE_SQLOG_H_
