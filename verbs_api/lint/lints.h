// The lints: what they are called, and which of them are on. docs/lints.md
// describes each.
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
  uint16_t number;  // stays the same for ever
  std::string_view name;
  Group group;
};
std::span<const LintText> Lints();
const LintText& TextOf(Lint lint);

struct Settings {
  std::bitset<kLintCount> on;

  bool IsOn(Lint lint) const { return on[static_cast<size_t>(lint)]; }
};

// Reads the value of RXE_USER_CHECK: words separated by commas. The default
// ones are on. "strict": those of Group::kStrict, too. "NAME": that one, too.
// "-NAME": not that one. "1": no change. Only "0", or empty: none at all.
// False, with `*wrong` the first word that is none of these; the others count.
bool ParseSettings(std::string_view text, Settings* settings,
                   std::string* wrong);

}  // namespace verbs_api::lint

#endif  // VERBS_API_LINT_LINTS_H_
