// `rxe-user decode`: RoCEv2 packets of a capture file, in words.

#ifndef TOOLS_RXE_USER_CLI_DECODE_H_
#define TOOLS_RXE_USER_CLI_DECODE_H_

#include <cstdio>
#include <string>

namespace rxe_user_cli {

struct DecodeOptions {
  // A pcap or pcapng file; "-" is the standard input.
  std::string path;
  // Lines of JSON instead of text.
  bool json = false;
};

// Writes a line to `out` for each RoCEv2 packet of the capture, then one of
// counts, and returns the exit status of the program. If the capture cannot be
// read to its end, one line to `err` says why and the status is 1; what could
// be read is written all the same. A reader of `out` that goes away (EPIPE) is
// no error.
//
// Text: time of day (UTC), addresses, opcode, fields as wire/describe.h has
// them, "icrc=" good, bad, or unknown if the capture cut the packet short. What
// was sent with UDP_SEGMENT and captured before it was segmented is taken
// apart, with "segment=I/N" at the end.
//
// JSON: an object per line, told apart by "type":
//   "packet"     frame (its number in the file), time, addresses, fields,
//                icrc. Numbers are numbers, but those of 64 bits are
//                hexadecimal strings, because many parsers hold only 53 bits.
//   "malformed"  something else sent to port 4791: frame, time, addresses,
//                error
//   "summary"    the last line: counts
int RunDecode(const DecodeOptions& options, std::FILE* out, std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_DECODE_H_
