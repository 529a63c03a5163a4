// The time line as a qlog file (draft-ietf-quic-qlog-main-schema), in its
// streaming form: records of JSON text sequences (RFC 7464). The first record
// describes the file, each other one is an event of the namespace `rdma`:
//
//   rdma:packet_sent, packet_received, packet_dropped, packet_lost
//   rdma:NAME  each event of recordings (docs/trace-format.md)
//
// `group_id` is the end and its queue pair, `trigger` in the data what caused
// the event, `system_info` the process and thread.
#ifndef TOOLS_TRACE_SQLOG_H_
#define TOOLS_TRACE_SQLOG_H_

#include <cstdio>
#include <memory>
#include <string>

#include "tools/trace/conversation.h"
#include "tools/trace/text_view.h"
#include "tools/trace/timeline.h"

namespace trace {

// Writes to `out`, which stays the caller's.
std::unique_ptr<PartWriter> MakeSqlogWriter(std::FILE* out);

// Writes by time, in ms since the first packet or event. False, with errno, if
// `out` cannot be written.
bool WriteSqlog(const Timeline& timeline, const Conversation& conversation,
                std::FILE* out);

// A JSON Schema (draft 2020-12) of one record. Each event has its importance
// there. Made from the table of events.
std::string SqlogSchema();

}  // namespace trace

#endif  // TOOLS_TRACE_SQLOG_H_
