#include "tools/trace/field_json.h"

#include <string>

namespace trace {

nlohmann::ordered_json FieldValue(const wire::Field& field) {
  switch (field.format) {
    case wire::Field::Format::kFlag:
      return field.number != 0;
    case wire::Field::Format::kText:
      return std::string(field.text);
    case wire::Field::Format::kHex:
      if (field.hex_digits == 16) {
        const std::string text = wire::FieldText(field);
        return text.substr(text.find('=') + 1);
      }
      return field.number;
    case wire::Field::Format::kDecimal:
      return field.number;
  }
  return nullptr;
}

}  // namespace trace
