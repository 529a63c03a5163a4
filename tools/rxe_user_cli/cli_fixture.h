// Runs the program rxe-user in the folders of an installation, in which the
// library is an empty file.
#ifndef TOOLS_RXE_USER_CLI_CLI_FIXTURE_H_
#define TOOLS_RXE_USER_CLI_CLI_FIXTURE_H_

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace cli_test {

namespace fs = std::filesystem;

struct Result {
  int exit_status = -1;  // -1: killed by a signal
  int signal = 0;
  pid_t pid = 0;
  std::string out, err;
};

inline std::string ReadAll(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

class CliTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* binary = getenv("RXE_USER_TEST_CLI");
    ASSERT_NE(binary, nullptr) << "names the program to test";
    char name[] = "/tmp/rxe_user_cli_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
    fs::permissions(root_, fs::perms(0755));
    fs::create_directories(root_ / "bin");
    fs::create_directories(root_ / "lib");
    std::ofstream(root_ / "lib/libibverbs.so.1") << "";
    cli_ = root_ / "bin/rxe-user";
    fs::copy_file(binary, cli_);
  }
  void TearDown() override { fs::remove_all(root_); }

  Result Execute(std::vector<std::string> argv,
                 const std::function<void()>& before = {}) {
    return ExecuteFile(cli_, std::move(argv), before);
  }
  Result ExecuteFile(const fs::path& file, std::vector<std::string> argv,
                     const std::function<void()>& before = {}) {
    argv.insert(argv.begin(), "rxe-user");
    const fs::path out = root_ / "out", err = root_ / "err";
    Result r;
    r.pid = fork();
    if (r.pid == 0) {
      dup2(open(out.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644), 1);
      dup2(open(err.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644), 2);
      unsetenv("LD_LIBRARY_PATH");
      if (before) before();
      std::vector<char*> pointers;
      for (std::string& s : argv) pointers.push_back(s.data());
      pointers.push_back(nullptr);
      execv(file.c_str(), pointers.data());
      _exit(99);
    }
    int status = 0;
    waitpid(r.pid, &status, 0);
    if (WIFEXITED(status)) r.exit_status = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) r.signal = WTERMSIG(status);
    r.out = ReadAll(out);
    r.err = ReadAll(err);
    return r;
  }

  fs::path root_, cli_;
};

inline bool OneLine(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n') == 1 &&
         text.back() == '\n' && text.starts_with("rxe-user");
}

// In a new network namespace that only has loopback.
inline void FreshNamespace() {
  if (unshare(CLONE_NEWNET) != 0) _exit(97);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (ioctl(fd, SIOCSIFFLAGS, &request) != 0) _exit(97);
}

}  // namespace cli_test

#endif  // TOOLS_RXE_USER_CLI_CLI_FIXTURE_H_
