#include "tools/rxe_user_cli/stat.h"

#include <signal.h>
#include <time.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "tools/rxe_user_cli/output.h"
#include "tools/rxe_user_cli/stat_format.h"
#include "tools/rxe_user_cli/stat_model.h"

namespace rxe_user_cli {
namespace {

// The header is repeated after this many lines.
constexpr int kLinesPerHeader = 20;

std::string TimeOfDay() {
  const time_t now = ::time(nullptr);
  tm parts{};
  char text[16] = "";
  if (::localtime_r(&now, &parts) != nullptr) {
    strftime(text, sizeof(text), "%H:%M:%S", &parts);
  }
  return text;
}

// Waits for the next multiple of the interval, so that delays do not add up.
class Pacer {
 public:
  explicit Pacer(double seconds) : seconds_(seconds) {
    ::clock_gettime(CLOCK_MONOTONIC, &next_);
  }
  void Wait() {
    const double whole = std::floor(seconds_);
    next_.tv_sec += static_cast<time_t>(whole);
    next_.tv_nsec += static_cast<long>((seconds_ - whole) * 1e9);
    if (next_.tv_nsec >= 1'000'000'000) {
      next_.tv_nsec -= 1'000'000'000;
      ++next_.tv_sec;
    }
    while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next_, nullptr) ==
           EINTR) {
    }
  }

 private:
  const double seconds_;
  timespec next_;
};

int Watch(const StatOptions& options, std::vector<StatProcess> before,
          std::FILE* out, std::FILE* err) {
  Pacer pacer(options.watch);
  bool has_complained = false;
  for (int lines = 0;;) {
    pacer.Wait();
    Stat stat = AskAll(options.pid);
    std::vector<StatProcess> now = std::move(stat.processes);
    if (options.pid != 0 && now.empty()) {
      // The watched process has ended.
      if (stat.missing.empty()) return 0;
      if (!std::exchange(has_complained, true)) {
        std::fprintf(err, "rxe-user stat: %s\n", stat.missing.c_str());
      }
      continue;
    }
    const std::vector<StatProcess> changes = Changes(before, now);
    before = std::move(now);
    std::string text;
    if (options.json) {
      text = WatchJson(changes, TimeOfDay());
    } else if (!changes.empty()) {
      if (lines % kLinesPerHeader == 0) text = WatchHeader();
      text += WatchLines(changes, TimeOfDay());
      ++lines;
    }
    if (!WriteText(text, out)) return OutputFailed("rxe-user stat", err);
  }
}

}  // namespace

int RunStat(const StatOptions& options, std::FILE* out, std::FILE* err) {
  Stat stat = AskAll(options.pid);
  if (!stat.missing.empty()) {
    std::fprintf(err, "rxe-user stat: %s\n", stat.missing.c_str());
    if (stat.processes.empty()) return 1;
  }
  if (stat.processes.empty()) {
    if (options.pid != 0 && ::kill(options.pid, 0) != 0 && errno == ESRCH) {
      std::fprintf(err, "rxe-user stat: there is no process %d\n",
                   static_cast<int>(options.pid));
    } else if (options.pid != 0) {
      std::fprintf(
          err, "rxe-user stat: process %d has no queue pair on our device\n",
          static_cast<int>(options.pid));
    } else {
      std::fputs(
          "rxe-user stat: none of your processes has a queue pair on our "
          "device\n",
          err);
    }
    return 1;
  }
  if (options.watch > 0) {
    return Watch(options, std::move(stat.processes), out, err);
  }
  const std::string text =
      options.json ? StatAsJson(stat.processes) : StatAsText(stat.processes);
  return WriteText(text, out) ? 0 : OutputFailed("rxe-user stat", err);
}

}  // namespace rxe_user_cli
