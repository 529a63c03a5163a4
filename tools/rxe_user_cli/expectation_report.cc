#include "tools/rxe_user_cli/expectation_report.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "tools/trace/escape.h"
#include "tools/trace/time_text.h"

namespace rxe_user_cli {
namespace {

constexpr std::string_view kProgramTest = "the program ends with status 0";

bool IsMet(const Judgement& judgement) {
  return judgement.verdict == Verdict::kTrue;
}

std::string Because(const Judgement& judgement) {
  return judgement.first.empty() ? judgement.seen
                                 : judgement.seen + "; " + judgement.first;
}

std::string_view Title(const Judgement& judgement) {
  return judgement.verdict == Verdict::kNotKnown ? "expectation not known"
                                                 : "expectation failed";
}

std::string Repeat(const RunResult& result) {
  return "cd " + QuoteForShell({result.folder}) + " && " + result.command;
}

// A description of TAP: # begins a directive there.
std::string TapDescription(std::string_view text) {
  return absl::StrReplaceAll(trace::Printable(text),
                             {{"#", "\\#"}, {"\\", "\\\\"}});
}

// A string of YAML, in double quotes.
std::string YamlString(std::string_view text) {
  return "\"" +
         absl::StrReplaceAll(trace::Printable(text),
                             {{"\"", "\\\""}, {"\\", "\\\\"}}) +
         "\"";
}

std::string Seconds(int64_t ns) {
  return absl::StrFormat("%.3f", static_cast<double>(ns) / 1e9);
}

std::string Attribute(std::string_view name, std::string_view value) {
  return " " + std::string(name) + "=\"" + trace::EscapeXml(value) + "\"";
}

}  // namespace

bool RunResult::is_as_expected() const {
  return std::all_of(expectations.begin(), expectations.end(),
                     [](const auto& each) { return IsMet(each.second); });
}

std::string EndOf(const RunResult& result) {
  if (!WIFSIGNALED(result.wait_status)) {
    return "status " + std::to_string(WEXITSTATUS(result.wait_status));
  }
  const int signal = WTERMSIG(result.wait_status);
  return "signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
}

std::string QuoteForShell(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    const bool is_plain =
        !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
          return absl::ascii_isalnum(c) ||
                 std::strchr("_-./:,=@%+", c) != nullptr;
        });
    if (is_plain) {
      line += word;
      continue;
    }
    // What is not printable as $'\x0a', which bash and zsh know.
    if (trace::Printable(word) == word) {
      line += "'" + absl::StrReplaceAll(word, {{"'", "'\\''"}}) + "'";
      continue;
    }
    line += "$'";
    for (const char c : word) {
      const auto byte = static_cast<uint8_t>(c);
      if (byte < 0x20 || byte >= 0x7f || c == '\'' || c == '\\') {
        absl::StrAppendFormat(&line, "\\x%02x", byte);
      } else {
        line += c;
      }
    }
    line += '\'';
  }
  return line;
}

std::string ResultAsLines(const RunResult& result) {
  std::string lines;
  for (const auto& [text, judgement] : result.expectations) {
    if (IsMet(judgement)) continue;
    lines += "rxe-user run: " + std::string(Title(judgement)) + ": " +
             trace::Printable(text) + ": " +
             trace::Printable(Because(judgement)) + "\n";
  }
  if (!lines.empty()) {
    lines += "rxe-user run: to repeat it: " + Repeat(result) + "\n";
  }
  return lines;
}

std::string ResultAsTap(const RunResult& result) {
  std::string tap = "TAP version 13\n1.." +
                    std::to_string(result.expectations.size() + 1) + "\n";
  size_t number = 0;
  const auto add = [&](bool is_met, std::string_view text,
                       std::string_view message, std::string_view detail) {
    tap += (is_met ? "ok " : "not ok ") + std::to_string(++number) + " - " +
           TapDescription(text) + "\n";
    if (is_met) return;
    tap += "  ---\n  message: " + YamlString(message) + "\n";
    if (!detail.empty()) tap += "  detail: " + YamlString(detail) + "\n";
    tap += "  ...\n";
  };
  add(result.wait_status == 0, kProgramTest, "it ended with " + EndOf(result),
      "");
  for (const auto& [text, judgement] : result.expectations) {
    add(IsMet(judgement), text,
        (judgement.verdict == Verdict::kNotKnown ? "not known: " : "") +
            judgement.seen,
        judgement.first);
  }
  if (result.wait_status != 0 || !result.is_as_expected()) {
    tap += "# to repeat it: " + Repeat(result) + "\n";
  }
  return tap;
}

std::string ResultAsJUnit(const RunResult& result) {
  size_t failures = result.wait_status == 0 ? 0 : 1;
  size_t errors = 0;
  for (const auto& [text, judgement] : result.expectations) {
    failures += judgement.verdict == Verdict::kFalse ? 1 : 0;
    errors += judgement.verdict == Verdict::kNotKnown ? 1 : 0;
  }
  std::string xml =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite" +
      Attribute("name", "rxe-user run " + result.program) +
      Attribute("package", "rxe-user") + Attribute("id", "0") +
      Attribute("tests", std::to_string(result.expectations.size() + 1)) +
      Attribute("failures", std::to_string(failures)) +
      Attribute("errors", std::to_string(errors)) +
      Attribute("time", Seconds(result.duration)) +
      Attribute("timestamp",
                trace::TimeText({.tv_sec = result.begin, .tv_nsec = 0},
                                "%Y-%m-%dT%H:%M:%S", 0)) +
      Attribute("hostname", result.host.empty() ? "localhost" : result.host) +
      ">\n<properties>\n<property" + Attribute("name", "command") +
      Attribute("value", result.command) + "/>\n<property" +
      Attribute("name", "folder") + Attribute("value", result.folder) +
      "/>\n</properties>\n";
  const auto add = [&](std::string_view name, int64_t ns,
                       std::string_view element, std::string_view message,
                       std::string_view type, const std::string& body) {
    xml += "<testcase" + Attribute("classname", "rxe-user." + result.program) +
           Attribute("name", name) + Attribute("time", Seconds(ns));
    if (element.empty()) {
      xml += "/>\n";
      return;
    }
    xml += ">\n<" + std::string(element) + Attribute("message", message) +
           Attribute("type", type) + ">" +
           trace::EscapeXml(body.empty() ? "" : body + ". ") +
           trace::EscapeXml("To repeat it: " + Repeat(result)) + "</" +
           std::string(element) + ">\n</testcase>\n";
  };
  add(kProgramTest, result.duration, result.wait_status == 0 ? "" : "failure",
      "it ended with " + EndOf(result), "status", "");
  for (const auto& [text, judgement] : result.expectations) {
    const bool not_known = judgement.verdict == Verdict::kNotKnown;
    add(text, 0,
        IsMet(judgement) ? ""
        : not_known      ? "error"
                         : "failure",
        judgement.seen, Title(judgement), judgement.first);
  }
  return xml + "<system-out></system-out>\n<system-err></system-err>\n" +
         "</testsuite>\n</testsuites>\n";
}

}  // namespace rxe_user_cli
