// Expectations of `rxe-user run --expect`: conditions over what the program did
// with our device. docs/ci.md describes the language.
//
//   condition   = and-part { "or" and-part }
//   and-part    = part { "and" part }
//   part        = "not" part | "(" condition ")" | comparison | every
//   comparison  = value ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) value
//   value       = NUMBER | COUNTER | "lints" |
//                 completions "(" ( STATUS | "*" ) ")"
//   every       = "every" completions "within" DURATION "of" "post"
//   completions = "wc" | "send_wc" | "recv_wc"
#ifndef TOOLS_RXE_USER_CLI_EXPECTATION_H_
#define TOOLS_RXE_USER_CLI_EXPECTATION_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rxe_user_cli {

// The work queues whose completions count.
enum class WorkQueues : uint8_t { kAll, kSend, kReceive };
// Their completions in a condition.
inline constexpr std::string_view kQueueWords[] = {"wc", "send_wc", "recv_wc"};
static_assert(std::size(kQueueWords) ==
              static_cast<size_t>(WorkQueues::kReceive) + 1);

struct Quantity {
  enum class Kind : uint8_t { kNumber, kCounter, kLints, kCompletions };
  static constexpr int kAnyStatus = -1;

  Kind kind = Kind::kNumber;
  uint64_t number = 0;
  size_t counter = 0;  // index in ExpectedCounters()
  WorkQueues queues = WorkQueues::kAll;
  int status = kAnyStatus;  // IBV_WC_...
  std::string text;         // as written, without blanks

  // The same quantity; `text` may differ, as aliases do.
  bool IsSame(const Quantity& other) const {
    return kind == other.kind && number == other.number &&
           counter == other.counter && queues == other.queues &&
           status == other.status;
  }
};

enum class Relation : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
};
// The relation that is true whenever `relation` is false.
Relation Opposite(Relation relation);
bool Holds(uint64_t left, Relation relation, uint64_t right);

struct Condition {
  enum class Kind : uint8_t { kAnd, kOr, kNot, kCompare, kEvery };

  Kind kind = Kind::kCompare;
  size_t begin = 0;  // in the text, bytes
  size_t end = 0;
  std::vector<Condition> parts;  // kAnd, kOr: two or more; kNot: one
  // --- kCompare. At least one side is not a number.
  Quantity left;
  Relation relation = Relation::kEqual;
  Quantity right;
  // --- kEvery.
  WorkQueues queues = WorkQueues::kAll;
  int64_t within = 0;  // ns, above 0
};

struct Expectation {
  std::string text;  // without blanks around it
  Condition condition;
};

struct ExpectationError {
  size_t column = 0;  // character of the text, from 1
  std::string message;
};

// Longer texts (bytes), and deeper parentheses, are refused.
inline constexpr size_t kLongestExpectation = 4096;
inline constexpr size_t kDeepestExpectation = 64;

// Whether the condition mentions lints, which are counted only with --check.
bool MentionsLints(const Condition& condition);

// Absent, with `*error`, if the text is not a condition, or if one of its parts
// is always true or always false. Finds the latter in all comparisons, and in
// parts with few enough values (expectation_check.cc).
std::optional<Expectation> ParseExpectation(std::string_view text,
                                            ExpectationError* error);
// "column 3: ...", in printable characters.
std::string TextOf(const ExpectationError& error);

// The counters of a device as `rxe-user stat` names them, in its order.
const std::vector<std::string_view>& ExpectedCounters();

struct CounterAlias {
  std::string_view alias;
  std::string_view name;
};
// Short names of counters.
const std::vector<CounterAlias>& CounterAliases();

// A part that is always true, or always false.
struct ConstantPart {
  const Condition* part = nullptr;
  bool value = false;
};
// The first such part of `condition`; none if there is none.
std::optional<ConstantPart> FindConstantPart(const Condition& condition);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_EXPECTATION_H_
