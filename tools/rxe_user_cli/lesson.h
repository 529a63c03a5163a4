// `rxe-user lesson`: runs a lesson of docs/lessons, and draws what it recorded.
#ifndef TOOLS_RXE_USER_CLI_LESSON_H_
#define TOOLS_RXE_USER_CLI_LESSON_H_

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace rxe_user_cli {

struct LessonOptions {
  int number = 0;      // 0: list the lessons
  std::string folder;  // for its files; empty: a new one below TMPDIR
};

// A lesson's source: libexec/lessons/NUMBER-NAME.c. Its first comment says
// "Lesson NUMBER: TITLE." and may have a line " * faults: RULES".
struct Lesson {
  int number = 0;
  std::string title;
  std::string source;  // path
  std::string faults;  // for run --faults; empty: none
};

// Reads the first comment of a source; absent if it is not that of a lesson.
std::optional<Lesson> ReadLesson(const std::string& source);

// The lessons in `folder`, by number.
std::vector<Lesson> FindLessons(const std::string& folder);

// Compiles the lesson's program with cc, runs it as `rxe-user run --trace`
// does, prints the ladder to `out` and writes it for a browser. Returns the
// exit status: that of the program; kExitOurFailure, with one line on `err`, if
// there is no such lesson or it cannot be compiled.
int RunLesson(const LessonOptions& options, std::FILE* out, std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_LESSON_H_
