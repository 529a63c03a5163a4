#include "tools/rxe_user_cli/run.h"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "tools/rxe_user_cli/capture_option.h"
#include "tools/rxe_user_cli/program_file.h"
#include "tools/view/tree.h"

namespace rxe_user_cli {
namespace {

namespace fs = std::filesystem;

constexpr char kLibrary[] = "libibverbs.so.1";
constexpr char kCommands[] = "libexec/commands";
constexpr char kView[] = "librxe_user_view.so";
constexpr char kSockets[] = "librspreload.so";

// The folder ../lib of this executable, also if it was copied or called through
// links. Empty without /proc.
fs::path LibraryFolder() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? "" : self.parent_path().parent_path() / "lib";
}

// The file that execvp(3) would execute; empty if there is none.
std::string Find(const std::string& command) {
  if (command.find('/') != std::string::npos) return command;
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/bin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string file = (folder.empty() ? "." : folder) + "/" + command;
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

// Puts our rdma(8) first in PATH, if it is installed. Returns false, with
// errno, if the environment cannot be set.
bool PutCommandsFirst(const fs::path& commands) {
  std::error_code error;
  const std::string name = commands.string();
  // A folder with a colon cannot be in PATH. Without PATH, each program has its
  // own default.
  const char* const path = std::getenv("PATH");
  if (!fs::exists(commands, error) || path == nullptr ||
      name.find(':') != std::string::npos) {
    return true;
  }
  return setenv("PATH", PathList(name, path).c_str(), 1) == 0;
}

// Preloads `library` into the command. Returns false, with errno, if the
// environment cannot be set.
bool Preload(const fs::path& library) {
  const std::string preload = PreloadList(library, std::getenv("LD_PRELOAD"));
  const std::string asan = AsanOptions(std::getenv("ASAN_OPTIONS"));
  return setenv("LD_PRELOAD", preload.c_str(), 1) == 0 &&
         setenv("ASAN_OPTIONS", asan.c_str(), 1) == 0;
}

bool CanPreload(const fs::path& library) {
  return library.string().find(' ') == std::string::npos;
}

// Removes elements from a variable. Returns false, with errno, if the
// environment cannot be set.
bool RemoveElements(const char* variable, const char* separators,
                    const std::function<bool(const std::string&)>& left_out) {
  const char* const before = std::getenv(variable);
  if (before == nullptr) return true;
  const std::string rest = Without(before, separators, left_out);
  if (rest == before) return true;
  return setenv(variable, rest.c_str(), 1) == 0;
}

// Removes the view that an outer rxe-user run has set up.
bool RemoveView(const fs::path& commands) {
  return RemoveElements("LD_PRELOAD", ": ",
                        [](const std::string& library) {
                          return fs::path(library).filename() == kView;
                        }) &&
         RemoveElements("PATH", ":", [&](const std::string& folder) {
           return folder == commands.string();
         });
}

// Preloads the library of the view, if it is installed.
bool PreloadView(const fs::path& library) {
  std::error_code error;
  if (!fs::exists(library, error)) return true;
  if (!CanPreload(library)) {
    std::fprintf(stderr,
                 "rxe-user run: LD_PRELOAD cannot hold %s, which has a blank "
                 "in its name, so programs do not see our devices in /sys "
                 "and /dev\n",
                 library.c_str());
    return true;
  }
  const absl::StatusOr<std::string> place =
      view::BaseFolder(std::getenv("XDG_RUNTIME_DIR"));
  if (!place.ok()) {
    std::fprintf(stderr,
                 "rxe-user run: programs do not see our devices in /sys "
                 "and /dev: %s\n",
                 std::string(place.status().message()).c_str());
  }
  return Preload(library);
}

// Sets the variables for options that are set. Returns false, with errno, on
// failure.
bool SetOptions(const RunOptions& options) {
  const std::pair<const char*, std::string> variables[] = {
      {"RXE_USER_TRACE_PAYLOAD", options.payload ? "1" : ""},
      {"RXE_USER_EXPLAIN", options.explain ? "1" : ""},
      {"RXE_USER_CHECK", options.check},
      {"RXE_USER_FAULTS", options.faults},
      {"RXE_USER_FAULTS_SEED", options.faults_seed}};
  return std::ranges::all_of(variables, [](const auto& variable) {
    return variable.second.empty() ||
           setenv(variable.first, variable.second.c_str(), 1) == 0;
  });
}

// Sets up the environment in which a command finds our libraries in `folder`.
// Returns false, with errno, on failure.
bool SetUpEnvironment(const fs::path& folder, const RunOptions& options) {
  const fs::path commands = folder.parent_path() / kCommands;
  const std::string path = PathList(folder, std::getenv("LD_LIBRARY_PATH"));
  return setenv("LD_LIBRARY_PATH", path.c_str(), 1) == 0 &&
         (!options.sockets || Preload(folder / kSockets)) &&
         (!options.mlx5 || setenv("RXE_USER_MLX5", "1", 1) == 0) &&
         (options.view
              ? PreloadView(folder / kView) && PutCommandsFirst(commands)
              : RemoveView(commands));
}

// Removes the environment that an outer rxe-user run has set up.
bool CleanEnvironment(const fs::path& folder) {
  const auto is_ours = [&](const std::string& name) {
    return fs::path(name).parent_path() == folder;
  };
  return RemoveElements("LD_PRELOAD", ": ", is_ours) &&
         RemoveElements("LD_LIBRARY_PATH", ":", [&](const std::string& name) {
           return name == folder.string();
         });
}

// Whether a shell would take the word as NAME=VALUE.
bool IsAssignment(const std::string& word) {
  const size_t name = word.find('=');
  return name != std::string::npos && name != 0 && !std::isdigit(word[0]) &&
         std::all_of(
             word.begin(), word.begin() + static_cast<ptrdiff_t>(name),
             [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

// Replaces this process by the command. Returns only on failure, after one line
// on stderr: the exit status.
int Execute(char** argv) {
  const char* const command = argv[0];
  execvp(command, argv);
  const int why = errno;
  std::string text = why == ENOENT && std::strchr(command, '/') == nullptr
                         ? "command not found"
                         : std::strerror(why);
  if (why == ENOENT && IsAssignment(command)) {
    text += std::string("; set variables before rxe-user run: ") + command +
            " rxe-user run -- ...";
  }
  std::fprintf(stderr, "rxe-user run: %s: %s\n", command, text.c_str());
  return why == ENOENT ? kExitNotFound : kExitCannotExecute;
}

}  // namespace

std::string PathList(const std::string& folder, const char* before) {
  // An empty element would mean the current folder.
  if (before == nullptr || before[0] == 0) return folder;
  return folder + ":" + before;
}

std::string PreloadList(const std::string& library, const char* before) {
  if (before == nullptr || before[0] == 0) return library;
  return std::string(before) + ":" + library;
}

std::string Without(const std::string& list, const char* separators,
                    const std::function<bool(const std::string&)>& left_out) {
  std::string rest;
  bool first = true;
  for (size_t at = 0; at <= list.size();) {
    const size_t end =
        std::min(list.find_first_of(separators, at), list.size());
    const std::string element = list.substr(at, end - at);
    at = end + 1;
    if (left_out(element)) continue;
    if (!first) rest += separators[0];
    rest += element;
    first = false;
  }
  return rest;
}

std::string AsanOptions(const char* before) {
  const std::string options = before != nullptr ? before : "";
  if (options.find("verify_asan_link_order") != std::string::npos) {
    return options;
  }
  return options + (options.empty() ? "" : ":") + "verify_asan_link_order=0";
}

std::optional<std::string> WhyLibraryPathIgnored(const std::string& file) {
  struct stat s {};
  if (stat(file.c_str(), &s) != 0) return std::nullopt;
  if ((s.st_mode & S_ISUID) != 0 && s.st_uid != getuid()) return "is setuid";
  if ((s.st_mode & S_ISGID) != 0 && (s.st_mode & S_IXGRP) != 0 &&
      s.st_gid != getgid()) {
    return "is setgid";
  }
  if (getuid() != 0 &&
      getxattr(file.c_str(), "security.capability", nullptr, 0) > 0) {
    return "has file capabilities";
  }
  return std::nullopt;
}

int Run(char** argv, const RunOptions& options) {
  const char* const command = argv[0];
  const fs::path folder = LibraryFolder();
  if (folder.empty()) {
    std::fprintf(
        stderr,
        "rxe-user run: cannot find its libraries, because /proc is not "
        "mounted; mount it, or put the lib folder into "
        "LD_LIBRARY_PATH and start %s without rxe-user\n",
        command);
    return kExitOurFailure;
  }
  std::error_code error;
  if (!fs::exists(folder / kLibrary, error)) {
    std::fprintf(stderr, "rxe-user run: there is no %s\n",
                 (folder / kLibrary).c_str());
    return kExitOurFailure;
  }
  if (folder.string().find_first_of(":;$") != std::string::npos) {
    std::fprintf(stderr,
                 "rxe-user run: LD_LIBRARY_PATH cannot hold %s, which has one "
                 "of : ; $ in its name; move it\n",
                 folder.c_str());
    return kExitOurFailure;
  }
  const std::string file = Find(command);
  const std::optional<std::string> secure = WhyLibraryPathIgnored(file);
  const std::optional<std::string> apart = WhyCannotLoad(file);
  if (apart.has_value()) {
    std::fprintf(stderr, "rxe-user run: %s %s, so it will not see our device\n",
                 command, apart->c_str());
  } else if (secure.has_value()) {
    std::fprintf(stderr,
                 "rxe-user run: %s %s: the system ignores LD_LIBRARY_PATH for "
                 "it, so it will not see our device\n",
                 command, secure->c_str());
  }
  if (options.sockets && (!fs::exists(folder / kSockets, error) ||
                          !CanPreload(folder / kSockets))) {
    std::fprintf(
        stderr, "rxe-user run: there is no %s, or it has a blank in its name\n",
        (folder / kSockets).c_str());
    return kExitOurFailure;
  }
  if (!options.capture.empty() && !SetCapture(options.capture)) {
    return kExitOurFailure;
  }
  if (!options.trace.empty() && !SetTrace(options.trace)) {
    return kExitOurFailure;
  }
  // A program of musl would load our libraries and fail.
  const bool ready = SetOptions(options) &&
                     (IsOfMusl(file) ? CleanEnvironment(folder)
                                     : SetUpEnvironment(folder, options));
  if (!ready) {
    std::fprintf(stderr, "rxe-user run: %s\n", std::strerror(errno));
    return kExitOurFailure;
  }
  if (!options.expect.any()) return Execute(argv);
  return RunExpecting(fs::path(command).filename(), options.expect,
                      [&] { return Execute(argv); });
}

}  // namespace rxe_user_cli
