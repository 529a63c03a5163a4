// `rxe-user decode`: shows the RoCEv2 packets of a capture file as text.

#ifndef TOOLS_RXE_USER_CLI_DECODE_H_
#define TOOLS_RXE_USER_CLI_DECODE_H_

#include <cstdio>
#include <string>

namespace rxe_user_cli {

struct DecodeOptions {
  // A pcap or pcapng file; "-" is standard input.
  std::string path;
  // Print lines of JSON instead of text.
  bool json = false;
};

// Writes to `out` one line for each RoCEv2 packet of the capture and a last
// line of counts. Returns the exit status of the program. If the capture cannot
// be read to its end, prints what could be read and one line to `err` with the
// reason, and returns 1. A closed reader of `out` (EPIPE) is not an error.
//
// Text: time of day (UTC), addresses, opcode, fields as in wire/describe.h, and
// "icrc=" good, bad, or unknown if the packet was cut off. A frame that was
// sent with UDP_SEGMENT and captured before segmentation is split into its
// packets, marked with "segment=I/N".
//
// JSON: one object per line, with a member "type":
//   "packet"     frame (its number in the file), time, addresses, fields,
//                icrc. Integers are numbers, except that 64-bit ones are
//                hexadecimal strings: many parsers only hold 53 bits.
//   "malformed"  other data sent to port 4791: frame, time, addresses,
//                error
//   "summary"    the last line: counts
int RunDecode(const DecodeOptions& options, std::FILE* out, std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_DECODE_H_
