// Runs rxe-user as it is installed, with the real libraries and the broker
// beside it. tools/rxe_user_cli/cli_fixture.h does without them.
#ifndef TESTS_EXPECT_INSTALLED_FIXTURE_H_
#define TESTS_EXPECT_INSTALLED_FIXTURE_H_

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace expect_test {

namespace fs = std::filesystem;

inline constexpr int kTimeoutMs = 60'000;

inline std::string ReadAll(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline fs::path FromEnvironment(const char* variable) {
  const char* value = getenv(variable);
  EXPECT_NE(value, nullptr) << variable;
  return value != nullptr ? fs::absolute(value) : "";
}

struct Result {
  int status = -1;  // as a shell's; -1: killed by a signal
  std::string out;
  std::string err;
};

// An installation in a folder of its own.
class InstalledTest : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "programs that are not instrumented would load the library";
#endif
    char name[] = "/tmp/expect_test_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
    Install("bin", "CLI");
    Install("bin", "PROGRAM");
    Install("lib", "VERBS");
    Install("libexec", "BROKER");
    fs::create_directories(root_ / "tmp");
  }
  void TearDown() override {
    if (root_.empty()) return;
    // Nothing is left, whatever happened.
    EXPECT_TRUE(fs::is_empty(root_ / "tmp"));
    fs::remove_all(root_);
  }
  void Install(const char* folder, const char* variable) {
    const fs::path file = FromEnvironment(variable);
    fs::create_directories(root_ / folder);
    fs::copy_file(file, root_ / folder / file.filename());
    fs::permissions(root_ / folder / file.filename(), fs::perms(0755));
  }

  // Starts rxe-user with these arguments, its output in files, and calls
  // `before` in the child.
  pid_t Start(std::vector<std::string> argv,
              const std::function<void()>& before = {}) {
    argv.insert(argv.begin(), "rxe-user");
    fs::remove(Output());
    const pid_t pid = fork();
    if (pid != 0) return pid;
    dup2(open(Output().c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644), 1);
    dup2(open(Errors().c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644), 2);
    setenv("TMPDIR", (root_ / "tmp").c_str(), 1);
    setenv("PATH", ((root_ / "bin").string() + ":" + getenv("PATH")).c_str(),
           1);
    setenv("LD_LIBRARY_PATH", "", 1);
    unsetenv("LD_PRELOAD");
    if (before) before();
    std::vector<char*> pointers;
    for (std::string& s : argv) pointers.push_back(s.data());
    pointers.push_back(nullptr);
    execv((root_ / "bin/rxe-user").c_str(), pointers.data());
    _exit(98);
  }
  Result Finish(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadAll(Output()),
            ReadAll(Errors())};
  }
  Result Execute(std::vector<std::string> argv,
                 const std::function<void()>& before = {}) {
    return Finish(Start(std::move(argv), before));
  }
  // Waits until the program's output has `text`.
  void Await(const std::string& text) {
    const auto until = std::chrono::steady_clock::now() +
                       std::chrono::milliseconds(kTimeoutMs);
    while (ReadAll(Output()).find(text) == std::string::npos) {
      ASSERT_LT(std::chrono::steady_clock::now(), until)
          << ReadAll(Output()) << ReadAll(Errors());
      poll(nullptr, 0, 5);
    }
  }

  fs::path Output() const { return root_ / ("out" + suffix_); }
  fs::path Errors() const { return root_ / ("err" + suffix_); }

  fs::path root_;
  std::string suffix_;  // of the files with the output of what is started next
};

}  // namespace expect_test

#endif  // TESTS_EXPECT_INSTALLED_FIXTURE_H_
