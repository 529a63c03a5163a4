#include "tools/trace/format_page.h"

#include <span>

#include "rxe_user/observe/trace_table.h"

namespace trace {
namespace {

using rxe_user::trace::EventField;
using rxe_user::trace::FieldFormat;
using rxe_user::trace::ValueName;

constexpr char kBeginning[] =
    R"(# The format of recordings

This page describes each event of a recording. It is made from the table in
`rxe_user/observe/trace_table.cc` (`bazel run //tools/trace:format_page`); a test compares them.
[lab.md](lab.md) shows what `rxe-user trace` makes of recordings.

## The file

A recording is a pcapng file, so Wireshark, tcpdump and `rxe-user decode` show its packets. All numbers
are little-endian.

| block | contents |
| --- | --- |
| Section Header | begins the file, and each part of one that was joined from several |
| Interface Description | all devices of the process; the link type is LINKTYPE_LINUX_SLL, times are in ns |
| Enhanced Packet | a packet, sent or received (flags), cut at 96 bytes, or behind its RoCE headers if these end later (whole with `--payload`, or if it is of connection management); a comment if the device dropped it or a fault hit it; the `packet` event as a custom option |
| Custom | every other event |

Custom blocks and options have the Private Enterprise Number 32473, which is reserved for documentation
(RFC 5612), and begin with the magic number below. An event is a struct without padding: integers,
texts (UTF-8, up to the first zero byte; what is cut ends with `...`), times (ns since 1970), addresses
(16 bytes; IPv4 mapped into IPv6).

Events are in the order of writing, which is nearly that of time. Packets that are cut have no UDP
checksum.

`rxe-user run --trace` does not write these yet: timers that are set or cancelled, and notifications
other than arming.

While it records, a device lowers the hop limit (TTL) of each burst by 0 to 31, and that of the next burst
by another number; hop limits below 64 are unchanged. This distinguishes equal packets, and makes no
difference to the network or the ICRC. The headers in the file have the hop limits of the wire.

Numbers of events are not reused, and a struct only grows at its end. A reader takes the `size` of an
event from its header, reads members that are missing as zero, and skips events that it does not know.

## The header of an event

)";

std::string Format(const EventField& field) {
  const std::string bits = std::to_string(field.size * 8);
  switch (field.format) {
    case FieldFormat::kText:
      return "text, " + std::to_string(field.size);
    case FieldFormat::kBytes:
      return std::to_string(field.size) + " bytes";
    case FieldFormat::kAddress:
      return "address";
    case FieldFormat::kTime:
      return "time";
    case FieldFormat::kSigned:
      return "i" + bits;
    default:
      return "u" + bits;
  }
}

std::string Names(std::span<const ValueName> names) {
  std::string text;
  for (const ValueName& name : names) {
    text += (text.empty() ? "" : ", ") + std::to_string(name.value) + " " +
            std::string(name.name);
  }
  return text;
}

std::string Table(std::span<const EventField> fields) {
  std::string text =
      "| offset | field | type | meaning |\n| --- | --- | --- | --- |\n";
  for (const EventField& field : fields) {
    if (field.format == FieldFormat::kReserved) continue;
    std::string meaning(field.help);
    if (!field.names.empty()) {
      meaning += (meaning.empty() ? "" : ": ") + Names(field.names);
    }
    text += "| " + std::to_string(field.offset) + " | `" +
            std::string(field.name) + "` | " + Format(field) + " | " + meaning +
            " |\n";
  }
  return text;
}

}  // namespace

std::string FormatPage() {
  std::string page = kBeginning + Table(rxe_user::trace::HeaderFields());
  for (const auto& event : rxe_user::trace::Events()) {
    page += "\n## " + std::to_string(static_cast<int>(event.type)) + ": " +
            std::string(event.name) + "\n\n" + std::string(event.help) + " " +
            std::to_string(event.size) + " bytes.\n\n" + Table(event.fields);
  }
  return page;
}

}  // namespace trace
