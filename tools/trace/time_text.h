// Times as text.
#ifndef TOOLS_TRACE_TIME_TEXT_H_
#define TOOLS_TRACE_TIME_TEXT_H_

#include <cstdint>
#include <ctime>
#include <string>

namespace trace {

// `time` in UTC in the format of strftime(3), and `digits` digits of the
// fraction, 0 to 9. `tv_nsec` may be of any size.
std::string TimeText(timespec time, const char* format, int digits);

// "12:08:02.123456" (UTC) for ns since 1970, with `digits` digits of the
// fraction, 0 to 9.
std::string TimeOfDay(int64_t ns, int digits);

// "2026-11-28T12:08:02.123456789Z"
std::string DateAndTime(int64_t ns);

// A duration with three digits and its unit: "512 ns", "1.25 us", "42.1 ms",
// "3.00 s".
std::string Duration(int64_t ns);

}  // namespace trace

#endif  // TOOLS_TRACE_TIME_TEXT_H_
