// Makes text from a file safe to show: recordings come from other hosts and may
// be forged.
#ifndef TOOLS_TRACE_ESCAPE_H_
#define TOOLS_TRACE_ESCAPE_H_

#include <string>
#include <string_view>

namespace trace {

// Replaces control characters and bytes that are not UTF-8 by '?', so that text
// cannot break lines or control a terminal.
std::string Printable(std::string_view text);

// Printable text for an element or a quoted attribute of XML and HTML.
std::string EscapeXml(std::string_view text);

}  // namespace trace

#endif  // TOOLS_TRACE_ESCAPE_H_
