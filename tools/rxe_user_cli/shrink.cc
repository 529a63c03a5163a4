#include "tools/rxe_user_cli/shrink.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "rxe_user/base/clock.h"
#include "tools/rxe_user_cli/fired_rules.h"
#include "tools/rxe_user_cli/minimize.h"
#include "tools/rxe_user_cli/output.h"
#include "tools/rxe_user_cli/supervise.h"
#include "tools/trace/recording.h"
#include "transport/faults/rule_parser.h"

namespace rxe_user_cli {
namespace {

namespace fs = std::filesystem;

using transport::faults::Rule;

// Matches no packet, since no datagram is that long. It takes the place of a
// rule that was left out: a rule's chances depend on its number.
constexpr char kPlaceholder[] = "drop rx bytes>65535 maybe";
constexpr int kOvertime = -1;  // in place of an exit status: it took too long

// "ends with status 7" and so on.
std::string Ending(int status, int seconds) {
  if (status == kOvertime) return absl::StrCat("takes over ", seconds, " s");
  if (status > 128 && status < 128 + NSIG) {
    return absl::StrCat("is ended by signal ", status - 128);
  }
  return absl::StrCat("ends with status ", status);
}

class Shrinker {
 public:
  Shrinker(const ShrinkOptions& options, std::FILE* out, std::FILE* err)
      : options_(options), out_(out), err_(err) {}
  ~Shrinker() {
    std::error_code ignored;
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
  }

  int Shrink() {
    if (!SetUp()) return 1;
    const std::optional<int> clean = Run({}, "without rules");
    if (!clean) return Ended();
    std::vector<std::string> rules;
    for (const Rule& rule : options_.rules) {
      rules.push_back(rule.text);
      by_chance_ |= rule.chance < 1 || rule.jitter != 0;
    }
    const std::optional<int> all = Run(rules, "with all rules");
    if (!all) return Ended();
    if (*all == 0 || *all == *clean) {
      std::fprintf(err_,
                   "rxe-user faults: the program %s with all rules%s: there is "
                   "nothing to find\n",
                   Ending(*all, options_.seconds).c_str(),
                   *all == 0 ? "" : ", and without rules as well");
      return 1;
    }
    failure_ = *all;
    // Replace chances first: then a rule that is left out does not change what
    // the others hit.
    const bool is_fixed = by_chance_ && ReplaceByFired(&rules);
    std::vector<std::string> found = Smallest(rules);
    if (!is_fixed && !is_ended_ && ReplaceByFired(&found)) {
      found = Smallest(found);
    }
    return Print(found);
  }

 private:
  bool SetUp() {
    std::error_code error;
    std::string name =
        fs::temp_directory_path(error) / "rxe-user-shrink-XXXXXX";
    if (error || ::mkdtemp(name.data()) == nullptr) {
      std::fprintf(err_,
                   "rxe-user faults: cannot make a temporary folder, set "
                   "TMPDIR: %s\n",
                   std::strerror(errno));
      return false;
    }
    folder_ = name;
    // While SIGCHLD is ignored, the kernel does not report ended children.
    ::signal(SIGCHLD, SIG_DFL);
    ::sigemptyset(&signals_);
    ::sigaddset(&signals_, SIGCHLD);
    for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
      // Signals stay ignored if nohup, or the shell of a background job, has
      // ignored them.
      struct sigaction action {};
      ::sigaction(signal, nullptr, &action);
      if (action.sa_handler != SIG_IGN) ::sigaddset(&signals_, signal);
    }
    ::sigprocmask(SIG_BLOCK, &signals_, &mask_before_);
    return true;
  }

  static std::string Text(const std::vector<std::string>& rules) {
    std::string text;
    for (const std::string& rule : rules) absl::StrAppend(&text, rule, "\n");
    return text;
  }

  // Runs the program with the rules and returns its exit status; none if no
  // more runs are allowed. `*fired` gets the faults as rules (ReadFired).
  std::optional<int> Run(const std::vector<std::string>& rules,
                         const std::string& what,
                         std::vector<std::string>* fired = nullptr) {
    if (is_ended_ || runs_ == options_.runs) {
      is_ended_ = true;
      return std::nullopt;
    }
    ++runs_;
    std::fprintf(err_, "rxe-user faults: run %d, %s: ", runs_, what.c_str());
    std::fflush(err_);
    const std::string recording = fired == nullptr ? "" : folder_ + "/trace.%p";
    const std::optional<int> status = Execute(Text(rules), recording);
    if (!status) {
      is_ended_ = true;
      std::fprintf(err_, "interrupted\n");
      return std::nullopt;
    }
    std::fprintf(err_, "%s%s\n", Ending(*status, options_.seconds).c_str(),
                 failure_ && *status == *failure_ ? ": it fails" : "");
    if (fired != nullptr) ReadFired(fired);
    return status;
  }

  std::optional<int> Execute(const std::string& rules,
                             const std::string& recording) {
    std::vector<std::string> words = {"rxe-user", "run", "--faults",
                                      rules.empty() ? "none" : rules};
    if (!options_.seed.empty()) {
      words.insert(words.end(), {"--faults-seed", options_.seed});
    }
    if (!recording.empty()) words.insert(words.end(), {"--trace", recording});
    words.emplace_back("--");
    words.insert(words.end(), options_.command.begin(), options_.command.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t self = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) {
      std::fprintf(err_, "%s: ", std::strerror(errno));
      return std::nullopt;
    }
    if (child == 0) {
      // Its own process group, so that all of its processes can be killed.
      ::setpgid(0, 0);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != self) ::_exit(128 + SIGKILL);
      const int nothing = ::open("/dev/null", O_RDWR);
      for (const int fd : {0, 1, 2}) ::dup2(nothing, fd);
      if (nothing > 2) ::close(nothing);
      ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
      ::execv("/proc/self/exe", argv.data());
      ::_exit(125);
    }
    ::setpgid(child, child);
    return Await(child);
  }

  // The exit status of the child, or kOvertime; none if a signal asks this
  // process to end.
  std::optional<int> Await(pid_t child) {
    constexpr int64_t kSecond = 1'000'000'000;
    const int64_t end = rxe_user::MonotonicNs() + options_.seconds * kSecond;
    for (;;) {
      int status = 0;
      const pid_t ended = ::waitpid(child, &status, WNOHANG);
      if (ended == child) {
        ::kill(-child, SIGKILL);  // processes that it left running
        return ExitStatusOf(status);
      }
      const int64_t left_ns = end - rxe_user::MonotonicNs();
      const timespec left = {left_ns / kSecond, left_ns % kSecond};
      const bool is_over = left_ns < 0;
      const int signal =
          is_over ? 0 : ::sigtimedwait(&signals_, nullptr, &left);
      if (!is_over && (signal < 0 || signal == SIGCHLD)) continue;
      ::kill(-child, SIGKILL);
      while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
      }
      if (is_over) return kOvertime;
      signal_ = signal;
      return std::nullopt;
    }
  }

  // Reads the faults of the last run as rules. Empty if the recordings do not
  // contain all of them.
  void ReadFired(std::vector<std::string>* fired) {
    fired->clear();
    bool is_whole = true;
    std::error_code error;
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_, error)) {
      files.push_back(entry.path());
    }
    std::ranges::sort(files);
    for (const fs::path& file : files) {
      trace::Recording recording;
      if (trace::ReadRecording(file, &recording) && recording.error.empty()) {
        const FiredRules rules = RulesThatFired(recording);
        is_whole = is_whole && rules.left_out == 0;
        for (const absl::string_view rule :
             absl::StrSplit(rules.text, '\n', absl::SkipEmpty())) {
          if (rule[0] == '#') continue;
          // Two processes may have had the same fault.
          if (std::ranges::find(*fired, rule) == fired->end()) {
            fired->emplace_back(rule);
          }
        }
      } else {
        is_whole = false;
      }
      fs::remove(file, error);
    }
    if (!is_whole || fired->size() > transport::faults::kMaxRules) {
      fired->clear();
    }
  }

  // Replaces the rules by their faults (ReadFired), if the program fails with
  // those too.
  bool ReplaceByFired(std::vector<std::string>* rules) {
    std::vector<std::string> fired;
    const auto status = Run(*rules, "to record what is hit", &fired);
    if (!status || *status != *failure_ || fired.empty()) return false;
    if (!by_chance_ && fired.size() <= rules->size()) return false;
    const auto again =
        Run(fired, absl::StrCat("with ", fired.size(), " faults as recorded"));
    if (!again || *again != *failure_) return false;
    *rules = std::move(fired);
    by_chance_ = false;
    return true;
  }

  std::vector<std::string> Chosen(const std::vector<std::string>& rules,
                                  const Subset& subset) const {
    std::vector<std::string> chosen;
    for (const size_t index : subset) {
      while (by_chance_ && chosen.size() < index) {
        chosen.emplace_back(kPlaceholder);
      }
      chosen.push_back(rules[index]);
    }
    return chosen;
  }

  std::vector<std::string> Smallest(const std::vector<std::string>& rules) {
    const Minimized found = Minimize(
        rules.size(), [&](const Subset& subset) -> std::optional<bool> {
          const auto status =
              Run(Chosen(rules, subset),
                  absl::StrCat("with ", subset.size(), " of ", rules.size()));
          if (!status) return std::nullopt;
          return *status == *failure_;
        });
    is_complete_ = found.complete;
    return Chosen(rules, found.subset);
  }

  int Ended() const {
    if (signal_ != 0) return 128 + signal_;
    std::fprintf(err_, "rxe-user faults: give it more runs (--runs)\n");
    return 1;
  }

  int Print(const std::vector<std::string>& rules) {
    std::string text = absl::StrCat(
        "# the program ", Ending(*failure_, options_.seconds), " with ",
        is_complete_ ? "these rules, and not without any one of them"
                     : "these rules; the search was ended",
        "; ", runs_, " runs\n");
    if (std::ranges::find(rules, kPlaceholder) != rules.end()) {
      absl::StrAppend(&text, "# '", kPlaceholder,
                      "' hits nothing: it stands for a rule that was left out, "
                      "since chance depends on the numbers of the rules\n");
    }
    absl::StrAppend(&text, Text(rules));
    if (!WriteText(text, out_)) return errno == EPIPE ? 0 : 1;
    return signal_ != 0 ? 128 + signal_ : 0;
  }

  const ShrinkOptions& options_;
  std::FILE* const out_;
  std::FILE* const err_;
  std::string folder_;  // for recordings
  sigset_t signals_{};
  sigset_t mask_before_{};
  int runs_ = 0;
  bool is_ended_ = false;
  int signal_ = 0;  // the signal that ended the search; 0: none
  bool by_chance_ = false;
  bool is_complete_ = false;
  std::optional<int> failure_;  // the program's status when it fails
};

}  // namespace

int RunShrink(const ShrinkOptions& options, std::FILE* out, std::FILE* err) {
  return Shrinker(options, out, err).Shrink();
}

}  // namespace rxe_user_cli
