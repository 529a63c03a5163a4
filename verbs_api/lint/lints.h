// The lints: their names, and which of them are on. docs/lints.md describes
// each.
#ifndef VERBS_API_LINT_LINTS_H_
#define VERBS_API_LINT_LINTS_H_

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace verbs_api::lint {

// In the order of kLints.
enum class Lint : uint8_t {
  kUnsignaled,
  kUnpolled,
  kQueueFull,
  kRnrTimer,
  kTimeout,
  kRnrRetry,
  kSmallCq,
  kArmedUnpolled,
  kUnacknowledged,
  kLocalKey,
  kRemoteKey,
  kReadThenSend,
  kLateReceive,
  kBufferGone,
  kLeak,
  kBufferChanged,
  kUndefinedField,
  kMixedKeys,
  kFreedBuffer,
  kUninitialized,
  kCount,
};
inline constexpr size_t kLintCount = static_cast<size_t>(Lint::kCount);

// The group that turns a lint on.
enum class Group : uint8_t {
  kDefault,  // --check
  kStrict,   // --strict: slow, or changes what the program sees
  kNamed,    // --check=NAME only
};

struct LintText {
  Lint lint;
  uint16_t number;  // never changes
  std::string_view name;
  Group group;
};
std::span<const LintText> Lints();
const LintText& TextOf(Lint lint);

struct Settings {
  std::bitset<kLintCount> on;

  bool IsOn(Lint lint) const { return on[static_cast<size_t>(lint)]; }
};

// Parses the value of RXE_USER_CHECK: words separated by commas. The lints of
// Group::kDefault are on. "strict" adds those of Group::kStrict, "NAME" adds
// one, "-NAME" removes one, "1" changes nothing. "0" alone, or an empty value:
// all are off. False: `*wrong` is the first unknown word; the other words are
// applied.
bool ParseSettings(std::string_view text, Settings* settings,
                   std::string* wrong);

}  // namespace verbs_api::lint

#endif  // VERBS_API_LINT_LINTS_H_
