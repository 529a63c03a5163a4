// Stands in for sysinfo.cc.o of libabsl_base.a; see README.md.

#include "absl/base/internal/sysinfo.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <initializer_list>

static_assert(ABSL_LTS_RELEASE_VERSION == 20220623,
              "written for Debian 12's Abseil; compare with the new headers");

namespace absl {
ABSL_NAMESPACE_BEGIN
namespace base_internal {
namespace {

// Hertz, or 1 where the kernel does not tell (as Abseil's own does).
double ReadNominalCpuFrequency() {
  long khz = 0;
  for (const char* path :
       {"/sys/devices/system/cpu/cpu0/tsc_freq_khz",
        "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"}) {
    if (std::FILE* file = std::fopen(path, "re")) {
      const bool read = std::fscanf(file, "%ld", &khz) == 1;
      std::fclose(file);
      if (read && khz > 0) return khz * 1e3;
    }
  }
  return 1.0;
}

}  // namespace

double NominalCPUFrequency() {
  static const double frequency = ReadNominalCpuFrequency();
  return frequency;
}

int NumCPUs() {
  static const int count = [] {
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? static_cast<int>(online) : 1;
  }();
  return count;
}

pid_t GetTID() { return static_cast<pid_t>(syscall(SYS_gettid)); }

pid_t GetCachedTID() {
  static thread_local const pid_t id = GetTID();
  return id;
}

}  // namespace base_internal
ABSL_NAMESPACE_END
}  // namespace absl
