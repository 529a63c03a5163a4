#include "tools/trace/time_text.h"

#include <cmath>
#include <cstdio>
#include <ctime>

#include "absl/strings/str_format.h"

namespace trace {

std::string TimeText(timespec time, const char* format, int digits) {
  constexpr long kSecond = 1'000'000'000;
  time.tv_sec += time.tv_nsec / kSecond;
  time.tv_nsec %= kSecond;
  if (time.tv_nsec < 0) {
    time.tv_nsec += kSecond;
    --time.tv_sec;
  }
  tm parts{};
  char text[64] = "";
  if (gmtime_r(&time.tv_sec, &parts) != nullptr) {
    std::strftime(text, sizeof(text), format, &parts);
  }
  if (digits == 0) return text;
  return text + absl::StrFormat(".%09d", time.tv_nsec).substr(0, 1 + digits);
}

std::string TimeOfDay(int64_t ns, int digits) {
  return TimeText({.tv_sec = 0, .tv_nsec = ns}, "%H:%M:%S", digits);
}

std::string DateAndTime(int64_t ns) {
  return TimeText({.tv_sec = 0, .tv_nsec = ns}, "%Y-%m-%dT%H:%M:%S", 9) + "Z";
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
