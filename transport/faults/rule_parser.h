// Parses the text of fault rules: `ACTION [rx|tx] [MATCH...] [WHEN...]`, one
// rule a line or separated by `;`. What follows `#` in a line is a comment.
#ifndef TRANSPORT_FAULTS_RULE_PARSER_H_
#define TRANSPORT_FAULTS_RULE_PARSER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/faults/rule.h"

namespace transport::faults {

inline constexpr size_t kMaxRules = 256;
// Bytes of text of all rules together.
inline constexpr size_t kMaxRuleText = 64 * 1024;

// What is wrong with a text, and what would be right. Lines and columns are
// counted from 1.
struct RuleError {
  int line = 0;
  int column = 0;
  std::string what;

  // "line 1, column 6: ...".
  std::string ToString() const;
};

// Appends the rules of `text` to `out`. On an error, `out` is unchanged. No
// rule at all is an error.
std::optional<RuleError> ParseRules(std::string_view text,
                                    std::vector<Rule>* out);

// Whether `text` is meant as rules rather than as the name of a file: its first
// word is an action, it begins with a comment, or it is blank.
bool LooksLikeRules(std::string_view text);

}  // namespace transport::faults

#endif  // TRANSPORT_FAULTS_RULE_PARSER_H_
