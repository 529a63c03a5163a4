#include "rxe_user/faults/fault_commands.h"

#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace rxe_user {
namespace {

constexpr std::string_view kList = "faults list";
constexpr std::string_view kAdd = "faults add\n";
constexpr std::string_view kRemove = "faults remove";
constexpr std::string_view kGood = "rules\n";
constexpr std::string_view kError = "error\n";

// The values of FaultRuleStatus::target, which points to constants.
constexpr const char* kTargets[] = {"packet",   "call",    "completion",
                                    "transfer", "message", "time"};

std::string Answer(const std::vector<FaultRuleStatus>& rules) {
  std::string text(kGood);
  for (const FaultRuleStatus& rule : rules) {
    absl::StrAppend(&text, rule.number, " ", rule.target, " ", rule.matched,
                    " ", rule.fired, " ", rule.text, "\n");
  }
  return text;
}

std::string Wrong(std::string_view what) {
  return std::string(kError) + std::string(what);
}

}  // namespace

std::string FaultCommandText(const FaultCommand& command) {
  switch (command.kind) {
    case FaultCommand::Kind::kAdd:
      return std::string(kAdd) + command.rules;
    case FaultCommand::Kind::kRemove: {
      std::string text(kRemove);
      for (const uint32_t number : command.numbers) {
        absl::StrAppend(&text, " ", number);
      }
      return text;
    }
    case FaultCommand::Kind::kList:
      break;
  }
  return std::string(kList);
}

std::string AnswerFaultCommand(const std::string& text, ProcessFaults* faults) {
  if (faults == nullptr) {
    return Wrong(
        "its faults are off; start it with rxe-user run --faults none, to add "
        "rules later");
  }
  if (text == kList) {
    std::vector<FaultRuleStatus> rules = faults->Status();
    std::erase_if(rules, [](const auto& rule) { return rule.removed; });
    return Answer(rules);
  }
  if (text.starts_with(kAdd)) {
    std::vector<FaultRuleStatus> added;
    const auto wrong = faults->Add(std::string_view(text).substr(kAdd.size()),
                                   ProcessFaults::Now(), &added);
    return wrong ? Wrong(*wrong) : Answer(added);
  }
  if (text.starts_with(kRemove)) {
    std::vector<uint32_t> numbers;
    for (const absl::string_view word :
         absl::StrSplit(absl::string_view(text).substr(kRemove.size()), ' ',
                        absl::SkipEmpty())) {
      uint32_t number;
      if (!absl::SimpleAtoi(word, &number)) return Wrong("no such command");
      numbers.push_back(number);
    }
    std::vector<FaultRuleStatus> removed;
    const auto wrong = faults->Remove(numbers, &removed);
    return wrong ? Wrong(*wrong) : Answer(removed);
  }
  return Wrong("no such command");
}

absl::StatusOr<std::vector<FaultRuleStatus>> ReadFaultAnswer(
    const std::string& answer) {
  if (answer.starts_with(kError)) {
    return absl::InvalidArgumentError(
        absl::string_view(answer).substr(kError.size()));
  }
  const absl::Status bad = absl::InternalError("its answer is not one");
  if (!answer.starts_with(kGood)) return bad;
  std::vector<FaultRuleStatus> rules;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(answer).substr(kGood.size()), '\n',
                      absl::SkipEmpty())) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::MaxSplits(' ', 4));
    FaultRuleStatus rule;
    if (words.size() != 5 || !absl::SimpleAtoi(words[0], &rule.number) ||
        !absl::SimpleAtoi(words[2], &rule.matched) ||
        !absl::SimpleAtoi(words[3], &rule.fired)) {
      return bad;
    }
    for (const char* const target : kTargets) {
      if (words[1] == target) rule.target = target;
    }
    rule.text = words[4];
    rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace rxe_user
