// `rxe-user trace`: captures and recordings of any number of ends on one time
// line, as text, JSON or a picture.
#ifndef TOOLS_RXE_USER_CLI_TRACE_H_
#define TOOLS_RXE_USER_CLI_TRACE_H_

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace rxe_user_cli {

struct TraceOptions {
  // pcap or pcapng files; "-" is standard input.
  std::vector<std::string> files;
  // Own addresses of the hosts, in the order of the files, for captures that do
  // not tell sent from received packets; may be fewer.
  std::vector<std::string> locals;
  bool text = false;  // also without any other view
  bool json = false;
  std::string svg;  // files to write; empty: none
  std::string html;
  std::string perfetto;
  std::string sqlog;
  // The pictures have at most this many packets, from the first on.
  size_t limit = 20000;
};

// Writes the views: text and JSON to `out`. Returns the exit status of the
// program: 1, with one line on `err`, if a file cannot be read to its end or a
// view cannot be written. What could be read is shown. A closed reader of `out`
// (EPIPE) is not an error.
int RunTrace(const TraceOptions& options, std::FILE* out, std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_TRACE_H_
