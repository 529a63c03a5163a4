#include "tools/rxe_user_cli/lesson.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tools/rxe_user_cli/expectation_report.h"
#include "tools/rxe_user_cli/run.h"
#include "tools/rxe_user_cli/trace.h"

namespace rxe_user_cli {
namespace {

namespace fs = std::filesystem;

// The rest of the line after `mark`; empty if there is no `mark`.
std::string After(const std::string& line, const std::string& mark) {
  const size_t at = line.find(mark);
  return at == std::string::npos ? "" : line.substr(at + mark.size());
}

// Runs a program of PATH and waits for it. Returns its exit status, as a shell
// would; kExitNotFound if it cannot be started.
int RunAndWait(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) return kExitOurFailure;
  if (child == 0) {
    execvp(argv[0], argv.data());
    _exit(kExitNotFound);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return kExitOurFailure;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Makes the folder for the lesson's files. Empty, with errno, on failure.
std::string MakeFolder(const LessonOptions& options) {
  if (!options.folder.empty()) {
    std::error_code error;
    fs::create_directories(options.folder, error);
    errno = error.value();
    return error ? "" : options.folder;
  }
  const char* const temporary = std::getenv("TMPDIR");
  std::string name = std::string(temporary != nullptr ? temporary : "/tmp") +
                     "/rxe-user-lesson-" + std::to_string(options.number) +
                     ".XXXXXX";
  return mkdtemp(name.data()) != nullptr ? name : "";
}

int Fail(std::FILE* err, const std::string& what) {
  std::fprintf(err, "rxe-user lesson: %s\n", what.c_str());
  return kExitOurFailure;
}

}  // namespace

std::optional<Lesson> ReadLesson(const std::string& source) {
  Lesson lesson;
  lesson.source = source;
  std::ifstream file(source);
  std::string line;
  while (std::getline(file, line)) {
    if (lesson.number == 0) {
      const std::string head = After(line, "/* Lesson ");
      char* end = nullptr;
      lesson.number = static_cast<int>(std::strtol(head.c_str(), &end, 10));
      if (lesson.number <= 0 || *end != ':') return std::nullopt;
      lesson.title = After(head, ": ");
      lesson.title.resize(lesson.title.find_last_not_of(". */") + 1);
    } else if (lesson.faults.empty()) {
      lesson.faults = After(line, "* faults: ");
    }
    if (line.find("*/") != std::string::npos) break;
  }
  if (lesson.number == 0) return std::nullopt;
  return lesson;
}

std::vector<Lesson> FindLessons(const std::string& folder) {
  std::vector<Lesson> lessons;
  std::error_code error;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".c") continue;
    if (auto lesson = ReadLesson(entry.path())) lessons.push_back(*lesson);
  }
  std::ranges::sort(lessons, {}, &Lesson::number);
  return lessons;
}

int RunLesson(const LessonOptions& options, std::FILE* out, std::FILE* err) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path root = self.parent_path().parent_path();
  const fs::path folder = root / "libexec/lessons";
  const std::vector<Lesson> lessons = FindLessons(folder);
  if (lessons.empty()) return Fail(err, "no lessons in " + folder.string());
  if (options.number == 0) {
    for (const Lesson& lesson : lessons) {
      std::fprintf(out, "%2d  %s\n", lesson.number, lesson.title.c_str());
    }
    return 0;
  }
  const auto lesson =
      std::ranges::find(lessons, options.number, &Lesson::number);
  if (lesson == lessons.end()) {
    return Fail(err, "no lesson " + std::to_string(options.number) +
                         "; rxe-user lesson lists them");
  }
  const std::string work = MakeFolder(options);
  if (work.empty()) {
    return Fail(err, std::string("no folder: ") + std::strerror(errno));
  }
  const std::string program = work + "/program";
  const std::string recording = work + "/recording.pcapng";
  const std::string page = work + "/ladder.html";
  // -l:NAME: the library without the link of a development package.
  if (RunAndWait({"cc", "-Wall", "-Wextra", "-O2", lesson->source, "-o",
                  program, "-L" + (root / "lib").string(),
                  "-l:libibverbs.so.1"}) != 0) {
    return Fail(err, "cannot compile " + lesson->source +
                         "; it needs cc and infiniband/verbs.h (Debian: gcc "
                         "libc6-dev libibverbs-dev)");
  }
  fs::remove(recording, error);
  std::vector<std::string> run = {self, "run", "--trace", recording};
  if (!lesson->faults.empty()) {
    run.insert(run.end(), {"--faults", lesson->faults});
  }
  run.insert(run.end(), {"--", program});
  std::fprintf(out, "Lesson %d: %s\n\n$ %s\n", lesson->number,
               lesson->title.c_str(), QuoteForShell(run).c_str());
  std::fflush(out);
  const int status = RunAndWait(run);
  TraceOptions trace;
  trace.files = {recording};
  trace.text = true;
  trace.html = page;
  std::fprintf(out, "\n$ rxe-user trace %s\n", recording.c_str());
  const int drawn = RunTrace(trace, out, err);
  const fs::path text = fs::path(lesson->source).replace_extension(".md");
  std::fprintf(out,
               "\nladder:    %s\nquestions: %s\nprogram:   %s\nin words:  "
               "rxe-user explain %s\n",
               page.c_str(), text.c_str(), lesson->source.c_str(),
               recording.c_str());
  return status != 0 ? status : drawn;
}

}  // namespace rxe_user_cli
