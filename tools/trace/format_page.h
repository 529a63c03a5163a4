// Generates docs/trace-format.md from the table of events.
#ifndef TOOLS_TRACE_FORMAT_PAGE_H_
#define TOOLS_TRACE_FORMAT_PAGE_H_

#include <string>

namespace trace {

// The whole page in Markdown.
std::string FormatPage();

}  // namespace trace

#endif  // TOOLS_TRACE_FORMAT_PAGE_H_
