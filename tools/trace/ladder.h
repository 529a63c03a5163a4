// The ladder: a time-sequence diagram. Time runs downwards; the slope of an
// arrow is the time it took; silences are folded; a run of MIDDLE packets
// without incident is one band.
#ifndef TOOLS_TRACE_LADDER_H_
#define TOOLS_TRACE_LADDER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/trace/conversation.h"
#include "tools/trace/timeline.h"

namespace trace {

struct Ladder {
  double width = 0;  // px
  double height = 0;
  // The elements of the picture, SVG. Attributes for programs, where they
  // apply; with a * those that the script of the page adds:
  //   g.p    a packet: data-i* (index in Timeline::arrows), data-psn*,
  //   data-op*,
  //          data-c (connection), data-fate, data-again, data-ambiguous,
  //          data-overtaken
  //   g.b    a band of packets: the same of the first; data-n how many, data-to
  //          the last PSN
  //   g.v    an event: data-event (its name), data-e (index in
  //   Timeline::events) path.m a message: data-m* (index in
  //   Conversation::messages), data-c rect.s a silence: data-ns
  std::string body;
  // What is drawn of Timeline::arrows.
  size_t arrows = 0;
  size_t missing = 0;  // beyond the limit
  // The elements in order, by their indices in Timeline and Conversation; of a
  // band, its first packet.
  std::vector<size_t> packets;
  std::vector<size_t> events;
  std::vector<size_t> messages;
};

// Draws the first `limit` packets, and the events in their time.
Ladder MakeLadder(const Timeline& timeline, const Conversation& conversation,
                  size_t limit);

// The styles of the elements, CSS.
const char* LadderStyle();
// The markers that the styles use, SVG.
const char* LadderMarkers();

// A file of the picture alone.
std::string SvgFile(const Ladder& ladder);

}  // namespace trace

#endif  // TOOLS_TRACE_LADDER_H_
