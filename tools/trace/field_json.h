// A field of a packet as a value of JSON: `rxe-user decode` and `trace`.
#ifndef TOOLS_TRACE_FIELD_JSON_H_
#define TOOLS_TRACE_FIELD_JSON_H_

#include <nlohmann/json.hpp>

#include "wire/describe.h"

namespace trace {

// Hexadecimal text for fields of 64 bits, of which many parsers keep only 53;
// numbers for shorter ones.
nlohmann::ordered_json FieldValue(const wire::Field& field);

}  // namespace trace

#endif  // TOOLS_TRACE_FIELD_JSON_H_
