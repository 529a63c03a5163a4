#include "verbs_api/lint/lints.h"

#include <array>

namespace verbs_api::lint {
namespace {

constexpr std::array<LintText, kLintCount> kLints = {{
    {Lint::kUnsignaled, 1, "unsignaled", Group::kDefault},
    {Lint::kUnpolled, 2, "unpolled", Group::kDefault},
    {Lint::kQueueFull, 3, "queue-full", Group::kDefault},
    {Lint::kRnrTimer, 4, "rnr-timer", Group::kDefault},
    {Lint::kTimeout, 5, "timeout", Group::kDefault},
    {Lint::kRnrRetry, 6, "rnr-retry", Group::kDefault},
    {Lint::kSmallCq, 7, "small-cq", Group::kDefault},
    {Lint::kArmedUnpolled, 8, "armed-unpolled", Group::kDefault},
    {Lint::kUnacknowledged, 9, "unacknowledged", Group::kDefault},
    {Lint::kLocalKey, 10, "local-key", Group::kDefault},
    {Lint::kRemoteKey, 11, "remote-key", Group::kDefault},
    {Lint::kReadThenSend, 12, "read-then-send", Group::kDefault},
    {Lint::kLateReceive, 13, "late-receive", Group::kDefault},
    {Lint::kBufferGone, 14, "buffer-gone", Group::kDefault},
    {Lint::kLeak, 15, "leak", Group::kNamed},
    {Lint::kBufferChanged, 16, "buffer-changed", Group::kStrict},
    {Lint::kUndefinedField, 17, "undefined-field", Group::kStrict},
    {Lint::kMixedKeys, 18, "mixed-keys", Group::kStrict},
    {Lint::kFreedBuffer, 19, "freed-buffer", Group::kDefault},
    // 20 to 23 are those of tools/trace/ends.h.
    {Lint::kUninitialized, 24, "uninitialized", Group::kDefault},
}};

constexpr bool InOrder() {
  for (size_t i = 0; i < kLintCount; ++i) {
    if (kLints[i].lint != static_cast<Lint>(i)) return false;
  }
  return true;
}
static_assert(InOrder());

void Set(Group group, Settings* settings) {
  for (const LintText& text : kLints) {
    if (text.group == group) settings->on.set(static_cast<size_t>(text.lint));
  }
}

// False if there is no such lint.
bool Set(std::string_view name, bool on, Settings* settings) {
  for (const LintText& text : kLints) {
    if (text.name != name) continue;
    settings->on.set(static_cast<size_t>(text.lint), on);
    return true;
  }
  return false;
}

}  // namespace

std::span<const LintText> Lints() { return kLints; }

const LintText& TextOf(Lint lint) { return kLints[static_cast<size_t>(lint)]; }

bool ParseSettings(std::string_view text, Settings* settings,
                   std::string* wrong) {
  *settings = {};
  if (text.empty() || text == "0") return true;
  Set(Group::kDefault, settings);
  bool good = true;
  while (!text.empty()) {
    const size_t end = text.find(',');
    const std::string_view word = text.substr(0, end);
    text = end == text.npos ? "" : text.substr(end + 1);
    if (word.empty() || word == "1") continue;
    if (word == "strict") {
      Set(Group::kStrict, settings);
      continue;
    }
    const bool known = word[0] == '-' ? Set(word.substr(1), false, settings)
                                      : Set(word, true, settings);
    if (!known && good) *wrong = word;
    good = good && known;
  }
  return good;
}

}  // namespace verbs_api::lint
