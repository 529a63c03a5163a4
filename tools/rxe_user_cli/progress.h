// A line on a terminal that says how much of large files has been read.
#ifndef TOOLS_RXE_USER_CLI_PROGRESS_H_
#define TOOLS_RXE_USER_CLI_PROGRESS_H_

#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace rxe_user_cli {

// Shows nothing unless `err` is a terminal and `out`, where the result goes, is
// none. Thread: one.
class Progress {
 public:
  Progress(std::FILE* out, std::FILE* err)
      : err_(isatty(fileno(err)) != 0 && isatty(fileno(out)) == 0 ? err
                                                                  : nullptr) {}
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `records`: packets and events read until now.
  void Show(uint64_t records) {
    if (err_ == nullptr) return;
    std::fprintf(err_, "\r%.1f million packets and events",
                 static_cast<double>(records) / 1e6);
    std::fflush(err_);
    is_shown_ = true;
  }
  // To be called before anything else is written to the terminal.
  void Clear() {
    if (is_shown_) std::fputs("\r\033[K", err_);
    is_shown_ = false;
  }

 private:
  std::FILE* const err_;
  bool is_shown_ = false;
};

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_PROGRESS_H_
