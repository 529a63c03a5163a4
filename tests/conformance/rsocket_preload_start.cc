// Executes the test again with librspreload.so preloaded.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/conformance/rsocket_preload_fixture.h"

namespace conformance {
namespace {

// Before main. With RDMAV_FORK_SAFE, fork hands connections over.
__attribute__((constructor)) void StartAnew(int, char** argv, char**) {
  if (!kPreloads || std::getenv("LD_PRELOAD") != nullptr) return;
  namespace fs = std::filesystem;
  std::string folders;
  for (const char* library : {"RDMACM", "VERBS"}) {
    folders += fs::absolute(std::getenv(library)).parent_path().string() + ":";
  }
  setenv("LD_LIBRARY_PATH", folders.c_str(), 1);
  setenv("LD_PRELOAD", fs::absolute(std::getenv("PRELOAD")).c_str(), 1);
  setenv("RDMAV_FORK_SAFE", "1", 1);
  execv("/proc/self/exe", argv);
  std::perror("execv");
  _exit(99);
}

}  // namespace
}  // namespace conformance
