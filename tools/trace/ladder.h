// The ladder: a time-sequence diagram. Time runs downwards; the slope of an
// arrow is the packet's travel time; silences are folded; a run of MIDDLE
// packets without incident is one band.
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
  // The elements of the picture, SVG. They have these attributes for programs,
  // where they apply; the page's script adds those with a *:
  //   g.p    a packet: data-i* (index in Timeline::arrows), data-psn*,
  //          data-op*, data-c (connection), data-fate, data-again,
  //          data-ambiguous, data-overtaken
  //   g.b    a band of packets: the same for the first; data-n: their number;
  //          data-to: the last PSN
  //   g.v    an event: data-event (its name), data-e (index in
  //          Timeline::events)
  //   path.m a message: data-m* (index in Conversation::messages), data-c
  //   rect.s a silence: data-ns
  std::string body;
  // The number of Timeline::arrows that are drawn.
  size_t arrows = 0;
  size_t missing = 0;  // beyond the limit
  // The elements in order, by their indices in Timeline and Conversation. A
  // band has the index of its first packet.
  std::vector<size_t> packets;
  std::vector<size_t> events;
  std::vector<size_t> messages;
};

// Draws the first `limit` packets, and the events in the same time.
Ladder MakeLadder(const Timeline& timeline, const Conversation& conversation,
                  size_t limit);

// The styles of the elements, CSS.
const char* LadderStyle();
// The markers that the styles use, SVG.
const char* LadderMarkers();

// An SVG file that contains only the picture.
std::string SvgFile(const Ladder& ladder);

}  // namespace trace

#endif  // TOOLS_TRACE_LADDER_H_
