// Describes every event of a recording: name, help, fields.
// docs/trace-format.md is made from these tables (tools/trace:format_page), and
// tools/trace decodes events with them.
#ifndef RXE_USER_OBSERVE_TRACE_TABLE_H_
#define RXE_USER_OBSERVE_TRACE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "rxe_user/observe/trace_events.h"

namespace rxe_user::trace {

enum class FieldFormat : uint8_t {
  kNumber,    // unsigned
  kSigned,    // two's complement
  kHex,       // unsigned, an identifier or a set of flags
  kName,      // unsigned, an index into `names`
  kTime,      // signed, ns since 1970; 0: not known
  kText,      // characters up to the first zero byte
  kBytes,     // opaque
  kAddress,   // 16 bytes: a GID, an IPv4 address mapped into IPv6
  kReserved,  // written as 0, ignored
};

struct ValueName {
  uint32_t value;
  std::string_view name;
};

struct EventField {
  std::string_view name;
  FieldFormat format;
  std::string_view help;                  // with its unit
  size_t offset;                          // in the struct
  size_t size;                            // bytes; integers have 1, 2, 4 or 8
  std::span<const ValueName> names = {};  // of kName
};

struct EventDescription {
  EventType type;
  std::string_view name;
  std::string_view help;
  size_t size;                         // of the struct
  std::span<const EventField> fields;  // behind EventHeader
};

// The fields of EventHeader.
std::span<const EventField> HeaderFields();
// All events, in order of their numbers.
std::span<const EventDescription> Events();
// Null for a number that is not in the table.
const EventDescription* FindEvent(uint16_t type);

// The name that `names` has for `value`; empty if there is none.
std::string_view NameOf(std::span<const ValueName> names, uint64_t value);

// Names of enumerations, as in the fields.
std::span<const ValueName> StatusNames();       // transport::WcStatus
std::span<const ValueName> DispositionNames();  // transport::Disposition

}  // namespace rxe_user::trace

#endif  // RXE_USER_OBSERVE_TRACE_TABLE_H_
