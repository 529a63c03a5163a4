// Text from a file, made safe to show: recordings come from other hosts and may
// be forged.
#ifndef TOOLS_TRACE_ESCAPE_H_
#define TOOLS_TRACE_ESCAPE_H_

#include <string>
#include <string_view>

namespace trace {

// Replaces control characters and bytes that are not UTF-8 by '?': no line is
// broken and no terminal is controlled.
std::string Printable(std::string_view text);

// Printable text for an element or a quoted attribute of XML and HTML.
std::string EscapeXml(std::string_view text);

}  // namespace trace

#endif  // TOOLS_TRACE_ESCAPE_H_
