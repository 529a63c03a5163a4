// rxe-user run --check with programs under valgrind's memcheck
// (docs/lints.md): lints 19 and 24.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/expect/installed_fixture.h"

namespace {

using expect_test::Result;
namespace fs = std::filesystem;
// Variables of the environment.
using Settings = std::vector<std::pair<const char*, const char*>>;

bool HasValgrind() {
  std::istringstream folders(std::getenv("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((fs::path(folder) / "valgrind").c_str(), X_OK) == 0) return true;
  }
  return false;
}

class MemcheckTest : public expect_test::InstalledTest {
 protected:
  void SetUp() override {
    if (!HasValgrind()) GTEST_SKIP() << "no valgrind here";
    InstalledTest::SetUp();
  }
  // Runs expect_program under memcheck, which lets it end with 9 if it has
  // found an error itself.
  Result Run(const std::string& what,
             const std::vector<std::string>& options = {"--check"},
             const Settings& settings = {}) {
    std::vector<std::string> argv = {"run"};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(),
                {"--", "valgrind", "-q", "--vgdb=no", "--error-exitcode=9",
                 (root_ / "bin/expect_program").string(), what, "exit0"});
    return Execute(argv, [&settings] {
      for (const auto& [name, value] : settings) setenv(name, value, 1);
    });
  }
  static bool Has(const Result& r, const std::string& text) {
    return r.err.find(text) != std::string::npos;
  }
};

TEST_F(MemcheckTest, FreedBeforeThePost) {
  const Result r = Run("heap_freed");
  EXPECT_TRUE(Has(r, "lint 19 (freed-buffer): queue pair 0x")) << r.err;
  EXPECT_TRUE(Has(r,
                  ": request 5 has memory that is freed, or outside of an "
                  "allocation, at its post (memcheck: 0x"))
      << r.err;
  EXPECT_FALSE(Has(r, "lint 24")) << r.err;
  // memcheck prints no error for the library's own client requests.
  EXPECT_FALSE(Has(r, "client check request")) << r.err;
}

TEST_F(MemcheckTest, FreedBeforeTheCompletion) {
  const Result r = Run("heap_freed_early");
  EXPECT_TRUE(Has(r, "lint 19 (freed-buffer): queue pair 0x")) << r.err;
  EXPECT_TRUE(Has(r, ", at its completion (memcheck: 0x")) << r.err;
  EXPECT_FALSE(Has(r, "client check request")) << r.err;
}

TEST_F(MemcheckTest, NeverGivenAValue) {
  const Result r = Run("heap_uninitialized");
  EXPECT_TRUE(Has(r, "lint 24 (uninitialized): queue pair 0x")) << r.err;
  EXPECT_TRUE(Has(r,
                  ": request 5 sends memory that was never given a value, from "
                  "byte 8 of 3000 on (memcheck)"))
      << r.err;
  EXPECT_FALSE(Has(r, "lint 19")) << r.err;
  EXPECT_FALSE(Has(r, "client check request")) << r.err;
}

// The same program without these faults, and one whose memory gets its value by
// a READ that the fence awaits.
TEST_F(MemcheckTest, SilentWithoutThem) {
  for (const char* const what : {"heap_good", "heap_fenced"}) {
    const Result r = Run(what);
    EXPECT_EQ(r.status, 0) << what;
    EXPECT_EQ(r.err, "") << what;
  }
}

// What the device has stored, from whatever medium, has a value.
TEST_F(MemcheckTest, ReceivedDataHaveValues) {
  const Settings kMedia[] = {
      {{"RXE_USER_SAME_HOST", "udp"}, {"RXE_USER_IO", "sockets"}},
      {{"RXE_USER_SAME_HOST", "udp"}, {"RXE_USER_IO", "uring"}},
      {{"RXE_USER_SAME_HOST", "memory"},
       {"RXE_USER_TEST_RINGS", "1"},  // also within a process
       {"RXE_USER_LANES", "2"}}};
  for (const Settings& medium : kMedia) {
    const Result r = Run("contents", {"--check"}, medium);
    EXPECT_EQ(r.status, 0) << medium.back().second;
    EXPECT_EQ(r.err, "") << medium.back().second;
    EXPECT_EQ(r.out, "ones 75000\n") << medium.back().second;
  }
}

TEST_F(MemcheckTest, OneCanBeSuppressed) {
  Result r = Run("heap_uninitialized", {"--check=-uninitialized"});
  EXPECT_FALSE(Has(r, "rxe_user: check: ")) << r.err;
  r = Run("heap_freed", {"--check=-freed-buffer"});
  EXPECT_FALSE(Has(r, "rxe_user: check: ")) << r.err;
}

}  // namespace
