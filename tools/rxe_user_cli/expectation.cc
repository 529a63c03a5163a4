#include "tools/rxe_user_cli/expectation.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "rxe_user/observe/device_report.h"
#include "rxe_user/observe/trace_table.h"
#include "tools/trace/escape.h"

namespace rxe_user_cli {
namespace {

constexpr std::string_view kStatusPrefix = "IBV_WC_";
constexpr uint64_t kMaxNumber = std::numeric_limits<int64_t>::max();
constexpr std::string_view kLints = "lints";
constexpr std::string_view kValues =
    "a counter (rxe-user stat), wc(STATUS) or a number";

struct Token {
  enum class Kind : uint8_t { kEnd, kWord, kNumber, kSign };
  Kind kind = Kind::kEnd;
  size_t begin = 0;
  size_t end = 0;
  std::string_view text;
};

bool IsDigit(char c) { return absl::ascii_isdigit(c); }
bool IsLetter(char c) { return absl::ascii_isalpha(c) || c == '_'; }
bool IsBlank(char c) { return absl::ascii_isspace(c); }

// The number of single-character changes that turn `a` into `b`.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row.back();
}

// "; did you mean NAME?", if one of the names is near.
std::string Suggestion(std::string_view word,
                       const std::vector<std::string_view>& names) {
  std::string_view best;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  if (word.size() > 64) return "";
  for (const std::string_view name : names) {
    const size_t distance = Distance(word, name);
    if (distance >= least) continue;
    least = distance;
    best = name;
  }
  return best.empty() ? "" : "; did you mean " + std::string(best) + "?";
}

std::optional<WorkQueues> QueuesOf(std::string_view word) {
  const auto* const found = std::ranges::find(kQueueWords, word);
  if (found == std::end(kQueueWords)) return std::nullopt;
  return static_cast<WorkQueues>(found - kQueueWords);
}

std::optional<Relation> RelationOf(std::string_view sign) {
  // In the order of the enumerators.
  constexpr std::string_view kSigns[] = {"==", "!=", "<", "<=", ">", ">="};
  static_assert(std::size(kSigns) ==
                static_cast<size_t>(Relation::kGreaterOrEqual) + 1);
  const auto* const found = std::ranges::find(kSigns, sign);
  if (found == std::end(kSigns)) return std::nullopt;
  return static_cast<Relation>(found - kSigns);
}

bool IsKeyword(std::string_view word) {
  return word == "and" || word == "or" || word == "not" || word == "every" ||
         word == "within" || word == "of" || word == "post";
}

std::string Statuses() {
  std::string text;
  for (const auto& status : rxe_user::trace::StatusNames()) {
    text += (text.empty() ? "" : ", ") + std::string(status.name);
  }
  return text;
}

// Recursive descent. After the first error every function returns at once.
class Parser {
 public:
  Parser(std::string_view text, ExpectationError* error)
      : text_(text), error_(error) {
    Advance();
  }

  std::optional<Condition> Parse() {
    Condition condition = ParseOr(0);
    if (!failed_ && token_.kind != Token::Kind::kEnd) {
      Fail(RelationOf(token_.text)
               ? "a comparison has two sides; join several by and"
               : "and, or, or the end is expected here");
    }
    if (failed_) return std::nullopt;
    return condition;
  }

  void FailAt(size_t at, std::string message) {
    if (failed_) return;
    failed_ = true;
    // Bytes that continue a UTF-8 character do not count.
    error_->column = 1;
    for (size_t i = 0; i < std::min(at, text_.size()); ++i) {
      if ((static_cast<uint8_t>(text_[i]) & 0xc0) != 0x80) ++error_->column;
    }
    error_->message = std::move(message);
  }

 private:
  void Fail(std::string message) { FailAt(token_.begin, std::move(message)); }

  void Advance() {
    size_t at = token_.end;
    last_end_ = token_.end;
    while (at < text_.size() && IsBlank(text_[at])) ++at;
    const size_t begin = at;
    Token::Kind kind = Token::Kind::kEnd;
    if (at < text_.size()) {
      const char first = text_[at];
      if (IsDigit(first)) {
        kind = Token::Kind::kNumber;
        while (at < text_.size() && (IsDigit(text_[at]) || text_[at] == '.')) {
          ++at;
        }
      } else if (IsLetter(first)) {
        kind = Token::Kind::kWord;
        while (at < text_.size() && (IsLetter(text_[at]) || IsDigit(text_[at])))
          ++at;
      } else {
        kind = Token::Kind::kSign;
        const std::string_view pair = text_.substr(at, 2);
        const bool two = pair == "==" || pair == "!=" || pair == "<=" ||
                         pair == ">=" || pair == "&&" || pair == "||";
        at += two ? 2 : 1;
      }
    }
    token_ = {kind, begin, at, text_.substr(begin, at - begin)};
  }

  bool IsWord(std::string_view word) const {
    return token_.kind == Token::Kind::kWord && token_.text == word;
  }
  bool IsSign(std::string_view sign) const {
    return token_.kind == Token::Kind::kSign && token_.text == sign;
  }
  bool TakeWord(std::string_view word) {
    if (failed_ || !IsWord(word)) return false;
    Advance();
    return true;
  }
  // Takes the word, or fails.
  void ExpectWord(std::string_view word, const std::string& form) {
    if (failed_) return;
    if (!TakeWord(word)) Fail(std::string(word) + " is expected here: " + form);
  }
  void ExpectSign(std::string_view sign) {
    if (failed_) return;
    if (IsSign(sign)) return Advance();
    Fail(std::string(sign) + " is expected here");
  }
  // Reports operators of other languages, with the right ones.
  void FailIfForeign() {
    if (failed_) return;
    if (IsSign("=")) Fail("write == to compare");
    if (IsSign("&&") || IsSign("&")) Fail("write and");
    if (IsSign("||") || IsSign("|")) Fail("write or");
    if (IsSign("!")) Fail("write not");
  }

  using Kind = Condition::Kind;

  Condition ParseOr(size_t depth) {
    return ParseList(Kind::kOr, "or", [&] {
      return ParseList(Kind::kAnd, "and", [&] { return ParsePart(depth); });
    });
  }

  template <typename ParseOne>
  Condition ParseList(Kind kind, std::string_view word, ParseOne&& parse_one) {
    Condition first = parse_one();
    FailIfForeign();
    if (failed_ || !IsWord(word)) return first;
    Condition all;
    all.kind = kind;
    all.begin = first.begin;
    all.parts.push_back(std::move(first));
    while (TakeWord(word)) {
      all.parts.push_back(parse_one());
      FailIfForeign();
    }
    all.end = last_end_;
    return all;
  }

  Condition ParsePart(size_t depth) {
    Condition condition;
    if (failed_) return condition;
    const size_t begin = token_.begin;
    FailIfForeign();
    if (depth >= kDeepestExpectation) {
      Fail("more than " + std::to_string(kDeepestExpectation) +
           " levels of not and parentheses");
    } else if (TakeWord("not")) {
      condition.kind = Kind::kNot;
      condition.parts.push_back(ParsePart(depth + 1));
    } else if (IsSign("(")) {
      Advance();
      condition = ParseOr(depth + 1);
      ExpectSign(")");
    } else if (TakeWord("every")) {
      ParseEvery(&condition);
    } else {
      ParseComparison(&condition);
    }
    condition.begin = begin;
    condition.end = last_end_;
    return condition;
  }

  void ParseEvery(Condition* condition) {
    const std::string form = "every wc within 2s of post";
    condition->kind = Kind::kEvery;
    const auto queues = QueuesOf(token_.text);
    if (!queues || token_.kind != Token::Kind::kWord) {
      return Fail("wc, send_wc or recv_wc is expected here: " + form);
    }
    condition->queues = *queues;
    Advance();
    ExpectWord("within", form);
    condition->within = ParseDuration(form);
    ExpectWord("of", form);
    ExpectWord("post", form);
  }

  int64_t ParseDuration(const std::string& form) {
    if (failed_) return 0;
    if (token_.kind != Token::Kind::kNumber) {
      Fail("a time is expected here: " + form);
      return 0;
    }
    const Token number = token_;
    Advance();
    int64_t unit = 0;
    if (token_.kind == Token::Kind::kWord) {
      if (token_.text == "ns") unit = 1;
      if (token_.text == "us") unit = 1'000;
      if (token_.text == "ms") unit = 1'000'000;
      if (token_.text == "s") unit = 1'000'000'000;
    }
    if (unit == 0) {
      Fail("a unit is expected here, one of ns, us, ms, s: " + form);
      return 0;
    }
    Advance();
    // Exact for up to nine digits after the decimal point.
    int64_t ns = 0;
    int64_t digit_ns = 0;  // after the point: of the last digit
    for (const char c : number.text) {
      if (c == '.') {
        if (digit_ns != 0) {
          FailAt(number.begin, "a number has one point");
          return 0;
        }
        digit_ns = unit;
      } else if (digit_ns == 0) {
        if (ns > (std::numeric_limits<int64_t>::max() - 9 * unit) / 10) {
          FailAt(number.begin, "this time is too long");
          return 0;
        }
        ns = ns * 10 + (c - '0') * unit;
      } else {
        digit_ns /= 10;
        if (digit_ns == 0) break;
        ns += (c - '0') * digit_ns;
      }
    }
    if (ns == 0) FailAt(number.begin, "a time of 1ns or more is expected here");
    return ns;
  }

  void ParseComparison(Condition* condition) {
    condition->kind = Kind::kCompare;
    const size_t begin = token_.begin;
    condition->left = ParseQuantity();
    if (failed_) return;
    const auto relation = RelationOf(token_.text);
    if (!relation) {
      FailIfForeign();
      return Fail("one of == != < <= > >= is expected after " +
                  condition->left.text);
    }
    condition->relation = *relation;
    Advance();
    condition->right = ParseQuantity();
    if (failed_) return;
    if (condition->left.kind == Quantity::Kind::kNumber &&
        condition->right.kind == Quantity::Kind::kNumber) {
      FailAt(begin,
             "it compares two numbers; one side must be a counter or "
             "wc(STATUS)");
    }
  }

  Quantity ParseQuantity() {
    Quantity quantity;
    if (failed_) return quantity;
    if (token_.kind == Token::Kind::kNumber) {
      ParseNumber(&quantity);
    } else if (token_.kind == Token::Kind::kWord && !IsKeyword(token_.text)) {
      if (const auto queues = QueuesOf(token_.text)) {
        ParseCompletions(*queues, &quantity);
      } else {
        ParseCounter(&quantity);
      }
    } else {
      FailIfForeign();
      Fail(std::string(kValues) + " is expected here");
    }
    return quantity;
  }

  void ParseNumber(Quantity* quantity) {
    uint64_t number = 0;
    for (const char c : token_.text) {
      if (c == '.') return Fail("a whole number is expected here");
      const auto digit = static_cast<uint64_t>(c - '0');
      if (number > (kMaxNumber - digit) / 10) {
        return Fail("this number is above " + std::to_string(kMaxNumber));
      }
      number = number * 10 + digit;
    }
    quantity->number = number;
    quantity->text = token_.text;
    Advance();
    if (token_.kind == Token::Kind::kWord && token_.begin == last_end_) {
      Fail("a number has no unit here");
    }
  }

  void ParseCounter(Quantity* quantity) {
    std::string_view name = token_.text;
    if (name == kLints) {
      quantity->kind = Quantity::Kind::kLints;
      quantity->text = name;
      return Advance();
    }
    for (const CounterAlias& alias : CounterAliases()) {
      if (alias.alias == name) name = alias.name;
    }
    const auto& names = ExpectedCounters();
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      std::vector<std::string_view> known = names;
      for (const CounterAlias& alias : CounterAliases()) {
        known.push_back(alias.alias);
      }
      for (const std::string_view word :
           {"wc", "send_wc", "recv_wc", "every", "not", "lints"}) {
        known.push_back(word);
      }
      return Fail("there is no counter " + std::string(name) +
                  Suggestion(name, known));
    }
    quantity->kind = Quantity::Kind::kCounter;
    quantity->counter = static_cast<size_t>(found - names.begin());
    quantity->text = token_.text;
    Advance();
  }

  void ParseCompletions(WorkQueues queues, Quantity* quantity) {
    const std::string word(token_.text);
    quantity->kind = Quantity::Kind::kCompletions;
    quantity->queues = queues;
    Advance();
    if (!IsSign("(")) {
      return Fail("(STATUS) or (*) is expected after " + word);
    }
    Advance();
    if (IsSign("*")) {
      quantity->text = word + "(*)";
    } else {
      std::string_view name =
          token_.kind == Token::Kind::kWord ? token_.text : "";
      if (name.starts_with(kStatusPrefix)) {
        name.remove_prefix(kStatusPrefix.size());
      }
      std::vector<std::string_view> known;
      for (const auto& status : rxe_user::trace::StatusNames()) {
        if (status.name == name)
          quantity->status = static_cast<int>(status.value);
        known.push_back(status.name);
      }
      if (quantity->status == Quantity::kAnyStatus) {
        const std::string near = Suggestion(name, known);
        return Fail(near.empty()
                        ? "a status is expected here, one of " + Statuses() +
                              ", or * for all"
                        : "there is no status " + std::string(name) + near);
      }
      quantity->text = word + "(" + std::string(name) + ")";
    }
    Advance();
    ExpectSign(")");
  }

  const std::string_view text_;
  ExpectationError* const error_;
  bool failed_ = false;
  Token token_;
  size_t last_end_ = 0;  // of the token before token_
};

}  // namespace

bool MentionsLints(const Condition& condition) {
  return std::ranges::any_of(condition.parts, MentionsLints) ||
         condition.left.kind == Quantity::Kind::kLints ||
         condition.right.kind == Quantity::Kind::kLints;
}

Relation Opposite(Relation relation) {
  switch (relation) {
    case Relation::kEqual:
      return Relation::kNotEqual;
    case Relation::kNotEqual:
      return Relation::kEqual;
    case Relation::kLess:
      return Relation::kGreaterOrEqual;
    case Relation::kLessOrEqual:
      return Relation::kGreater;
    case Relation::kGreater:
      return Relation::kLessOrEqual;
    case Relation::kGreaterOrEqual:
      break;
  }
  return Relation::kLess;
}

bool Holds(uint64_t left, Relation relation, uint64_t right) {
  switch (relation) {
    case Relation::kEqual:
      return left == right;
    case Relation::kNotEqual:
      return left != right;
    case Relation::kLess:
      return left < right;
    case Relation::kLessOrEqual:
      return left <= right;
    case Relation::kGreater:
      return left > right;
    case Relation::kGreaterOrEqual:
      break;
  }
  return left >= right;
}

const std::vector<std::string_view>& ExpectedCounters() {
  static const auto* const names = [] {
    auto* const all = new std::vector<std::string_view>;
    for (const auto& value : rxe_user::CountersOf(rxe_user::LaneReport())) {
      all->push_back(value.counter->name);
    }
    return all;
  }();
  return *names;
}

const std::vector<CounterAlias>& CounterAliases() {
  static const auto* const aliases = new std::vector<CounterAlias>{
      {"repeated", "retrans_pkts"},
      {"timeouts", "local_ack_timeout_err"},
      {"naks", "rcvd_seq_err"},
      {"rnr_naks", "rcvd_rnr_err"},
      {"icrc_errors", "rx_icrc_encapsulated"},
  };
  return *aliases;
}

std::optional<Expectation> ParseExpectation(std::string_view text,
                                            ExpectationError* error) {
  text.remove_prefix(static_cast<size_t>(
      std::ranges::find_if_not(text, IsBlank) - text.begin()));
  text.remove_suffix(static_cast<size_t>(
      std::find_if_not(text.rbegin(), text.rend(), IsBlank) - text.rbegin()));
  if (text.size() > kLongestExpectation) {
    *error = {1, "it is longer than " + std::to_string(kLongestExpectation) +
                     " characters"};
    return std::nullopt;
  }
  Parser parser(text, error);
  std::optional<Condition> condition = parser.Parse();
  if (!condition) return std::nullopt;
  if (const auto constant = FindConstantPart(*condition)) {
    const Condition& part = *constant->part;
    parser.FailAt(part.begin,
                  std::string(text.substr(part.begin, part.end - part.begin)) +
                      " is always " + (constant->value ? "true" : "false") +
                      ", whatever the program does");
    return std::nullopt;
  }
  return Expectation{std::string(text), *std::move(condition)};
}

std::string TextOf(const ExpectationError& error) {
  return "column " + std::to_string(error.column) + ": " +
         trace::Printable(error.message);
}

}  // namespace rxe_user_cli
