#include "tools/rxe_user_cli/expecting_run.h"

#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "rxe_user/base/clock.h"
#include "rxe_user/base/unique_fd.h"
#include "tools/rxe_user_cli/expectation_facts.h"
#include "tools/rxe_user_cli/expectation_report.h"
#include "tools/rxe_user_cli/run.h"
#include "tools/rxe_user_cli/supervise.h"
#include "tools/trace/escape.h"

namespace rxe_user_cli {
namespace {

namespace fs = std::filesystem;

using rxe_user::UniqueFd;

// How long processes that the program has started may outlive it.
constexpr int kPatienceSeconds = 5;
constexpr size_t kLongestFile = 1 << 20;
constexpr char kVariable[] = "RXE_USER_TALLY";

// A folder that only this user can access; the destructor removes it.
class Folder {
 public:
  // False, with errno.
  bool Make() {
    const char* const base = std::getenv("TMPDIR");
    std::string name =
        base != nullptr && base[0] == '/' ? base : std::string("/tmp");
    name += "/rxe-user-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) return false;
    path_ = name;
    return true;
  }
  ~Folder() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

bool WriteAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

void Complain(const std::string& what, int error) {
  std::fprintf(stderr, "rxe-user run: %s: %s\n", what.c_str(),
               std::strerror(error));
}

// A file of results, opened before the program starts. True if `name` is empty.
bool OpenResult(const std::string& name, UniqueFd* file) {
  if (name.empty()) return true;
  file->Reset(
      ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file->valid()) return true;
  Complain("cannot write " + trace::Printable(name), errno);
  return false;
}

// Passes the counts to the outer rxe-user run, inside which this one runs.
// False, after a line on stderr, on failure.
bool PassToOuterRun(const std::string& folder, const std::string& outer) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::path to = fs::path(outer) / entry.path().filename();
    fs::rename(entry.path(), to, error);
    if (error) fs::copy_file(entry.path(), to, error);
    if (error) break;
  }
  if (error) {
    Complain("cannot pass the counts to the outer rxe-user run", error.value());
  }
  return !error;
}

Facts ReadFacts(const std::string& folder) {
  const std::vector<std::string> running =
      AwaitUnlocked(folder, kPatienceSeconds);
  Facts facts;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string path = entry.path();
    std::string why;
    if (const auto page = rxe_user::ReadTally(path, &why)) {
      facts.Add(*page, std::ranges::count(running, path) != 0);
    } else {
      facts.AddUnreadable("the counts of a process cannot be read: " + why);
    }
  }
  if (error) {
    facts.AddUnreadable("the counts cannot be read: " + error.message());
  }
  return facts;
}

}  // namespace

bool AddExpectation(const std::string& text, ExpectOptions* options,
                    std::string* why) {
  ExpectationError error;
  auto expectation = ParseExpectation(text, &error);
  if (!expectation) {
    *why = "--expect '" + trace::Printable(text.substr(0, 200)) +
           "': " + TextOf(error);
    return false;
  }
  options->expectations.push_back(*std::move(expectation));
  return true;
}

bool AddExpectationFile(const std::string& file, ExpectOptions* options,
                        std::string* why) {
  const std::string name = trace::Printable(file);
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  std::string text;
  for (char c; text.size() <= kLongestFile && in.get(c);) text += c;
  if (!in.eof()) {
    *why = "cannot read expectations from " + name + ": " +
           (text.size() > kLongestFile ? "it is longer than 1 MiB"
                                       : std::strerror(errno));
    return false;
  }
  size_t number = 0;
  const size_t before = options->expectations.size();
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string line = text.substr(0, end);
    text.erase(0, end + 1);
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos || line[first] == '#') continue;
    ExpectationError error;
    auto expectation = ParseExpectation(line, &error);
    if (!expectation) {
      error.column += first;
      *why = name + ", line " + std::to_string(number) + ", '" +
             trace::Printable(line.substr(first, 200)) + "': " + TextOf(error);
      return false;
    }
    options->expectations.push_back(*std::move(expectation));
  }
  if (options->expectations.size() != before) return true;
  *why = "there is no expectation in " + name;
  return false;
}

int RunExpecting(const std::string& program, const ExpectOptions& options,
                 const std::function<int()>& execute) {
  UniqueFd tap;
  UniqueFd junit;
  if (!OpenResult(options.tap_file, &tap) ||
      !OpenResult(options.junit, &junit)) {
    return kExitOurFailure;
  }
  Folder folder;
  if (!folder.Make()) {
    Complain("cannot make a temporary folder, set TMPDIR", errno);
    return kExitOurFailure;
  }
  const char* const before = std::getenv(kVariable);
  const std::string outer = before != nullptr ? before : "";
  if (::setenv(kVariable, folder.path().c_str(), 1) != 0) {
    Complain("cannot set the environment", errno);
    return kExitOurFailure;
  }
  RunResult result;
  result.program = program;
  result.command = options.command;
  std::error_code error;
  result.folder = fs::current_path(error);
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  result.host = host;
  result.begin = rxe_user::ClockNs(CLOCK_REALTIME) / 1'000'000'000;
  const int64_t begin = rxe_user::MonotonicNs();
  const std::optional<int> status = Supervise(execute);
  if (!status) {
    Complain("cannot start a process", errno);
    return kExitOurFailure;
  }
  result.wait_status = *status;
  result.duration = rxe_user::MonotonicNs() - begin;
  const Facts facts = ReadFacts(folder.path());
  for (const Expectation& expectation : options.expectations) {
    result.expectations.emplace_back(expectation.text,
                                     facts.Judge(expectation));
  }
  for (const transport::faults::Rule& rule : options.rules) {
    if (rule.maybe) continue;
    result.expectations.emplace_back("fault rule " +
                                         std::to_string(rule.number) + " (" +
                                         rule.text + ") fires",
                                     facts.JudgeRule(rule.number));
  }
  // TAP on stderr contains these lines in its own form.
  WriteAll(STDERR_FILENO,
           options.tap ? ResultAsTap(result) : ResultAsLines(result));
  bool written = outer.empty() || PassToOuterRun(folder.path(), outer);
  if (tap.valid() && !WriteAll(tap.get(), ResultAsTap(result))) {
    Complain("cannot write " + trace::Printable(options.tap_file), errno);
    written = false;
  }
  if (junit.valid() && !WriteAll(junit.get(), ResultAsJUnit(result))) {
    Complain("cannot write " + trace::Printable(options.junit), errno);
    written = false;
  }
  const int exit_status = ExitStatusOf(*status);
  if (exit_status != 0) return exit_status;
  if (!result.is_as_expected()) return kExitNotAsExpected;
  return written ? 0 : kExitOurFailure;
}

}  // namespace rxe_user_cli
