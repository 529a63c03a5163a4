// The time line as text and as JSON: one line for each packet and event.
#ifndef TOOLS_TRACE_TEXT_VIEW_H_
#define TOOLS_TRACE_TEXT_VIEW_H_

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>

#include "tools/trace/conversation.h"
#include "tools/trace/timeline.h"

namespace trace {

// The fates of packets, for summaries.
struct Counts {
  size_t packets = 0;
  size_t lost = 0;
  size_t dropped = 0;
  size_t repeated = 0;
  size_t overtaken = 0;
  size_t duplicates = 0;
  size_t ambiguous = 0;
  size_t after_end = 0;
  size_t strangers = 0;
  size_t damaged = 0;
};
// Adds the packets that are shown.
void CountPackets(const Timeline& timeline, Counts* counts);
Counts CountPackets(const Timeline& timeline);
// "30 packets, 1 lost, 11 repeated"
std::string CountsText(const Counts& counts);
// An arrow's fate in words; empty if there is nothing to say.
std::string FateText(const Arrow& arrow);

// A view that is written in parts. Thread: one.
class PartWriter {
 public:
  virtual ~PartWriter() = default;
  // Call this for the parts in order of time. False, with errno set, if the
  // part cannot be written.
  virtual bool Write(const Timeline& part,
                     const Conversation& conversation) = 0;
  // Call this after the last part.
  virtual bool End() = 0;
};

// Writes to `out` one line for each packet and event: time of day (UTC), us
// since the first, the ends, the packet with the fields of `rxe-user decode`,
// its fate.
std::unique_ptr<PartWriter> MakeTextWriter(std::FILE* out);

// One object per line, with a member "type":
//   "file"     path, packets, events, clock offset; first, or, if the files are
//              shown in parts, before the summary
//   "packet"   from, to, sent, received (times), fate, fields
//   "event"    end, name, id, cause, time, fields
//   "message"  a work request, or a message of packets
//   "summary"  counts; last
std::unique_ptr<PartWriter> MakeJsonWriter(std::FILE* out);

}  // namespace trace

#endif  // TOOLS_TRACE_TEXT_VIEW_H_
