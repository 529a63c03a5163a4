#include "tools/rxe_user_cli/faults.h"

#include <signal.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rxe_user/faults/fault_settings.h"
#include "rxe_user/observe/stat_socket.h"
#include "rxe_user/observe/stat_socket_name.h"
#include "tools/rxe_user_cli/output.h"
#include "tools/trace/escape.h"

namespace rxe_user_cli {
namespace {

using rxe_user::FaultCommand;
using rxe_user::FaultRuleStatus;

constexpr char kUse[] =
    "give PID and one of: list, add RULES, remove NUMBER..., clear";

std::string Line(const FaultRuleStatus& rule, FaultCommand::Kind kind) {
  const std::string text = trace::Printable(rule.text);
  switch (kind) {
    case FaultCommand::Kind::kAdd:
      return absl::StrCat("added rule ", rule.number, ": ", text, "\n");
    case FaultCommand::Kind::kRemove:
      return absl::StrCat("removed rule ", rule.number, ": ", text, "; it hit ",
                          rule.fired, " of ", rule.matched, " ", rule.target,
                          "s\n");
    case FaultCommand::Kind::kList:
      break;
  }
  return absl::StrCat("rule ", rule.number, ": ", text, "; it has hit ",
                      rule.fired, " of ", rule.matched, " ", rule.target,
                      "s\n");
}

std::string Json(const std::vector<FaultRuleStatus>& rules) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const FaultRuleStatus& rule : rules) {
    list.push_back({{"rule", rule.number},
                    {"text", rule.text},
                    {"target", rule.target},
                    {"matched", rule.matched},
                    {"fired", rule.fired}});
  }
  return list.dump(2, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

// Sends the command to the engine of the process and returns its answer. Any
// process can create a socket whose name has this PID, so if one does not
// answer, the next is tried.
absl::StatusOr<std::string> Ask(pid_t pid, const std::string& command) {
  const auto names = rxe_user::ListStatSockets();
  if (!names.ok()) return names.status();
  const std::string prefix =
      absl::StrCat(rxe_user::kStatSocketPrefix, static_cast<int>(pid), "-");
  const std::string process = absl::StrCat("process ", static_cast<int>(pid));
  absl::Status status;
  for (const std::string& name : *names) {
    if (!name.starts_with(prefix)) continue;
    auto reply = rxe_user::SendCommand(pid, name, command);
    if (reply.ok()) return std::move(reply->text);
    // The socket is that of the process's connection manager.
    if (reply.status().code() == absl::StatusCode::kUnimplemented) continue;
    // The listener has ended meanwhile, or belongs to another process.
    if (reply.status().code() == absl::StatusCode::kNotFound) continue;
    status = reply.status();
    // The command may have been executed: do not send it twice.
    if (status.code() == absl::StatusCode::kUnknown) break;
  }
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(process, ": ", status.message()));
  }
  const bool alive = ::kill(pid, 0) == 0 || errno != ESRCH;
  return absl::NotFoundError(alive ? process + " has not opened our device"
                                   : "there is no " + process);
}

}  // namespace

bool ParseFaults(const std::vector<std::string>& words, FaultsOptions* options,
                 std::string* error) {
  int number = 0;
  if (words.size() < 2 || !absl::SimpleAtoi(words[0], &number) || number <= 0) {
    *error = kUse;
    return false;
  }
  options->pid = number;
  FaultCommand& command = options->command;
  const std::string& what = words[1];
  if (what == "list" && words.size() == 2) return true;
  command.kind = FaultCommand::Kind::kRemove;
  if (what == "clear" && words.size() == 2) return true;
  if (what == "remove" && words.size() > 2) {
    for (size_t i = 2; i < words.size(); ++i) {
      uint32_t rule = 0;
      if (!absl::SimpleAtoi(words[i], &rule) || rule == 0) {
        *error = "'" + words[i] +
                 "' is no number of a rule; rxe-user faults PID list prints "
                 "them";
        return false;
      }
      command.numbers.push_back(rule);
    }
    return true;
  }
  if (what == "add" && words.size() == 3) {
    command.kind = FaultCommand::Kind::kAdd;
    std::vector<transport::faults::Rule> rules;
    if (const auto wrong = rxe_user::LoadFaultRules(words[2], &rules)) {
      *error = *wrong;
      return false;
    }
    for (const transport::faults::Rule& rule : rules) {
      absl::StrAppend(&command.rules, rule.text, "\n");
    }
    return true;
  }
  *error = what == "add" && words.size() > 3
               ? "add takes one word: put the rules between quotes, and ; "
                 "between rules"
               : kUse;
  return false;
}

int RunFaults(const FaultsOptions& options, std::FILE* out, std::FILE* err) {
  const auto fail = [err](absl::string_view what) {
    std::fprintf(err, "rxe-user faults: %s\n",
                 trace::Printable(std::string(what)).c_str());
    return 1;
  };
  const auto answer = Ask(options.pid, FaultCommandText(options.command));
  if (!answer.ok()) return fail(answer.status().message());
  const auto rules = rxe_user::ReadFaultAnswer(*answer);
  if (!rules.ok()) {
    return fail(absl::StrCat("process ", static_cast<int>(options.pid), ": ",
                             rules.status().message()));
  }
  std::string text;
  if (options.json) {
    text = Json(*rules);
  } else {
    for (const FaultRuleStatus& rule : *rules) {
      text += Line(rule, options.command.kind);
    }
    if (text.empty()) text = "no rules\n";
  }
  return WriteText(text, out) || errno == EPIPE ? 0 : 1;
}

}  // namespace rxe_user_cli
