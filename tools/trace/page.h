// The ladder as one HTML file: no network, no library. Its script shows the
// fields of a packet under the mouse, filters, and reads keys.
#ifndef TOOLS_TRACE_PAGE_H_
#define TOOLS_TRACE_PAGE_H_

#include <string>

#include "tools/trace/conversation.h"
#include "tools/trace/ladder.h"
#include "tools/trace/timeline.h"

namespace trace {

// `ladder` must be of the same time line. Nothing from a file is run as a
// script, even if the file is forged.
std::string HtmlPage(const Timeline& timeline, const Conversation& conversation,
                     const Ladder& ladder);

// The script and the styles of the page (page_script.cc).
extern const char kPageScript[];
extern const char kPageStyle[];

}  // namespace trace

#endif  // TOOLS_TRACE_PAGE_H_
