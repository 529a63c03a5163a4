#include "tools/trace/time_text.h"

#include <cmath>
#include <cstdio>
#include <ctime>

#include "absl/strings/str_format.h"

namespace trace {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

std::string Format(int64_t ns, const char* format, int digits) {
  int64_t seconds = ns / kSecond;
  int64_t fraction = ns % kSecond;
  if (fraction < 0) {
    fraction += kSecond;
    --seconds;
  }
  const time_t time = seconds;
  tm parts{};
  char text[64] = "";
  if (gmtime_r(&time, &parts) != nullptr) {
    std::strftime(text, sizeof(text), format, &parts);
  }
  if (digits == 0) return text;
  return text + absl::StrFormat(".%09d", fraction).substr(0, 1 + digits);
}

}  // namespace

std::string TimeOfDay(int64_t ns, int digits) {
  return Format(ns, "%H:%M:%S", digits);
}

std::string DateAndTime(int64_t ns) {
  return Format(ns, "%Y-%m-%dT%H:%M:%S", 9) + "Z";
}

std::string Duration(int64_t ns) {
  struct Unit {
    double ns;
    const char* name;
  };
  constexpr Unit kUnits[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}};
  const double size = std::fabs(static_cast<double>(ns));
  for (const Unit& unit : kUnits) {
    if (size < unit.ns * 0.9995) continue;
    const double value = static_cast<double>(ns) / unit.ns;
    const double digits = std::fabs(value);
    return absl::StrFormat("%.*f %s",
                           digits < 9.995 ? 2 : (digits < 99.95 ? 1 : 0), value,
                           unit.name);
  }
  return std::to_string(ns) + " ns";
}

}  // namespace trace
