#include "tools/rxe_user_cli/explain.h"

#include <signal.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rxe_user/observe/explain.h"
#include "rxe_user/observe/status_text.h"
#include "tools/rxe_user_cli/explain_files.h"
#include "tools/rxe_user_cli/output.h"

namespace rxe_user_cli {
namespace {

using rxe_user::Witness;

absl::string_view View(std::string_view text) {
  return {text.data(), text.size()};
}

// Decimal, or hexadecimal with 0x.
bool ParseNumber(const std::string& word, uint32_t* value) {
  return word.starts_with("0x") ? absl::SimpleHexAtoi(word, value)
                                : absl::SimpleAtoi(word, value);
}

void Line(std::string_view label, std::string_view text, std::string* out) {
  absl::StrAppendFormat(out, "  %-12s%s\n", View(label), View(text));
}

void AppendReason(const transport::ReasonText& reason, std::string* out) {
  absl::StrAppendFormat(out, "vendor_err %d of our device: %s\n",
                        static_cast<int>(reason.reason), View(reason.name));
  Line("what", reason.what, out);
  Line("whose side", rxe_user::NameOf(reason.side), out);
  Line("what to do", reason.advice, out);
  Line("see", reason.spec, out);
}

bool IsAlive(pid_t pid) { return ::kill(pid, 0) == 0 || errno != ESRCH; }

int ExplainProcess(const ExplainOptions& options, std::FILE* out,
                   std::FILE* err) {
  const auto witnesses = rxe_user::AskWitnesses(0);
  if (!witnesses.ok()) {
    std::fprintf(err, "rxe-user explain: %s\n",
                 std::string(witnesses.status().message()).c_str());
    return 1;
  }
  const auto own = std::ranges::find(*witnesses, options.pid, &Witness::pid);
  if (own == witnesses->end()) {
    std::fprintf(err, "rxe-user explain: %s %d%s\n",
                 IsAlive(options.pid) ? "process" : "there is no process",
                 static_cast<int>(options.pid),
                 IsAlive(options.pid)
                     ? " has no queue pair on our device, or is another user's"
                     : "");
    return 1;
  }
  if (own->silent) {
    return Write(
        absl::StrFormat("process %d (%s) %s\n", own->pid, own->command,
                        own->stopped
                            ? "is stopped by a signal or a debugger: continue "
                              "it (kill -CONT)"
                            : "does not answer: it has no core, or hangs"),
        out, err);
  }
  return ExplainWitness(*own, options.qpn, *witnesses, out, err);
}

}  // namespace

int ExplainWitness(const rxe_user::Witness& own, std::optional<uint32_t> qpn,
                   const std::vector<rxe_user::Witness>& witnesses,
                   std::FILE* out, std::FILE* err) {
  const std::string refusals = rxe_user::ExplainRefusals(own);
  std::string text;
  for (const uint32_t number : rxe_user::QueuePairsOf(own)) {
    if (qpn.has_value() && number != *qpn) continue;
    text += rxe_user::ExplainQueuePair(own, number, witnesses);
  }
  if (text.empty() && qpn.has_value()) {
    std::fprintf(err,
                 "rxe-user explain: process %d has no queue pair %u, and has "
                 "not destroyed one lately: rxe-user explain %d shows those "
                 "that it has\n",
                 static_cast<int>(own.pid), *qpn, static_cast<int>(own.pid));
    return 1;
  }
  if (text.empty() && refusals.empty()) {
    std::fprintf(err, "rxe-user explain: process %d has no queue pair\n",
                 static_cast<int>(own.pid));
    return 1;
  }
  return Write(refusals + text, out, err);
}

bool ParseExplain(const std::vector<std::string>& words,
                  ExplainOptions* options, std::string* error) {
  uint32_t number = 0;
  if (!words.empty() && (words[0] == "status" || words[0] == "vendor_err")) {
    for (size_t i = 0; i < words.size(); i += 2) {
      std::optional<uint32_t>* to = nullptr;
      if (words[i] == "status") to = &options->status;
      if (words[i] == "vendor_err") to = &options->vendor_err;
      if (to == nullptr || i + 1 == words.size() ||
          !ParseNumber(words[i + 1], &number)) {
        *error = "status and vendor_err each need a number";
        return false;
      }
      *to = number;
    }
    return true;
  }
  const auto is_number = [&](const std::string& word) {
    return ParseNumber(word, &number) ||
           std::ranges::all_of(word, [](unsigned char c) {
             return std::isdigit(c) != 0;  // too large
           });
  };
  if (!words.empty() && !is_number(words[0]) && words[0][0] != '-') {
    options->files = words;
    return true;
  }
  if (words.empty() || words.size() > 2 || !ParseNumber(words[0], &number) ||
      number == 0 ||
      number > static_cast<uint32_t>(std::numeric_limits<pid_t>::max())) {
    *error = "give status NUMBER [vendor_err NUMBER], PID [QPN], or FILE...";
    return false;
  }
  options->pid = static_cast<pid_t>(number);
  if (words.size() == 1) return true;
  if (!ParseNumber(words[1], &number)) {
    *error = "QPN is not a number: " + words[1];
    return false;
  }
  options->qpn = number;
  return true;
}

int Write(const std::string& text, std::FILE* out, std::FILE* err) {
  return WriteText(text, out) ? 0 : OutputFailed("rxe-user explain", err);
}

std::string ExplainStatus(uint32_t status, std::optional<uint32_t> vendor_err) {
  std::string text;
  const rxe_user::StatusText* const known = rxe_user::FindStatus(status);
  if (known == nullptr) return "";
  absl::StrAppendFormat(&text, "status %d: %s\n", status, View(known->name));
  Line("what", known->what, &text);
  Line("whose side", rxe_user::NameOf(known->side), &text);
  Line("what to do", known->advice, &text);
  Line("see", known->spec, &text);
  if (!vendor_err.has_value()) return text;
  bool explained = false;
  if (const auto* reason = transport::FindReason(*vendor_err);
      reason != nullptr) {
    if (status == 5 && *vendor_err != 0) {
      text += "The queue pair failed before, for this reason:\n";
    }
    AppendReason(*reason, &text);
    explained = true;
  }
  if (const auto* syndrome = rxe_user::FindSyndrome(*vendor_err);
      syndrome != nullptr) {
    absl::StrAppendFormat(&text, "vendor_err %d (0x%02x) of mlx5: %s\n",
                          *vendor_err, *vendor_err, View(syndrome->what));
    if (!syndrome->certain) {
      Line("certainty", "from published reports; NVIDIA does not document it",
           &text);
    }
    if (syndrome->status != status) {
      Line("note", absl::StrCat("it is known with status ", syndrome->status),
           &text);
    }
    explained = true;
  }
  if (!explained) {
    absl::StrAppendFormat(&text, "vendor_err %d (0x%x): not known\n",
                          *vendor_err, *vendor_err);
  }
  return text;
}

int RunExplain(const ExplainOptions& options, std::FILE* out, std::FILE* err) {
  if (options.pid != 0) return ExplainProcess(options, out, err);
  if (!options.files.empty()) return ExplainFiles(options.files, out, err);
  // Without a status, the one that has this vendor_err.
  uint32_t status = 21;
  if (options.status.has_value()) {
    status = *options.status;
  } else if (const auto* syndrome = rxe_user::FindSyndrome(*options.vendor_err);
             syndrome != nullptr) {
    status = syndrome->status;
  } else if (const auto* reason = transport::FindReason(*options.vendor_err);
             reason != nullptr) {
    status = rxe_user::StatusOf(reason->reason);
  }
  const std::string text = ExplainStatus(status, options.vendor_err);
  if (text.empty()) {
    std::fprintf(err, "rxe-user explain: there is no status %u\n", status);
    return 1;
  }
  return Write(text, out, err);
}

}  // namespace rxe_user_cli
